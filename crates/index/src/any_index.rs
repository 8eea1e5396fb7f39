//! An index whose kind is chosen when it is made or opened.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Domain, Guard, Hardware, InFlight, Link, Owned, Pool};

use crate::IndexKind;
use crate::declaration::{IndexFamily, IndexOf};
use crate::entries_by_part::EntriesByPart;
use crate::index::{
    Capabilities, Change, Direction, Index, IndexError, IndexOptions, OnValue, Outcome, RoomNeeded,
    Statistics,
};
use crate::key::IndexKey;
use crate::leaf_entries::OnLeaf;
use crate::range::{Range, Visit, first_of};
use crate::root::IndexRoot;

/// Makes and opens indexes of any kind, for one machine and one kind of keys.
///
/// All structures are compiled where [`IndexMaker::HERE`] is named. A `static` of it has them once, for all crates that
/// use it, as [`INDEXES_HERE`].
#[derive(Debug)]
pub struct IndexMaker<D: Domain, K: IndexKey + ?Sized> {
    create: Create<D>,
    open: Open<D, K>,
}

/// Indexes of byte strings on this machine.
pub static INDEXES_HERE: IndexMaker<Hardware, [u8]> = IndexMaker::HERE;

type Create<D> = for<'p> fn(
    IndexKind,
    &'p Pool<D>,
    &IndexOptions,
) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError>;

type Open<D, K> = fn(
    IndexKind,
    Arc<Pool<D>>,
    Link<IndexRoot>,
    Option<usize>,
) -> Result<AnyIndex<D, K>, IndexError>;

impl<D: Domain, K: IndexKey + ?Sized> IndexMaker<D, K> {
    /// Of all structures, compiled where this is named.
    pub const HERE: Self = Self { create: create::<D, K>, open };

    /// [`Index::create`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::create`].
    pub fn create<'p>(
        &self,
        kind: IndexKind,
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        (self.create)(kind, pool, options)
    }

    /// [`Index::create_named`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::create_named`].
    pub fn create_named(
        &self,
        kind: IndexKind,
        pool: &Arc<Pool<D>>,
        name: &str,
        options: &IndexOptions,
    ) -> Result<AnyIndex<D, K>, IndexError> {
        let root = self.create(kind, pool, options)?;
        let root = IndexRoot::publish(pool, name, kind, root)?;
        self.open(kind, Arc::clone(pool), root)
    }

    /// [`Index::open`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::open`].
    pub fn open(
        &self,
        kind: IndexKind,
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
    ) -> Result<AnyIndex<D, K>, IndexError> {
        (self.open)(kind, pool, root, None)
    }

    /// [`Index::open_with_threads`] of a kind.
    ///
    /// # Errors
    /// As for [`Index::open`].
    pub fn open_with_threads(
        &self,
        kind: IndexKind,
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        threads: usize,
    ) -> Result<AnyIndex<D, K>, IndexError> {
        (self.open)(kind, pool, root, Some(threads))
    }
}

fn create<'p, D: Domain, K: IndexKey + ?Sized>(
    kind: IndexKind,
    pool: &'p Pool<D>,
    options: &IndexOptions,
) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
    with_index!(kind, |F| IndexOf::<F, D, K>::create(pool, options))
}

fn open<D: Domain, K: IndexKey + ?Sized>(
    kind: IndexKind,
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    threads: Option<usize>,
) -> Result<AnyIndex<D, K>, IndexError> {
    with_index!(kind, |F| {
        let index = match threads {
            None => Index::open(pool, root),
            Some(threads) => Index::open_with_threads(pool, root, threads),
        };
        Ok(Box::new(OfFamily::<F, D, K>(index?)) as AnyIndex<D, K>)
    })
}

/// An open index of any kind ([`IndexMaker`]).
pub type AnyIndex<D, K> = Box<dyn SomeIndex<D, K>>;

/// What of [`Index`] an open one does, without its type.
pub trait SomeIndex<D: Domain, K: IndexKey + ?Sized>: std::fmt::Debug + Send + Sync {
    /// Which kind it is, and what that can do.
    fn kind(&self) -> (IndexKind, Capabilities);

    /// [`Index::pool`].
    fn pool(&self) -> &Arc<Pool<D>>;

    /// [`Index::room_for`].
    fn room_for(&self, changes: usize) -> RoomNeeded;

    /// [`Index::put_off_growth`].
    fn put_off_growth(&self);

    /// [`Index::get`].
    fn get(&self, key: &K) -> Option<u64>;

    /// [`Index::get_pinned`].
    fn get_pinned(&self, key: &K, pinned: &Guard<'_, D>) -> Option<u64>;

    /// [`Index::get_many`].
    fn get_many(&self, keys: &[&K], answer: &mut dyn FnMut(usize, Option<u64>));

    /// [`Index::approach`].
    fn approach(&self, keys: &[&K]);

    /// [`Index::insert_many`].
    ///
    /// # Errors
    /// As for [`Index::insert_many`].
    fn insert_many(
        &self,
        entries: &[(&K, u64)],
        answer: &mut dyn FnMut(usize, Outcome),
    ) -> Result<(), IndexError>;

    /// [`Index::change`].
    ///
    /// # Errors
    /// As for [`Index::change`].
    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError>;

    /// [`IndexFamily::scan_leaves`].
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) -> bool;

    /// [`Index::for_each`].
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>);

    /// [`Index::for_each_by_part`].
    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>);

    /// [`Index::check`].
    fn check(&self) -> Vec<String>;

    /// [`Index::statistics`].
    fn statistics(&self) -> Statistics;

    /// [`Index::visit_blocks`].
    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>);
}

impl<D: Domain, K: IndexKey + ?Sized> dyn SomeIndex<D, K> {
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
}

/// An index of a family, with its type.
struct OfFamily<F: IndexFamily, D: Domain, K: IndexKey + ?Sized>(IndexOf<F, D, K>);

impl<F: IndexFamily, D: Domain, K: IndexKey + ?Sized> std::fmt::Debug for OfFamily<F, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AnyIndex").field(&F::KIND).finish()
    }
}

impl<F: IndexFamily, D: Domain, K: IndexKey + ?Sized> SomeIndex<D, K> for OfFamily<F, D, K> {
    fn kind(&self) -> (IndexKind, Capabilities) {
        (F::KIND, IndexOf::<F, D, K>::CAPABILITIES)
    }

    fn pool(&self) -> &Arc<Pool<D>> {
        self.0.pool()
    }

    fn room_for(&self, changes: usize) -> RoomNeeded {
        self.0.room_for(changes)
    }

    fn put_off_growth(&self) {
        self.0.put_off_growth();
    }

    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key)
    }

    fn get_pinned(&self, key: &K, pinned: &Guard<'_, D>) -> Option<u64> {
        self.0.get_pinned(key, pinned)
    }

    fn get_many(&self, keys: &[&K], answer: &mut dyn FnMut(usize, Option<u64>)) {
        self.0.get_many(keys, answer);
    }

    fn approach(&self, keys: &[&K]) {
        self.0.approach(keys);
    }

    fn insert_many(
        &self,
        entries: &[(&K, u64)],
        answer: &mut dyn FnMut(usize, Outcome),
    ) -> Result<(), IndexError> {
        self.0.insert_many(entries, answer)
    }

    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        self.0.change(key, change)
    }

    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) -> bool {
        F::scan_leaves(&self.0, from, direction, visit)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        self.0.for_each(visit);
    }

    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>) {
        self.0.for_each_by_part(visitor);
    }

    fn check(&self) -> Vec<String> {
        self.0.check()
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        self.0.visit_blocks(visitor, value);
    }
}
