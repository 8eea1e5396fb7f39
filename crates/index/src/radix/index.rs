//! Every radix tree as an index.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Guard, InFlight, Link, Owned, Pool};

use super::change::Change;
use super::check::Walking;
use super::descent::Descending;
use super::handle::Handle;
use super::scan::Scanning;
use super::tree::RadixTree;
use crate::IndexKind;
use crate::entries_by_part::EntriesByPart;
use crate::index::{
    Capabilities, Direction, Index, IndexError, IndexOptions, OnValue, OrderedIndex, Outcome,
    Statistics,
};
use crate::key::IndexKey;
use crate::leaf_entries::OnLeaf;
use crate::root::IndexRoot;

impl<T: RadixTree> Index<T::Domain, T::Key> for T {
    const KIND: IndexKind = <T as RadixTree>::KIND;
    const CAPABILITIES: Capabilities =
        Capabilities { orders_prior_flushes: !T::Key::INLINE, ..Capabilities::ORDERED };
    const VISITS_CHECK: bool = true;
    const WALKS_BY_PARTS: bool = true;

    fn create<'p>(
        pool: &'p Pool<T::Domain>,
        _options: &IndexOptions,
    ) -> Result<Owned<'p, T::Domain, IndexRoot, InFlight>, IndexError> {
        Handle::create(pool, <T as RadixTree>::KIND, T::Key::KIND)
    }

    fn open(pool: Arc<Pool<T::Domain>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let handle = Handle::open(pool, root, <T as RadixTree>::KIND, T::Key::KIND)?;
        Ok(Self::from_handle(handle))
    }

    fn pool(&self) -> &Arc<Pool<T::Domain>> {
        &self.handle().pool
    }

    #[inline]
    fn change(&self, key: &T::Key, change: Change) -> Result<Outcome, IndexError> {
        self.change_key(key, change)
    }

    #[inline]
    fn get(&self, key: &T::Key) -> Option<u64> {
        self.get_value(key)
    }

    #[inline]
    fn get_pinned(&self, key: &T::Key, pinned: &Guard<'_, T::Domain>) -> Option<u64> {
        self.get_value_pinned(key, pinned)
    }

    fn get_many(&self, keys: &[&T::Key], answer: &mut dyn FnMut(usize, Option<u64>)) {
        self.get_values(keys, answer);
    }

    fn approach(&self, keys: &[&T::Key]) {
        self.get_values(keys, &mut |_, _| {});
    }

    fn for_each(&self, visit: &mut dyn FnMut(&T::Key, u64) -> ControlFlow<()>) {
        self.scan(Bound::Unbounded, Direction::Forward, visit);
    }

    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<T::Key>) {
        self.scan_parts(visitor);
    }

    fn check(&self) -> Vec<String> {
        self.problems()
    }

    fn statistics(&self) -> Statistics {
        self.measure()
    }

    fn visit_blocks(
        &self,
        visitor: &mut BlockVisitor<'_, T::Domain>,
        value: OnValue<'_, T::Domain>,
    ) {
        self.visit_everything(visitor, value);
    }
}

impl<T: RadixTree> OrderedIndex<T::Domain, T::Key> for T {
    fn scan_leaves(
        &self,
        from: Bound<&T::Key>,
        direction: Direction,
        visit: OnLeaf<'_, T::Domain, T::Key>,
    ) {
        self.scan_entries(from, direction, visit);
    }
}
