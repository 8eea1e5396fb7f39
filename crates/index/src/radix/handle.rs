//! What an open radix tree keeps in the host's memory: the pool, the root, the writers' lock, and
//! the name of the one word that is visible and may not be durable.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Committed, Domain, InFlight, Link, Owned, Pool};
use parking_lot::Mutex;

use super::tree::Place;
use crate::index::IndexError;
use crate::root::{IndexKind, IndexRoot, KeyKind};

/// The newest layout that this code reads, and the one it writes.
const FORMAT_VERSION: u32 = 1;

/// An open radix tree, but for what its nodes are.
#[derive(Debug)]
pub struct Handle<D: Domain> {
    pub pool: Arc<Pool<D>>,
    pub root: Link<IndexRoot>,
    /// The root's `top`.
    pub top: Place,
    /// Held by whoever changes the tree.
    pub writer: Mutex<()>,
    in_flight: InFlightPlace,
}

/// The offset of the one word that is visible and may not be durable, or zero (I6). On a line of
/// its own, since every reader reads it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct InFlightPlace(AtomicU64);

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
        let in_flight = InFlightPlace::default();
        Ok(Self { pool, root, top, writer: Mutex::new(()), in_flight })
    }

    /// Makes the one store of a change and persists it (I6). The caller holds the writers' lock and
    /// everything that `word` leads to is durable (I1).
    #[inline]
    #[track_caller]
    pub fn publish(&self, place: Place, word: u64) -> Committed {
        // The store below is a release: whoever sees it sees the place.
        self.in_flight.0.store(place.offset(), Ordering::Relaxed);
        let committed = self.pool.at(place).publish(self.pool.domain(), word).persist();
        // The processor keeps the order of these stores; a model of it does not see the last one.
        self.pool.domain().synchronize();
        self.in_flight.0.store(0, Ordering::Release);
        committed
    }

    /// Makes durable what a reader may have seen of a change that is under way: at most one word
    /// (I6). Called after the last load an answer rests on, which was an acquire.
    #[inline(always)]
    pub fn persist_before_return(&self) {
        let place = self.in_flight.0.load(Ordering::Acquire);
        if place != 0 {
            self.persist_in_flight(Link::from_bits(place));
        }
    }

    #[cold]
    fn persist_in_flight(&self, place: Place) {
        self.pool.domain().flush(self.pool.at(place));
        self.pool.domain().fence();
    }
}
