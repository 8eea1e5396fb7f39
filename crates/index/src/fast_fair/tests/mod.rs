//! Tests of the whole structure; those of one mechanism are in the modules below.

mod concurrency;
mod crash_states;
mod shape;

use std::sync::Arc;

use lapis_pmem::{Domain, Hardware, LockGeneration, Pool};

use super::FastFair;
use crate::index::{Index, IndexOptions};
use crate::key::IndexKey;

pub(super) type Ints = FastFair<Hardware, u64>;
pub(super) type Strings = FastFair<Hardware, [u8]>;

pub(super) fn pool() -> Arc<Pool<Hardware>> {
    Arc::new(Pool::create_anonymous(1 << 20).unwrap())
}

pub(super) fn create_in<D: Domain, K: IndexKey + ?Sized>(
    pool: &Arc<Pool<D>>,
    node_bytes: usize,
) -> FastFair<D, K> {
    let options = IndexOptions { node_bytes, ..IndexOptions::default() };
    FastFair::create_named(pool, "tree", &options).unwrap()
}

pub(super) fn ints(node_bytes: usize) -> Ints {
    create_in(&pool(), node_bytes)
}

pub(super) fn strings(node_bytes: usize) -> Strings {
    create_in(&pool(), node_bytes)
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    /// The same tree as it is after the pool has been opened again: every lock word is of an
    /// earlier generation.
    pub(super) fn reopened(&self, times: u64) -> Self {
        let mut tree = Self::open(Arc::clone(&self.pool), self.root).unwrap();
        tree.generation = LockGeneration::of(self.pool.generation() + times);
        tree
    }

    /// Fails unless the structure is sound and allocated blocks are reachable ones.
    pub(super) fn assert_sound(&self) {
        assert_eq!(self.check(), Vec::<String>::new());
        let reachable = self.pool.reachable(|visitor| self.visit_blocks(visitor, &mut |_, _| ()));
        let audit = self.pool.audit(&reachable);
        assert!(audit.is_clean(), "{audit:?}");
        assert_eq!(reachable.block_count(), self.statistics().blocks);
    }
}
