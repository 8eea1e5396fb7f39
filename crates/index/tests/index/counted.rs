//! An index that says what its operations cost.

use std::sync::Arc;

use lapis_device::{Config, Modelled};
use lapis_index::{AnyIndex, IndexKey, IndexKind, IndexMaker, IndexOptions};
use lapis_pmem::{Pool, Region};

/// A pool of `bytes` on the modelled machine, for which structures are compiled already. What it counts is the same in
/// every run.
pub fn modelled_pool(bytes: usize) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(bytes, 256 << 20).unwrap();
    let machine = Modelled::over(&region, Config::counting());
    Arc::new(Pool::create(region, machine).unwrap())
}

/// An index whose operations say what they cost: lines flushed, and fences.
pub struct Counted<K: IndexKey + ?Sized>(pub AnyIndex<Modelled, K>);

impl<K: IndexKey + ?Sized> Counted<K> {
    pub fn new(kind: IndexKind) -> Self {
        Self::with(kind, &IndexOptions::default())
    }

    pub fn with(kind: IndexKind, options: &IndexOptions) -> Self {
        Self(
            IndexMaker::HERE.create_named(kind, &modelled_pool(4 << 20), "index", options).unwrap(),
        )
    }

    /// With nodes of so many bytes.
    pub fn with_nodes(kind: IndexKind, node_bytes: usize) -> Self {
        Self::with(kind, &IndexOptions { node_bytes, ..IndexOptions::default() })
    }

    /// The same with these keys.
    pub fn holding<'k>(self, keys: impl IntoIterator<Item = &'k K>) -> Self {
        keys.into_iter().for_each(|key| _ = self.insert(key));
        self
    }

    /// The same when keys have come and gone: no allocation of such blocks costs a flush of its own.
    pub fn warm<'k>(self, keys: impl IntoIterator<Item = &'k K> + Clone) -> Self {
        keys.clone().into_iter().for_each(|key| _ = self.insert(key));
        keys.into_iter().for_each(|key| _ = self.remove(key));
        self
    }

    /// Of whatever is done.
    pub fn cost<R>(&self, action: impl FnOnce(&AnyIndex<Modelled, K>) -> R) -> (u64, u64) {
        let machine = self.0.pool().domain();
        let before = machine.counts();
        let _ = action(&self.0);
        let cost = machine.counts() - before;
        (cost.flushes, cost.fences)
    }

    pub fn insert(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.insert(key, 1).unwrap())
    }

    pub fn update(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.update(key, 2).unwrap())
    }

    pub fn put(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.put(key, 3).unwrap())
    }

    pub fn remove(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.remove(key).unwrap())
    }
}
