//! The machine of these tests: this one, whose threads can be held up.

use std::sync::Arc;

use lapis_pmem::{HoldUps, Pool, Region, Watched};

use crate::at_fence::AtFence;

/// This machine, whose threads can be held up, and stopped at their fences. Structures are compiled for it once, and
/// tested on it whether they are or not.
pub type Here = Watched<(HoldUps, AtFence)>;

/// A pool in memory on it, of a MiB that can grow.
pub fn pool_in_memory() -> Arc<Pool<Here>> {
    let region = Region::anonymous(1 << 20, 1 << 30).unwrap();
    Arc::new(Pool::create(region, Here::new(Default::default())).unwrap())
}
