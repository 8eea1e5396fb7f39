//! An index whose kind is chosen when it is created.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Domain, Guard, InFlight, Link, Owned, Pool};

use crate::entries_by_part::EntriesByPart;
use crate::index::{
    Capabilities, Change, Direction, Index, IndexError, IndexOptions, OnValue, Outcome, Statistics,
};
use crate::key::IndexKey;
use crate::leaf_entries::OnLeaf;
use crate::range::{Range, Visit, first_of};
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

    /// [`Index::create_named`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::create_named`].
    pub fn create_named(
        kind: IndexKind,
        pool: &Arc<Pool<D>>,
        name: &str,
        options: &IndexOptions,
    ) -> Result<Self, IndexError> {
        let root = Self::create(kind, pool, options)?;
        let root = IndexRoot::publish(pool, name, kind, root)?;
        Self::open_kind(kind, Arc::clone(pool), root)
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

    /// [`Index::pool`].
    pub fn pool(&self) -> &Arc<Pool<D>> {
        each_index!(self, |F, index| index.pool())
    }

    /// [`Index::get`].
    pub fn get(&self, key: &K) -> Option<u64> {
        each_index!(self, |F, index| index.get(key))
    }

    /// [`Index::get_pinned`].
    pub fn get_pinned(&self, key: &K, pinned: &Guard<'_, D>) -> Option<u64> {
        each_index!(self, |F, index| index.get_pinned(key, pinned))
    }

    /// [`Index::get_many`].
    pub fn get_many(&self, keys: &[&K], answer: &mut dyn FnMut(usize, Option<u64>)) {
        each_index!(self, |F, index| index.get_many(keys, answer));
    }

    /// [`Index::approach`].
    pub fn approach(&self, keys: &[&K]) {
        each_index!(self, |F, index| index.approach(keys));
    }

    /// [`Index::insert_many`].
    ///
    /// # Errors
    /// As for [`Index::insert_many`].
    pub fn insert_many(
        &self,
        entries: &[(&K, u64)],
        answer: &mut dyn FnMut(usize, Outcome),
    ) -> Result<(), IndexError> {
        each_index!(self, |F, index| index.insert_many(entries, answer))
    }

    /// [`Index::change`].
    ///
    /// # Errors
    /// As for [`Index::change`].
    pub fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        each_index!(self, |F, index| index.change(key, change))
    }

    /// [`Index::insert`].
    ///
    /// # Errors
    /// As for [`Index::insert`].
    pub fn insert(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Insert(value))
    }

    /// [`Index::update`].
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn update(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Update(value))
    }

    /// [`Index::put`].
    ///
    /// # Errors
    /// As for [`Index::put`].
    pub fn put(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Put(value))
    }

    /// [`Index::remove`].
    ///
    /// # Errors
    /// As for [`Index::remove`].
    pub fn remove(&self, key: &K) -> Result<Outcome, IndexError> {
        self.change(key, Change::Remove)
    }

    /// [`IndexFamily::scan_leaves`].
    pub fn scan_leaves(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: OnLeaf<'_, D, K>,
    ) -> bool {
        each_index!(self, |F, index| F::scan_leaves(index, from, direction, visit))
    }

    /// [`IndexFamily::scan`].
    pub fn scan<V>(&self, from: Bound<&K>, direction: Direction, visit: &mut V) -> bool
    where
        V: FnMut(&K, u64) -> ControlFlow<()> + ?Sized,
    {
        self.scan_leaves(from, direction, &mut |leaf| leaf.for_each(visit))
    }

    /// [`OrderedIndex::range`](crate::OrderedIndex::range); empty if the structure has no order.
    pub fn range(&self, lower: Bound<&K>, upper: Bound<&K>, direction: Direction) -> Range<'_, K> {
        let scan = move |from: Bound<&K>, visit: &mut Visit<'_, K>| {
            self.scan(from, direction, visit);
        };
        Range::new(Box::new(scan), lower, upper, direction)
    }

    /// The entry at which a scan of everything in this direction begins.
    pub fn first(&self, direction: Direction) -> Option<(K::Buf, u64)> {
        first_of(|visit| _ = self.scan(Bound::Unbounded, direction, visit))
    }

    /// [`Index::for_each`].
    pub fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        each_index!(self, |F, index| index.for_each(visit));
    }

    /// [`Index::for_each_by_part`].
    pub fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>) {
        each_index!(self, |F, index| index.for_each_by_part(visitor));
    }

    /// [`Index::check`].
    pub fn check(&self) -> Vec<String> {
        each_index!(self, |F, index| index.check())
    }

    /// [`Index::statistics`].
    pub fn statistics(&self) -> Statistics {
        each_index!(self, |F, index| index.statistics())
    }

    /// [`Index::visit_blocks`].
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        each_index!(self, |F, index| index.visit_blocks(visitor, value));
    }
}
