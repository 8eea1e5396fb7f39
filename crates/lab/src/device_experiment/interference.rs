//! Interference of the four tasks of a database: what table scans and index lookups lose when one
//! of the tasks runs beside them.
//!
//! All of them work on the one memory there is: the publication's columns for volatile memory have
//! no counterpart on a machine or a profile with one kind of memory.

use super::arena::Pattern;
use super::machine::Method;
use super::point::{Beside, Experiment, Figures, Point};
use super::program::{Access, Task};

/// Bytes of a log entry, with its fence.
const LOG_ENTRY_BYTES: usize = 64;
/// Bytes of a page, with its fence.
const PAGE_BYTES: usize = 16 * 1024;

/// Reads everything, in order.
const SCAN: (&str, Task, Method) = (
    "scan",
    Task { access: Access::Load, pattern: Pattern::Sequential, chunk_bytes: 4096, fenced: false },
    Method::Load,
);
/// Reads lines at random places.
const LOOKUP: (&str, Task, Method) = (
    "lookup",
    Task { access: Access::Load, pattern: Pattern::Random, chunk_bytes: 64, fenced: false },
    Method::Load,
);
/// Persists small entries, one after the other.
const LOG: (&str, Task, Method) = (
    "log",
    Task {
        access: Access::Stream,
        pattern: Pattern::Sequential,
        chunk_bytes: LOG_ENTRY_BYTES,
        fenced: true,
    },
    Method::Streaming,
);
/// Persists pages at random places.
const PAGE: (&str, Task, Method) = (
    "page",
    Task {
        access: Access::Stream,
        pattern: Pattern::Random,
        chunk_bytes: PAGE_BYTES,
        fenced: true,
    },
    Method::Streaming,
);

/// Scans and lookups on so many threads, alone and beside each task on so many others.
pub fn points(threads: usize, beside_threads: &[usize]) -> Vec<Point> {
    let mut points = Vec::new();
    for (task_name, task, method) in [SCAN, LOOKUP] {
        let alone = Point {
            experiment: Experiment::Interference,
            task_name: Some(task_name),
            task,
            method,
            threads,
            beside: None,
        };
        points.push(alone);
        for (name, task, method) in [SCAN, LOOKUP, LOG, PAGE] {
            points.extend(beside_threads.iter().map(|&threads| {
                let beside = Some(Beside { name, task, method, threads });
                Point { beside, ..alone }
            }));
        }
    }
    points
}

/// `figures` with what is lost of the bandwidth that the task has `alone`.
pub fn with_slowdown(figures: Figures, alone: Figures) -> Figures {
    let slowdown_percent = match (figures.gb_s, alone.gb_s) {
        (Some(beside), Some(alone)) if alone > 0.0 => Some(100.0 * (1.0 - beside / alone)),
        _ => None,
    };
    Figures { slowdown_percent, ..figures }
}
