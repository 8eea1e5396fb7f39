//! A structure whose inner nodes are volatile, with these in the pool instead of in DRAM.

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::{
    Capabilities, Change, Direction, Index, IndexError, IndexFamily, IndexKey, IndexKind,
    IndexOptions, IndexRoot, InnerNodes, OrderedIndex, Outcome, Statistics,
};
use lapis_pmem::{Domain, InFlight, Link, Owned, Pool, Tracer};

/// The family `F`, whose structures are created so.
pub struct InPool<F>(PhantomData<F>);

impl<F: IndexFamily> IndexFamily for InPool<F> {
    const KIND: IndexKind = F::KIND;
    type Of<D: Domain, K: IndexKey + ?Sized> = InPoolIndex<F::Of<D, K>>;
}

/// The structure `I`, which is created so.
pub struct InPoolIndex<I>(I);

impl<D: Domain, K: IndexKey + ?Sized, I: Index<D, K>> Index<D, K> for InPoolIndex<I> {
    const KIND: IndexKind = I::KIND;
    const CAPABILITIES: Capabilities = I::CAPABILITIES;
    const TRACE_CHECKS: bool = I::TRACE_CHECKS;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        I::create(pool, &IndexOptions { inner_nodes: InnerNodes::Pm, ..options.clone() })
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        I::open(pool, root).map(Self)
    }

    fn pool(&self) -> &Arc<Pool<D>> {
        self.0.pool()
    }

    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        self.0.change(key, change)
    }

    fn get(&self, key: &K) -> Option<u64> {
        self.0.get(key)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        self.0.for_each(visit);
    }

    fn check(&self) -> Vec<String> {
        self.0.check()
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn trace(&self, tracer: &mut Tracer<'_, D>, value: &mut dyn FnMut(&mut Tracer<'_, D>, u64)) {
        self.0.trace(tracer, value);
    }
}

impl<D: Domain, K: IndexKey + ?Sized, I: OrderedIndex<D, K>> OrderedIndex<D, K> for InPoolIndex<I> {
    fn scan(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) {
        self.0.scan(from, direction, visit);
    }
}
