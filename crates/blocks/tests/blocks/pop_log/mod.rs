//! PopLog from outside: its segments, its torn entries, its flushes and fences counted.

mod counts;
mod segments;
mod torn;

use lapis_blocks::log::{Log as _, LogError};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_pmem::{Domain, Pool};
use std::sync::Arc;

use crate::ROOT;

/// Creates a log, publishes it and opens it.
fn create<D: Domain>(pool: &Arc<Pool<D>>, options: PopLogOptions) -> PopLog<D> {
    PopLog::create_named(pool, ROOT, options).unwrap()
}

fn open<D: Domain>(pool: &Arc<Pool<D>>) -> Result<PopLog<D>, LogError> {
    crate::open(pool)
}
