//! How many modelled memory accesses per second one core does when they are those of an index:
//! inserts of random integers, then gets in another order, on the counting machine of `optane-100`.
//!
//! `cargo bench -p lapis-index --bench modelled_access_rate -- [KEYS [INDEX]]`
//!
//! Accesses are the words loaded, stored and exchanged; flushes and fences cost time and count
//! apart. What the index computes meanwhile is in the time, which is the thread's on its core. The best
//! of five rounds.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lapis_device::{Config, Counts, Modelled};
use lapis_index::{FastFair, Index, IndexOptions, PClht, Wort};
use lapis_pmem::{Pool, Region};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;

/// How long this thread has had a core: what other programs take of it meanwhile does not count.
fn on_the_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counted and timed.
#[derive(Clone, Copy)]
struct Phase {
    counts: Counts,
    seconds: f64,
}

impl Phase {
    fn of(machine: &Modelled, work: impl FnOnce()) -> Self {
        let (before, begin) = (machine.counts(), on_the_core());
        work();
        Self { seconds: (on_the_core() - begin).as_secs_f64(), counts: machine.counts() - before }
    }

    fn accesses(self) -> u64 {
        self.counts.loads + self.counts.stores + self.counts.locked
    }
}

/// What `cargo bench` adds to the arguments.
const CARGOS: &str = "--bench";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != CARGOS);
    let keys = arguments.next().map_or(Ok(100_000), |keys| keys.parse())?;
    let only = arguments.next();
    let chosen = |name: &str| only.as_deref().is_none_or(|only| only == name);
    println!(
        "{:10} {:>13} {:>12} {:>12} {:>12} {:>16}",
        "index", "operation", "accesses/op", "flushes/op", "misses/op", "M accesses/s"
    );
    if chosen("wort") {
        measure::<Wort<Modelled, u64>>("wort", keys)?;
    }
    if chosen("fast-fair") {
        measure::<FastFair<Modelled, u64>>("fast-fair", keys)?;
    }
    if chosen("p-clht") {
        measure::<PClht<Modelled, u64>>("p-clht", keys)?;
    }
    Ok(())
}

fn measure<I: Index<Modelled, u64>>(name: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let mut best: Option<[Phase; 2]> = None;
    for _ in 0..ROUNDS {
        let phases = round::<I>(count)?;
        best = Some(best.map_or(phases, |best| {
            std::array::from_fn(|at| {
                if phases[at].seconds < best[at].seconds { phases[at] } else { best[at] }
            })
        }));
    }
    let [inserts, gets] = best.expect("some rounds");
    let both =
        Phase { counts: inserts.counts + gets.counts, seconds: inserts.seconds + gets.seconds };
    for (operation, phase, operations) in
        [("insert", inserts, count), ("get", gets, count), ("both", both, 2 * count)]
    {
        let each = |counted: u64| counted as f64 / operations as f64;
        println!(
            "{name:10} {operation:>13} {:12.2} {:12.2} {:12.2} {:16.1}",
            each(phase.accesses()),
            each(phase.counts.flushes),
            each(phase.counts.llc_misses),
            phase.accesses() as f64 / phase.seconds / 1e6
        );
    }
    Ok(())
}

fn round<I: Index<Modelled, u64>>(count: usize) -> Result<[Phase; 2], Box<dyn Error>> {
    let mut random = SmallRng::seed_from_u64(42);
    let mut keys: Vec<u64> = (0..count).map(|_| random.random()).collect();
    let bytes = 256 * count + (64 << 20);
    let region = Region::anonymous(bytes, bytes)?;
    let machine = Modelled::over(&region, Config::counting());
    let pool = Arc::new(Pool::create(region, machine.clone())?);
    let index = I::create_named(&pool, "index", &IndexOptions::default())?;

    let mut failure = None;
    let inserts = Phase::of(&machine, || {
        failure = keys.iter().find_map(|key| index.insert(key, !key).err());
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    keys.shuffle(&mut random);
    let mut found = 0;
    let gets = Phase::of(&machine, || {
        found = keys.iter().filter(|&key| index.get(key) == Some(!key)).count();
    });
    assert_eq!(found, count, "every key is found");
    let mut visited = 0;
    index.for_each(&mut |_, _| {
        visited += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(visited, count, "every key is visited");
    Ok([inserts, gets])
}
