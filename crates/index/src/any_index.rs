//! An index whose kind is chosen when it is created.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{Domain, InFlight, Link, Owned, Pool, Tracer};

use crate::index::{Capabilities, Direction, Index, IndexError, IndexOptions, Outcome, Statistics};
use crate::key::IndexKey;
use crate::root::IndexRoot;
use crate::{AnyIndex, IndexFamily, IndexKind, IndexOf};

impl<D: Domain, K: IndexKey + ?Sized> AnyIndex<D, K> {
    /// [`Index::create`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::create`].
    pub fn create<'p>(
        kind: IndexKind,
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        with_index!(kind, |F| IndexOf::<F, D, K>::create(pool, options))
    }

    /// [`Index::open`] of whichever kind the root is.
    ///
    /// # Errors
    /// As for [`Index::open`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        match IndexRoot::kind_of(&pool, root) {
            Some(kind) => Self::open_kind(kind, pool, root),
            None => Err(IndexError::Damaged { what: "its root is of no kind known here".into() }),
        }
    }

    /// Which kind it is, and what that can do.
    pub fn kind(&self) -> (IndexKind, Capabilities) {
        each_index!(self, |F, _index| (F::KIND, IndexOf::<F, D, K>::CAPABILITIES))
    }

    /// [`Index::get`].
    #[inline]
    pub fn get(&self, key: &K) -> Option<u64> {
        each_index!(self, |F, index| index.get(key))
    }

    /// [`Index::put`].
    ///
    /// # Errors
    /// As for [`Index::put`].
    pub fn put(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        each_index!(self, |F, index| index.put(key, value))
    }

    /// [`Index::remove`].
    ///
    /// # Errors
    /// As for [`Index::remove`].
    pub fn remove(&self, key: &K) -> Result<Outcome, IndexError> {
        each_index!(self, |F, index| index.remove(key))
    }

    /// [`IndexFamily::scan`].
    pub fn scan(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) -> bool {
        each_index!(self, |F, index| F::scan(index, from, direction, visit))
    }

    /// [`Index::for_each`].
    pub fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        each_index!(self, |F, index| index.for_each(visit));
    }

    /// [`Index::check`].
    pub fn check(&self) -> Vec<String> {
        each_index!(self, |F, index| index.check())
    }

    /// [`Index::statistics`].
    pub fn statistics(&self) -> Statistics {
        each_index!(self, |F, index| index.statistics())
    }

    /// [`Index::trace`].
    pub fn trace(
        &self,
        tracer: &mut Tracer<'_, D>,
        value: &mut dyn FnMut(&mut Tracer<'_, D>, u64),
    ) {
        each_index!(self, |F, index| index.trace(tracer, value));
    }
}
