//! An index of any structure, for which the subjects are compiled once per kind of keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_device::Modelled;
use lapis_index::{
    Change, EntriesByPart, Index, IndexError, IndexKey, IndexOptions, IndexRoot, Outcome,
};
use lapis_pmem::{Guard, InFlight, Link, Owned, Pool, Tracer};

use crate::subject::text;

/// The name of the root.
const ROOT: &str = "index";

/// What is done with an open [`Index`].
pub trait OpenIndex<K: IndexKey + ?Sized>: Send + Sync {
    fn pool(&self) -> &Arc<Pool<Modelled>>;
    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError>;
    fn get_pinned(&self, key: &K, pinned: &Guard<'_, Modelled>) -> Option<u64>;
    fn get(&self, key: &K) -> Option<u64>;
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>);
    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>);
    fn check(&self) -> Vec<String>;
    /// [`Index::trace`], in which values refer to nothing.
    fn trace(&self, tracer: &mut Tracer<'_, Modelled>);
}

impl<I: Index<Modelled, K>, K: IndexKey + ?Sized> OpenIndex<K> for I {
    fn pool(&self) -> &Arc<Pool<Modelled>> {
        Index::pool(self)
    }
    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        Index::change(self, key, change)
    }
    fn get_pinned(&self, key: &K, pinned: &Guard<'_, Modelled>) -> Option<u64> {
        Index::get_pinned(self, key, pinned)
    }
    fn get(&self, key: &K) -> Option<u64> {
        Index::get(self, key)
    }
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        Index::for_each(self, visit);
    }
    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>) {
        Index::for_each_by_part(self, visitor);
    }
    fn check(&self) -> Vec<String> {
        Index::check(self)
    }
    fn trace(&self, tracer: &mut Tracer<'_, Modelled>) {
        Index::trace(self, tracer, &mut |_, _| {});
    }
}

type Created<'p> = Result<Owned<'p, Modelled, IndexRoot, InFlight>, IndexError>;
type Opened<K> = Result<Box<dyn OpenIndex<K>>, IndexError>;

/// How a structure is created and opened, and what is asked of its type.
#[derive(Debug)]
pub(crate) struct IndexType<K: IndexKey + ?Sized> {
    create: for<'p> fn(&'p Pool<Modelled>, &IndexOptions) -> Created<'p>,
    open: fn(Arc<Pool<Modelled>>, Link<IndexRoot>) -> Opened<K>,
    pub(crate) ordered: bool,
    pub(crate) trace_checks: bool,
    pub(crate) walks_by_parts: bool,
}

/// Traces the index from the root that the pool names.
pub(crate) fn trace_from_root<K: IndexKey + ?Sized>(
    index: &dyn OpenIndex<K>,
) -> impl FnOnce(&mut Tracer<'_, Modelled>) {
    let is_gone = index.pool().root::<IndexRoot>(ROOT).is_none();
    move |tracer| {
        if is_gone {
            tracer.problem("the root is gone");
        }
        index.trace(tracer);
    }
}

impl<K: IndexKey + ?Sized> Clone for IndexType<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: IndexKey + ?Sized> Copy for IndexType<K> {}

impl<K: IndexKey + ?Sized> IndexType<K> {
    pub(crate) fn of<I: Index<Modelled, K> + 'static>() -> Self {
        Self {
            create: |pool, options| I::create(pool, options),
            open: |pool, root| Ok(Box::new(I::open(pool, root)?)),
            ordered: I::CAPABILITIES.ordered,
            trace_checks: I::TRACE_CHECKS,
            walks_by_parts: I::WALKS_BY_PARTS,
        }
    }

    /// Creates an index under a name, durably, and opens it.
    pub(crate) fn create(
        &self,
        pool: Pool<Modelled>,
        options: &IndexOptions,
    ) -> Result<Box<dyn OpenIndex<K>>, String> {
        let root = pool.fence((self.create)(&pool, options).map_err(text)?);
        let link = root.link();
        let _committed = pool.publish_root(ROOT, 0, root).map_err(text)?.persist();
        (self.open)(Arc::new(pool), link).map_err(text)
    }

    /// Opens it; none if there is none yet.
    pub(crate) fn open(
        &self,
        pool: Pool<Modelled>,
    ) -> Result<Option<Box<dyn OpenIndex<K>>>, String> {
        let Some(root) = pool.root::<IndexRoot>(ROOT) else { return Ok(None) };
        (self.open)(Arc::new(pool), root).map(Some).map_err(text)
    }
}
