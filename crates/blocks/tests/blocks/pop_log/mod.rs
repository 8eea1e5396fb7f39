//! PopLog from outside: its segments, torn by hand, its flushes and fences counted.

mod counts;
mod segments;
mod torn;

use lapis_blocks::log::{Log as _, LogError, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_pmem::{Domain, Pool};
use std::sync::Arc;

const ROOT: &str = "log";

/// Creates a log, publishes it and opens it.
fn create<D: Domain>(pool: &Arc<Pool<D>>, options: PopLogOptions) -> PopLog<D> {
    PopLog::create_named(pool, ROOT, options).unwrap()
}

fn open<D: Domain>(pool: &Arc<Pool<D>>) -> Result<PopLog<D>, LogError> {
    let root = pool.root::<PopLogRoot>(ROOT).expect("the log has been published");
    PopLog::open(Arc::clone(pool), root)
}

fn contents<D: Domain>(log: &PopLog<D>) -> Vec<(Position, Vec<u8>)> {
    log.iter().map(Result::unwrap).collect()
}
