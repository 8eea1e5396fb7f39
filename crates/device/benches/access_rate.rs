//! How many modelled memory accesses one core does per second, and where the time goes.
//!
//! `cargo bench -p lapis-device --bench access_rate`
//!
//! The last column is without counting: the memory access remains, and for stores the lock. The best
//! of five rounds, in time on the core; figures are of the machine this runs on. A number after the
//! command runs only the pattern of that number, counted, for a profiler; a second one is how many
//! accesses a round has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis_device::{Config, MachineShape, Modelled};
use lapis_pmem::{Domain, Region};
use rustix::time::{ClockId, clock_gettime};

const BYTES: usize = 64 << 20;
const ACCESSES: usize = 2_000_000;
const ROUNDS: usize = 5;

struct Pattern {
    name: &'static str,
    /// The word of a step.
    word: fn(usize) -> usize,
    access: fn(&Modelled, &AtomicU64),
}

fn load(machine: &Modelled, word: &AtomicU64) {
    std::hint::black_box(machine.load::<u64>(word, Ordering::Acquire));
}

fn store(machine: &Modelled, word: &AtomicU64) {
    machine.store::<u64>(word, 1, Ordering::Release);
}

fn store_and_persist(machine: &Modelled, word: &AtomicU64) {
    machine.store::<u64>(word, 1, Ordering::Release);
    machine.persist(word);
}

/// A step's word, anywhere below `words`, a power of two.
fn scattered(step: usize, words: usize) -> usize {
    (step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) & (words - 1)
}

const PATTERNS: [Pattern; 9] = [
    Pattern { name: "load, in L1", word: |step| scattered(step, 2 << 10), access: load },
    Pattern { name: "load, in L2", word: |step| scattered(step, 64 << 10), access: load },
    Pattern { name: "load, in L3", word: |step| scattered(step, 2 << 20), access: load },
    Pattern { name: "load, 64 MiB at random", word: |step| scattered(step, 8 << 20), access: load },
    Pattern { name: "load, in order", word: |step| step & ((8 << 20) - 1), access: load },
    Pattern { name: "store, in L2", word: |step| scattered(step, 64 << 10), access: store },
    Pattern { name: "store, in L3", word: |step| scattered(step, 2 << 20), access: store },
    Pattern {
        name: "store, 64 MiB at random",
        word: |step| scattered(step, 8 << 20),
        access: store,
    },
    Pattern {
        name: "store, flush and fence",
        word: |step| scattered(step, 64 << 10),
        access: store_and_persist,
    },
];

/// How long this thread has had a core: what other programs take of it meanwhile does not count.
fn on_the_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The best of some rounds, in million steps per second of the core's time.
fn rate(pattern: &Pattern, counting: Option<MachineShape>, accesses: usize) -> f64 {
    let region = Region::anonymous(BYTES, BYTES).expect("64 MiB of memory");
    let machine = Modelled::over(&region, Config { counting, ..Config::default() });
    // SAFETY: inside the mapped region, aligned, only accessed atomically.
    let word = |index: usize| unsafe { &*region.base().add(index * 8).cast::<AtomicU64>() };
    let mut best = Duration::MAX;
    // The first round fills the caches, the modelled and the host's.
    for _ in 0..=ROUNDS {
        let begin = on_the_core();
        for step in 0..accesses {
            (pattern.access)(&machine, word((pattern.word)(step)));
        }
        best = best.min(on_the_core() - begin);
    }
    accesses as f64 / best.as_secs_f64() / 1e6
}

/// What `cargo bench` adds to the arguments.
const CARGOS: &str = "--bench";

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != CARGOS);
    if let Some(only) = arguments.next() {
        let pattern = only.parse().ok().and_then(|number: usize| PATTERNS.get(number));
        let pattern = pattern.expect("the number of a pattern, from 0");
        let accesses = arguments.next().map(|number| number.parse().expect("a number of accesses"));
        let counted = rate(pattern, Some(MachineShape::default()), accesses.unwrap_or(ACCESSES));
        println!("{:32} {counted:14.1}", pattern.name);
        return;
    }
    println!("{:32} {:>14} {:>20}", "pattern", "counted, M/s", "not counted, M/s");
    for pattern in &PATTERNS {
        let counted = rate(pattern, Some(MachineShape::default()), ACCESSES);
        let plain = rate(pattern, None, ACCESSES);
        println!("{:32} {counted:14.1} {plain:20.1}", pattern.name);
    }
}
