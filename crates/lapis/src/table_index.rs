//! A table's index: one of the structures, chosen when the table was created.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::{
    ArtCow, Direction, FastFair, FpTree, Index, IndexError, IndexKind, IndexOptions, IndexRoot,
    NvTree, OrderedIndex, Outcome, PClht, Statistics, WbTree, WbTreeSlot, Woart, Wort,
};
use lapis_pmem::{Domain, InFlight, Link, Owned, Pool, Tracer};

/// The structures, over byte-string keys.
#[derive(Debug)]
pub(crate) enum TableIndex<D: Domain> {
    Wort(Wort<D, [u8]>),
    FastFair(FastFair<D, [u8]>),
    PClht(PClht<D, [u8]>),
    Woart(Woart<D, [u8]>),
    ArtCow(ArtCow<D, [u8]>),
    WbTree(WbTree<D, [u8]>),
    WbTreeSlot(WbTreeSlot<D, [u8]>),
    NvTree(NvTree<D, [u8]>),
    /// Its volatile parts are larger than the others'.
    FpTree(Box<FpTree<D, [u8]>>),
}

macro_rules! each {
    ($index:expr, $inner:ident => $body:expr) => {
        match $index {
            TableIndex::Wort($inner) => $body,
            TableIndex::FastFair($inner) => $body,
            TableIndex::PClht($inner) => $body,
            TableIndex::Woart($inner) => $body,
            TableIndex::ArtCow($inner) => $body,
            TableIndex::WbTree($inner) => $body,
            TableIndex::WbTreeSlot($inner) => $body,
            TableIndex::NvTree($inner) => $body,
            TableIndex::FpTree(boxed) => {
                let $inner = boxed.as_ref();
                $body
            }
        }
    };
}

impl<D: Domain> TableIndex<D> {
    pub(crate) fn create<'p>(
        kind: IndexKind,
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        match kind {
            IndexKind::Wort => Wort::<D, [u8]>::create(pool, options),
            IndexKind::FastFair => FastFair::<D, [u8]>::create(pool, options),
            IndexKind::PClht => PClht::<D, [u8]>::create(pool, options),
            IndexKind::Woart => Woart::<D, [u8]>::create(pool, options),
            IndexKind::ArtCow => ArtCow::<D, [u8]>::create(pool, options),
            IndexKind::WbTree => WbTree::<D, [u8]>::create(pool, options),
            IndexKind::WbTreeSlot => WbTreeSlot::<D, [u8]>::create(pool, options),
            IndexKind::NvTree => NvTree::<D, [u8]>::create(pool, options),
            IndexKind::FpTree => FpTree::<D, [u8]>::create(pool, options),
            other => {
                Err(IndexError::BadOption { what: format!("tables cannot be held by {other} yet") })
            }
        }
    }

    pub(crate) fn open(pool: &Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let pool = Arc::clone(pool);
        match IndexRoot::kind_of(&pool, root) {
            Some(IndexKind::Wort) => Wort::open(pool, root).map(Self::Wort),
            Some(IndexKind::FastFair) => FastFair::open(pool, root).map(Self::FastFair),
            Some(IndexKind::PClht) => PClht::open(pool, root).map(Self::PClht),
            Some(IndexKind::Woart) => Woart::open(pool, root).map(Self::Woart),
            Some(IndexKind::ArtCow) => ArtCow::open(pool, root).map(Self::ArtCow),
            Some(IndexKind::WbTree) => WbTree::open(pool, root).map(Self::WbTree),
            Some(IndexKind::WbTreeSlot) => WbTreeSlot::open(pool, root).map(Self::WbTreeSlot),
            Some(IndexKind::NvTree) => NvTree::open(pool, root).map(Self::NvTree),
            Some(IndexKind::FpTree) => {
                FpTree::open(pool, root).map(|index| Self::FpTree(Box::new(index)))
            }
            _ => Err(IndexError::Damaged { what: "its root is of no kind known here".into() }),
        }
    }

    pub(crate) fn kind(&self) -> IndexKind {
        match self {
            Self::Wort(_) => IndexKind::Wort,
            Self::FastFair(_) => IndexKind::FastFair,
            Self::PClht(_) => IndexKind::PClht,
            Self::Woart(_) => IndexKind::Woart,
            Self::ArtCow(_) => IndexKind::ArtCow,
            Self::WbTree(_) => IndexKind::WbTree,
            Self::WbTreeSlot(_) => IndexKind::WbTreeSlot,
            Self::NvTree(_) => IndexKind::NvTree,
            Self::FpTree(_) => IndexKind::FpTree,
        }
    }

    pub(crate) fn is_ordered(&self) -> bool {
        fn of<D: Domain, I: Index<D, [u8]>>(_: &I) -> bool {
            I::CAPABILITIES.ordered
        }
        each!(self, index => of(index))
    }

    /// Whether a value block that the caller has only flushed is safe to pass to a put.
    pub(crate) fn orders_prior_flushes(&self) -> bool {
        fn of<D: Domain, I: Index<D, [u8]>>(_: &I) -> bool {
            I::CAPABILITIES.orders_prior_flushes
        }
        each!(self, index => of(index))
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<u64> {
        each!(self, index => index.get(key))
    }

    pub(crate) fn put(&self, key: &[u8], value: u64) -> Result<Outcome, IndexError> {
        each!(self, index => index.put(key, value))
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Result<Outcome, IndexError> {
        each!(self, index => index.remove(key))
    }

    /// Visits entries from `from` on; none if the index has no order.
    pub(crate) fn scan(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>,
    ) -> Option<()> {
        match self {
            Self::Wort(index) => index.scan(from, direction, visit),
            Self::FastFair(index) => index.scan(from, direction, visit),
            Self::NvTree(index) => index.scan(from, direction, visit),
            Self::FpTree(index) => index.scan(from, direction, visit),
            Self::Woart(index) => index.scan(from, direction, visit),
            Self::ArtCow(index) => index.scan(from, direction, visit),
            Self::WbTree(index) => index.scan(from, direction, visit),
            Self::WbTreeSlot(index) => index.scan(from, direction, visit),
            Self::PClht(_) => return None,
        }
        Some(())
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>) {
        each!(self, index => index.for_each(visit));
    }

    pub(crate) fn check(&self) -> Vec<String> {
        each!(self, index => index.check())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        each!(self, index => index.statistics())
    }

    pub(crate) fn trace(
        &self,
        tracer: &mut Tracer<'_, D>,
        value: &mut dyn FnMut(&mut Tracer<'_, D>, u64),
    ) {
        each!(self, index => index.trace(tracer, value));
    }
}
