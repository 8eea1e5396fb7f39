//! Measures indexes with one thread and random integer keys: inserts and searches in millions per
//! second of wall-clock time and of this thread's processor time (on a machine that others share, the
//! one that says more), flushes and fences being this machine's.
//!
//! `cargo run --release -p lapis-index --example index_speed [INDEX ...] [KEYS ...]`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapis_index::{
    ArtCow, FastFair, FpTree, Index, IndexKind, IndexOptions, NvTree, PClht, WbTree, WbTreeSlot,
    Woart, Wort,
};
use lapis_pmem::{Hardware, Pool};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut kinds, mut counts) = (Vec::new(), Vec::new());
    for argument in std::env::args().skip(1) {
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
    for kind in kinds {
        for &count in &counts {
            match kind {
                IndexKind::Wort => measure::<Wort<Hardware, u64>>(count)?,
                IndexKind::FastFair => measure::<FastFair<Hardware, u64>>(count)?,
                IndexKind::PClht => measure::<PClht<Hardware, u64>>(count)?,
                IndexKind::Woart => measure::<Woart<Hardware, u64>>(count)?,
                IndexKind::ArtCow => measure::<ArtCow<Hardware, u64>>(count)?,
                IndexKind::WbTree => measure::<WbTree<Hardware, u64>>(count)?,
                IndexKind::WbTreeSlot => measure::<WbTreeSlot<Hardware, u64>>(count)?,
                IndexKind::NvTree => measure::<NvTree<Hardware, u64>>(count)?,
                IndexKind::FpTree => measure::<FpTree<Hardware, u64>>(count)?,
                other => println!("{other} is not measured here"),
            }
        }
    }
    Ok(())
}

fn measure<I: Index<Hardware, u64>>(count: usize) -> Result<(), Box<dyn Error>> {
    let mut random = SmallRng::seed_from_u64(42);
    let mut keys: Vec<u64> = (0..count).map(|_| random.random()).collect();

    let pool = Arc::new(Pool::create_anonymous(64 * count + count * 192 + (16 << 20))?);
    println!("{}, {count} keys, {}", I::KIND, pool.domain().method());
    let root = I::create(&pool, &IndexOptions::default())?;
    let root = pool.fence(root);
    let link = root.link();
    let _ = pool.publish_root("index", 0, root)?.persist();
    let index = I::open(Arc::clone(&pool), link)?;

    let start = Start::now();
    for &key in &keys {
        let _ = index.insert(&key, !key)?;
    }
    report("insert", count, start);

    keys.shuffle(&mut random);
    let start = Start::now();
    let found = keys.iter().filter(|key| index.get(key) == Some(!**key)).count();
    report("get", count, start);
    assert_eq!(found, count);

    let start = Start::now();
    for &key in &keys {
        let _ = index.update(&key, key)?;
    }
    report("update", count, start);

    let start = Start::now();
    let mut visited = 0;
    index.for_each(&mut |_, _| {
        visited += 1;
        std::ops::ControlFlow::Continue(())
    });
    report("scan", count, start);
    assert_eq!(visited, count);

    let sizes = index.statistics();
    println!(
        "  depth {:.2} (at most {}), {} nodes, {:.1} bytes per key",
        sizes.mean_depth,
        sizes.max_depth,
        sizes.nodes,
        sizes.bytes as f64 / count as f64
    );

    let start = Start::now();
    for &key in &keys {
        let _ = index.remove(&key)?;
    }
    report("remove", count, start);
    Ok(())
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

fn report(what: &str, count: usize, start: Start) {
    let mops = |time: Duration| count as f64 / time.as_secs_f64() / 1e6;
    let processor = processor_time() - start.processor;
    println!("  {what:7} {:6.2} M/s {:6.2} M/s", mops(start.wall.elapsed()), mops(processor));
}
