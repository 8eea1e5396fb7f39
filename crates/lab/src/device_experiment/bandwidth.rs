//! Bandwidth of loads and stores at random places, by how many bytes are accessed together and by
//! the number of threads. Nothing waits for anything, so that accesses overlap as far as the
//! machine lets them. Of each line one word is loaded; the whole line counts, because the whole
//! line is moved.

use super::machine::Method;
use super::point::{Experiment, Point};
use super::program::Task;

const METHODS: [Method; 5] =
    [Method::Load, Method::Store, Method::Clwb, Method::DcCvap, Method::Streaming];

/// Adjacent lines that are accessed together: around one and two media blocks, and more.
const GRANULARITIES_BYTES: [usize; 9] = [64, 128, 192, 256, 320, 512, 576, 1024, 4096];

/// The two chunk sizes at which threads are varied.
const CHUNKS_BYTES: [usize; 2] = [256, 1 << 20];

fn point(experiment: Experiment, method: Method, chunk_bytes: usize, threads: usize) -> Point {
    let task = Task::chunks(method, chunk_bytes);
    Point { experiment, task_name: None, task, method, threads, beside: None }
}

/// Bandwidth by granularity, on each of these numbers of threads.
pub fn granularity_points(threads: &[usize]) -> Vec<Point> {
    let mut points = Vec::new();
    for method in METHODS {
        for chunk_bytes in GRANULARITIES_BYTES {
            points.extend(threads.iter().map(|&threads| {
                point(Experiment::BandwidthByGranularity, method, chunk_bytes, threads)
            }));
        }
    }
    points
}

/// Bandwidth by threads.
pub fn thread_points(threads: &[usize]) -> Vec<Point> {
    let mut points = Vec::new();
    for method in METHODS {
        for chunk_bytes in CHUNKS_BYTES {
            points.extend(threads.iter().map(|&threads| {
                point(Experiment::BandwidthByThreads, method, chunk_bytes, threads)
            }));
        }
    }
    points
}
