//! How many modelled memory accesses one core does per second, and where the time goes.
//!
//! `cargo run --release -p lapis-device --example access_rate`
//!
//! The last column takes one thing away at a time: without counting at all, the lock and the memory
//! access remain. Figures are of the machine this runs on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lapis_device::{Config, MachineShape, Modelled};
use lapis_pmem::{Domain, Region};

const BYTES: usize = 64 << 20;
const ACCESSES: usize = 4_000_000;
const ROUNDS: usize = 3;

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

const PATTERNS: [Pattern; 7] = [
    Pattern { name: "load, in L1", word: |step| scattered(step, 2 << 10), access: load },
    Pattern { name: "load, in L2", word: |step| scattered(step, 64 << 10), access: load },
    Pattern { name: "load, in L3", word: |step| scattered(step, 2 << 20), access: load },
    Pattern { name: "load, 64 MiB at random", word: |step| scattered(step, 8 << 20), access: load },
    Pattern { name: "load, in order", word: |step| step & ((8 << 20) - 1), access: load },
    Pattern { name: "store, in L2", word: |step| scattered(step, 64 << 10), access: store },
    Pattern {
        name: "store, flush and fence, in L2",
        word: |step| scattered(step, 64 << 10),
        access: store_and_persist,
    },
];

/// The best of some rounds, in million steps per second.
fn rate(pattern: &Pattern, counting: Option<MachineShape>) -> f64 {
    let region = Region::anonymous(BYTES, BYTES).expect("64 MiB of memory");
    let machine = Modelled::over(&region, Config { counting, ..Config::default() });
    // SAFETY: inside the mapped region, aligned, only accessed atomically.
    let word = |index: usize| unsafe { &*region.base().add(index * 8).cast::<AtomicU64>() };
    let mut best = f64::INFINITY;
    for _ in 0..=ROUNDS {
        let begin = Instant::now();
        for step in 0..ACCESSES {
            (pattern.access)(&machine, word((pattern.word)(step)));
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    ACCESSES as f64 / best / 1e6
}

fn main() {
    println!("{:32} {:>14} {:>20}", "pattern", "counted, M/s", "not counted, M/s");
    for pattern in &PATTERNS {
        let counted = rate(pattern, Some(MachineShape::default()));
        let plain = rate(pattern, None);
        println!("{:32} {counted:14.1} {plain:20.1}", pattern.name);
    }
}
