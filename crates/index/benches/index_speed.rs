//! Measures indexes with random integer keys: inserts and searches in millions per second of
//! wall-clock time and of the threads' processor time (on a machine that others share, the one that
//! says more; that of all threads together, as if each had a processor), flushes and fences being
//! this machine's. A range is 100 entries,
//! and many keys are 128.
//!
//! `cargo bench -p lapis-index --bench index_speed -- [INDEX ...] [KEYS ...] [threads=N ...]`
//!
//! Each thread has its own share of the keys.
//!
//! The instructions of an operation, by callgrind (of 100,000 keys; rustix reads an address by itself, by default, at which a
//! program under valgrind has nothing):
//!
//! ```text
//! RUSTFLAGS='--cfg rustix_use_libc' cargo bench -p lapis-index --bench index_speed --no-run
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='index_speed::get_one' EXECUTABLE wort 100000
//! ```
//!
//! It collects what `get_one` (or `insert_one`) and all beneath have executed.

use std::error::Error;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapis_index::{Direction, Index, IndexFamily, IndexKind, IndexOf, IndexOptions, with_index};
use lapis_pmem::{Hardware, Pool, Region};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

/// Keys that are looked up together.
const MANY: usize = 128;
/// Entries of a range.
const RANGE_ENTRIES: usize = 100;
/// What `cargo bench` adds to the arguments.
const CARGOS: &str = "--bench";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut kinds, mut counts, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for argument in std::env::args().skip(1).filter(|argument| argument != CARGOS) {
        if let Some(number) = argument.strip_prefix("threads=") {
            threads.push(number.parse::<usize>()?.max(1));
            continue;
        }
        match IndexKind::from_name(&argument) {
            Some(kind) => kinds.push(kind),
            None => counts.push(argument.parse::<usize>()?),
        }
    }
    if kinds.is_empty() {
        kinds.extend(IndexKind::ALL);
    }
    if counts.is_empty() {
        counts = vec![4_000_000];
    }
    if threads.is_empty() {
        threads = vec![1];
    }
    for kind in kinds {
        for (&count, &threads) in
            counts.iter().flat_map(|count| threads.iter().map(move |threads| (count, threads)))
        {
            with_index!(kind, |F| measure::<F>(count, threads))?;
        }
    }
    Ok(())
}

fn measure<F: IndexFamily>(count: usize, threads: usize) -> Result<(), Box<dyn Error>> {
    let mut random = SmallRng::seed_from_u64(42);
    let mut keys: Vec<u64> = (0..count).map(|_| random.random()).collect();

    let fresh = || -> Result<_, Box<dyn Error>> {
        let bytes = 64 * count + count * 192 + (16 << 20);
        let region = Region::anonymous(bytes, 4 * bytes)?;
        let pool = Arc::new(Pool::create(region, Hardware::detect())?);
        let options = IndexOptions::default();
        let index = IndexOf::<F, Hardware, u64>::create_named(&pool, "index", &options)?;
        Ok((pool, index))
    };
    {
        // One pool at a time: there may be huge pages for one.
        let (pool, index) = fresh()?;
        println!("{}, {count} keys, {threads} threads, {}", F::KIND, pool.domain().method());
        let many: Vec<&[u64]> = keys.chunks(MANY).collect();
        measure_groups("insert many", threads, &many, count, |group| {
            let entries: Vec<(&u64, u64)> = group.iter().map(|key| (key, !key)).collect();
            index.insert_many(&entries, &mut |_, _| {}).is_ok()
        });
    }
    let (_pool, index) = fresh()?;
    measure_phase("insert", threads, &keys, |key| insert_one(&index, key));
    keys.shuffle(&mut random);
    measure_phase("get", threads, &keys, |key| get_one(&index, key));
    let many: Vec<&[u64]> = keys.chunks(MANY).collect();
    measure_groups("get many", threads, &many, count, |group| {
        let keys: Vec<&u64> = group.iter().collect();
        let mut right = 0;
        index.get_many(&keys, &mut |place, value| {
            right += usize::from(value == Some(!group[place]));
        });
        right == group.len()
    });
    if F::scan(&index, Bound::Unbounded, Direction::Forward, &mut |_, _| ControlFlow::Break(())) {
        measure_phase("range", threads, &keys[..count / RANGE_ENTRIES], |key| {
            let mut rest = RANGE_ENTRIES;
            F::scan(&index, Bound::Included(key), Direction::Forward, &mut |key, value| {
                rest -= usize::from(value == !key);
                if rest == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
    }

    let start = Start::now();
    let mut visited = 0;
    index.for_each(&mut |_, _| {
        visited += 1;
        ControlFlow::Continue(())
    });
    report("scan", count, start.wall.elapsed(), processor_time() - start.processor);
    assert_eq!(visited, count);

    let sizes = index.statistics();
    println!(
        "  depth {:.2} (at most {}), {} nodes, {:.1} bytes per key",
        sizes.mean_depth,
        sizes.max_depth,
        sizes.nodes,
        sizes.bytes as f64 / count as f64
    );
    measure_phase("update", threads, &keys, |key| index.update(key, *key).is_ok());
    measure_phase("remove", threads, &keys, |key| index.remove(key).is_ok());
    Ok(())
}

#[inline(never)]
fn insert_one(index: &impl Index<Hardware, u64>, key: &u64) -> bool {
    index.insert(key, !key).is_ok()
}

#[inline(never)]
fn get_one(index: &impl Index<Hardware, u64>, key: &u64) -> bool {
    index.get(key) == Some(!key)
}

/// Has each thread do `operation` with its share of the keys, all of which must succeed.
fn measure_phase<K: Sync>(
    what: &str,
    threads: usize,
    keys: &[K],
    operation: impl Fn(&K) -> bool + Sync,
) {
    measure_groups(what, threads, keys, keys.len(), operation);
}

/// The same with groups of keys, of which there are `count` in all.
fn measure_groups<K: Sync>(
    what: &str,
    threads: usize,
    keys: &[K],
    count: usize,
    operation: impl Fn(&K) -> bool + Sync,
) {
    let start = Instant::now();
    let each = &|share: &[K]| {
        let start = Start::now();
        assert_eq!(share.iter().filter(|key| operation(key)).count(), share.len());
        processor_time() - start.processor
    };
    let processor: Duration = std::thread::scope(|scope| {
        let shares = keys.chunks(keys.len().div_ceil(threads).max(1));
        let running: Vec<_> = shares.map(|share| scope.spawn(move || each(share))).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    report(what, count, start.elapsed(), processor / threads as u32);
}

/// When a phase began.
struct Start {
    wall: Instant,
    processor: Duration,
}

impl Start {
    fn now() -> Self {
        Self { wall: Instant::now(), processor: processor_time() }
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fn report(what: &str, count: usize, wall: Duration, processor: Duration) {
    let mops = |time: Duration| count as f64 / time.as_secs_f64() / 1e6;
    println!("  {what:7} {:6.2} M/s {:6.2} M/s", mops(wall), mops(processor));
}
