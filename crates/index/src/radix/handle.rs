//! What an open tree keeps in the host's memory: the pool, the root, the writers' locks, and the names
//! of the words that are visible and may not be durable. And its leaves, which are the same in all.

use std::mem::offset_of;
use std::sync::Arc;

use lapis_pmem::{
    AllocError, Blocks, Committed, Dirty, Domain, Durable, GenerationLock, InFlight, Link, Mutant,
    Owned, Pool, Resident, SoleUse,
};

use super::digits::{Digits, Span};
use super::in_flight::InFlightPlaces;
use super::leaf::{Leaf, leaf_bytes, write_leaf};
use super::stripes::Stripes;
use super::word::Place;
use crate::IndexKind;
use crate::error::IndexError;
use crate::index::Change;
use crate::key::{IndexKey, KeyKind};
use crate::root::IndexRoot;

/// The newest layout that this code reads, and the one it writes.
const FORMAT_VERSION: u32 = 1;

/// An open radix tree, but for what its nodes are.
#[derive(Debug)]
pub struct Handle<D: Domain> {
    pub pool: Arc<Pool<D>>,
    pub root: Link<IndexRoot>,
    /// The same, for who follows it in every search.
    pub root_block: Resident<D, IndexRoot>,
    /// The root's `top`.
    pub top: Place,
    /// Held by whoever changes the nodes they stand for.
    pub stripes: Stripes,
    in_flight: InFlightPlaces,
    _alone: SoleUse<D>,
}

impl<D: Domain> Handle<D> {
    /// The root of an empty tree.
    #[track_caller]
    pub fn create(
        pool: &Pool<D>,
        kind: IndexKind,
        key_kind: KeyKind,
    ) -> Result<Owned<'_, D, IndexRoot, InFlight>, IndexError> {
        Self::create_with(pool, kind, key_kind, |_| ())
    }

    /// A root to which `add` adds what an empty tree has.
    #[track_caller]
    pub fn create_with<'p>(
        pool: &'p Pool<D>,
        kind: IndexKind,
        key_kind: KeyKind,
        add: impl FnOnce(&mut Owned<'p, D, IndexRoot, Dirty>),
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let mut root = pool.allocate::<IndexRoot>()?;
        root.init(pool.domain(), kind, key_kind, FORMAT_VERSION);
        add(&mut root);
        Ok(root.flush())
    }

    /// The tree whose root is at `root`.
    pub fn open(
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        kind: IndexKind,
        key_kind: KeyKind,
    ) -> Result<Self, IndexError> {
        let (_, alone) = IndexRoot::open_alone(&pool, root, kind, key_kind, FORMAT_VERSION)?;
        let top = Link::from_bits(root.offset() + offset_of!(IndexRoot, top) as u64);
        let (stripes, in_flight) = Default::default();
        let root_block = pool.resident(root);
        Ok(Self { pool, root, root_block, top, stripes, in_flight, _alone: alone })
    }

    /// Makes the one store of a change and persists it (I6): of the word that makes `new` reachable,
    /// all of which is durable (I1). The caller holds the stripes of the node that `place` is in and
    /// of every new one.
    #[inline]
    #[track_caller]
    pub fn publish<B: Blocks<Durable>>(
        &self,
        place: Place,
        new: B,
        word: impl FnOnce(&B) -> u64,
    ) -> Committed {
        let domain = self.pool.domain();
        // The store below is a release: whoever sees it sees the name.
        let named = self.in_flight.name(domain, place);
        let committed = self.pool.at(place).publish_word(domain, new, word).persist();
        // The processor keeps the order of these stores; a model of it does not see the last one.
        domain.synchronize();
        named.forget();
        committed
    }

    /// As [`Handle::publish`], if the word is still `current`: for who holds no lock. What it is
    /// then may have been stored on top of by others, whose words lead to it too.
    ///
    /// # Errors
    /// The blocks, if the word is another.
    #[inline]
    #[track_caller]
    pub fn publish_if<B: Blocks<Durable>>(
        &self,
        place: Place,
        current: u64,
        new: B,
        word: impl FnOnce(&B) -> u64,
    ) -> Result<Committed, B> {
        let domain = self.pool.domain();
        // The exchange below is a release: whoever sees it sees the name.
        let named = self.in_flight.name(domain, place);
        let forget = || {
            domain.synchronize();
            named.forget();
        };
        // An arm returns by itself: what is moved after both would be moved after the fence, too.
        match self.pool.at(place).publish_word_if(domain, current, new, word) {
            Ok(visible) => {
                let committed = visible.persist();
                forget();
                Ok(committed)
            }
            Err(rejected) => {
                forget();
                Err(rejected.blocks)
            }
        }
    }

    /// Makes durable what an answer may rest on of changes that are under way (I6). Called after the
    /// last load that it rests on, which was an acquire.
    #[inline(always)]
    pub fn persist_before_return(&self) {
        self.in_flight.make_durable(&self.pool);
    }

    /// The lock under which `top` changes, where nodes have locks.
    #[inline(always)]
    pub fn root_lock(&self) -> &GenerationLock {
        GenerationLock::in_word(&self.pool.at(self.root).words[0])
    }

    /// The answer, if there is nothing to change: what was there before, where the value is `present`. As a
    /// reader's, it rests on nothing that is not durable, but by the mutant. The caller has pinned the pool.
    #[inline(always)]
    pub fn answer(
        &self,
        change: Change,
        present: Option<Place>,
        unpersisted: Mutant,
    ) -> Option<Option<u64>> {
        let domain = self.pool.domain();
        let previous = match (change, present) {
            (Change::Insert(_), Some(place)) => Some(self.pool.at(place).load_acquire(domain)),
            (_, Some(_)) | (Change::Insert(_) | Change::Put(_), _) => return None,
            (Change::Update(_) | Change::Remove, _) => None,
        };
        let _mutant = domain.omitting(unpersisted);
        self.persist_before_return();
        Some(previous)
    }

    /// Writes and flushes a leaf; it is durable after the caller's next fence.
    #[inline(always)]
    #[track_caller]
    pub fn make_leaf<K: IndexKey + ?Sized, S: Span>(
        &self,
        key: &Digits<'_, K, S>,
        value: u64,
        missing_flush: Mutant,
    ) -> Result<Owned<'_, D, Leaf, InFlight>, AllocError> {
        let leaf = write_leaf(&self.pool, key, value)?;
        let _mutant = self.pool.domain().omitting(missing_flush);
        Ok(leaf.flush())
    }

    /// Gives a key another value, which is at `value_place`. Byte strings get another leaf: the word at `place`, which
    /// refers to theirs, becomes the one that `word` makes of it.
    #[inline]
    pub fn set_value<K: IndexKey + ?Sized, S: Span>(
        &self,
        key: &Digits<'_, K, S>,
        value: u64,
        [value_place, place]: [Place; 2],
        missing_flush: Mutant,
        word: impl FnOnce(Link<Leaf>) -> u64,
    ) -> Result<Committed, AllocError> {
        if K::INLINE {
            // I5: one store.
            return Ok(self.publish(value_place, (), |_| value));
        }
        // The value is the first word of a leaf.
        let leaf = value_place.cast();
        let replacement = self.make_leaf(key, value, missing_flush)?;
        // I1, and what the caller has flushed is durable before the value can be reached.
        let replacement = self.pool.fence(replacement);
        let committed = self.publish(place, replacement, |leaf| word(leaf.link()));
        self.retire_leaf(key, leaf, committed);
        Ok(committed)
    }

    /// Retires the leaf of `key`, which a store has unlinked that is durable (I7).
    #[inline]
    pub fn retire_leaf<K: IndexKey + ?Sized, S: Span>(
        &self,
        key: &Digits<'_, K, S>,
        leaf: Link<Leaf>,
        committed: Committed,
    ) {
        self.pool.retire(leaf, leaf_bytes(key), committed, &self.pool.pin());
    }
}
