//! What is particular to WORT: its shapes, its costs and its answers while a writer is at work.

mod costs;
mod shapes;
mod threads;
mod watched;

use std::sync::Arc;

use lapis_index::{Index, IndexKey, IndexOptions, IndexRoot, Wort};
use lapis_pmem::{Domain, Link, Pool};

const NAME: &str = "wort";

/// Creates an index and publishes it as the root [`NAME`].
fn create<D: Domain, K: IndexKey + ?Sized>(pool: &Arc<Pool<D>>) -> Wort<D, K> {
    let root = Wort::<D, K>::create(pool, &IndexOptions::default()).unwrap();
    let root = pool.fence(root);
    let _ = pool.publish_root(NAME, 0, root).unwrap().persist();
    open(pool)
}

/// Opens the index that is the root [`NAME`].
fn open<D: Domain, K: IndexKey + ?Sized>(pool: &Arc<Pool<D>>) -> Wort<D, K> {
    let link: Link<IndexRoot> = pool.root(NAME).unwrap();
    Wort::open(Arc::clone(pool), link).unwrap()
}

/// Blocks that are allocated, all of which the index reaches.
fn audited_blocks<D: Domain, K: IndexKey + ?Sized>(index: &Wort<D, K>) -> u64 {
    let pool = index.pool();
    let traced = pool.trace(|tracer| index.trace(tracer, &mut |_, _| ()));
    let audit = pool.audit(&traced);
    assert!(audit.is_clean(), "{audit:?}");
    audit.allocated_blocks
}
