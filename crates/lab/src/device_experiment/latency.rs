//! Latency of loads and of persists: one worker, lines of 64 bytes.
//!
//! A load's address is what the load before it read, so that no two overlap. A persist writes a
//! whole line, flushes it if the method has a flush, and fences.

use super::arena::Pattern;
use super::machine::Method;
use super::point::{Experiment, Point};
use super::program::Task;

const PATTERNS: [Pattern; 3] = [Pattern::Same, Pattern::Sequential, Pattern::Random];

/// The ways to make a line durable.
pub(super) const PERSIST_METHODS: [Method; 5] =
    [Method::Clflush, Method::ClflushOpt, Method::Clwb, Method::DcCvap, Method::Streaming];

/// The points of these experiments.
pub fn points() -> Vec<Point> {
    let reads = PATTERNS.map(|pattern| Point {
        experiment: Experiment::ReadLatency,
        task_name: None,
        task: Task::chase(pattern),
        method: Method::Load,
        threads: 1,
        beside: None,
    });
    let persists = PATTERNS.into_iter().flat_map(|pattern| {
        PERSIST_METHODS.map(|method| Point {
            experiment: Experiment::PersistLatency,
            task_name: None,
            task: Task::persist(pattern, method),
            method,
            threads: 1,
            beside: None,
        })
    });
    reads.into_iter().chain(persists).collect()
}
