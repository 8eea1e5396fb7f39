//! Programs as logical workers that take turns by virtual time.
//!
//! Of all workers the one whose clock is behind goes next, so that what they do overlaps as it
//! would on as many cores, and the same program gives the same figures on every run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lapis_device::set_current_worker;
use lapis_pmem::Domain;

use super::machine::{Effort, Progress};
use super::program::Program;

/// Workers that the modelled machine can tell apart.
pub const MOST_WORKERS: usize = 256;

/// Runs the programs side by side. `now_ns` tells the time of the worker whose turn it is.
pub fn run_by_virtual_time<D: Domain>(
    mut programs: Vec<Program<'_, D>>,
    effort: Effort,
    now_ns: impl Fn() -> u64,
) -> Vec<Progress> {
    let workers = programs.len();
    let warm_up_bytes = effort.warm_up_bytes / workers.max(1);
    let mut warm = vec![0; workers];
    let clock_of = |worker: usize| {
        set_current_worker(worker as u8);
        now_ns()
    };
    let mut turns: BinaryHeap<_> =
        (0..workers).map(|worker| Reverse((clock_of(worker), worker))).collect();
    while let Some(Reverse((_, worker))) = turns.pop() {
        set_current_worker(worker as u8);
        if warm[worker] < warm_up_bytes {
            warm[worker] += programs[worker].step();
            turns.push(Reverse((now_ns(), worker)));
        }
    }
    // Everybody is measured from the moment when the last has warmed up.
    let start_ns = (0..workers).map(clock_of).max().unwrap_or_default();
    let mut started: Vec<Option<u64>> = vec![None; workers];
    let mut progress = vec![Progress::default(); workers];
    turns.extend((0..workers).map(|worker| Reverse((clock_of(worker), worker))));
    while let Some(Reverse((before_ns, worker))) = turns.pop() {
        set_current_worker(worker as u8);
        let counts = before_ns >= start_ns;
        if counts {
            let began_ns = *started[worker].get_or_insert(before_ns);
            if before_ns - began_ns >= effort.duration_ns {
                programs[worker].finish();
                let found = &mut progress[worker];
                found.elapsed_ns = now_ns() - began_ns;
                found.step_ns = found.elapsed_ns as f64 / found.steps.max(1) as f64;
                continue;
            }
        }
        let bytes = programs[worker].step();
        let after_ns = now_ns();
        if counts {
            progress[worker].steps += 1;
            progress[worker].bytes += bytes as u64;
        }
        turns.push(Reverse((after_ns, worker)));
    }
    set_current_worker(0);
    progress
}
