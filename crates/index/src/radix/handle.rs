//! What an open radix tree keeps in the host's memory: the pool, the root, the writers' locks, and
//! the names of the words that are visible and may not be durable.

use std::mem::offset_of;
use std::sync::Arc;

use lapis_pmem::{Blocks, Committed, Domain, Durable, InFlight, Link, Owned, Pool};

use super::in_flight::InFlightPlaces;
use super::stripes::Stripes;
use super::word::Place;
use crate::IndexKind;
use crate::error::IndexError;
use crate::key::KeyKind;
use crate::root::IndexRoot;

/// The newest layout that this code reads, and the one it writes.
const FORMAT_VERSION: u32 = 1;

/// An open radix tree, but for what its nodes are.
#[derive(Debug)]
pub struct Handle<D: Domain> {
    pub pool: Arc<Pool<D>>,
    pub root: Link<IndexRoot>,
    /// The root's `top`.
    pub top: Place,
    /// Held by whoever changes the nodes they stand for.
    pub stripes: Stripes,
    in_flight: InFlightPlaces,
}

impl<D: Domain> Handle<D> {
    /// The root of an empty tree.
    #[track_caller]
    pub fn create(
        pool: &Pool<D>,
        kind: IndexKind,
        key_kind: KeyKind,
    ) -> Result<Owned<'_, D, IndexRoot, InFlight>, IndexError> {
        let root = pool.allocate::<IndexRoot>()?;
        root.init(pool.domain(), kind, key_kind, FORMAT_VERSION);
        Ok(root.flush())
    }

    /// The tree whose root is at `root`.
    pub fn open(
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        kind: IndexKind,
        key_kind: KeyKind,
    ) -> Result<Self, IndexError> {
        IndexRoot::open(&pool, root, kind, key_kind, FORMAT_VERSION)?;
        let top = Link::from_bits(root.offset() + offset_of!(IndexRoot, top) as u64);
        let (stripes, in_flight) = Default::default();
        Ok(Self { pool, root, top, stripes, in_flight })
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

    /// Makes durable what an answer may rest on of changes that are under way (I6). Called after the
    /// last load that it rests on, which was an acquire.
    #[inline(always)]
    pub fn persist_before_return(&self) {
        self.in_flight.make_durable(&self.pool);
    }
}
