//! Insert, update and remove under the locks of nodes.

use lapis_pmem::{Committed, Domain};

use super::{PArt, mutants};
use crate::art::node::Child;
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;
use crate::radix::{
    Changing, Descending, Descent, HeldNodes, KeyOf, Located, Obstacle, Parent, RadixTree,
    SlotWord, adds, change_by_attempts,
};

impl<D: Domain, K: IndexKey + ?Sized> PArt<D, K> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_under_locks(
        &self,
        key: &K,
        change: Change,
    ) -> Result<Outcome, IndexError> {
        change_by_attempts(self.handle().pool.domain(), key, |key| self.try_change(key, change))
    }

    /// Makes `change` where a walk without locks leads; none if others have been there before.
    #[inline(always)]
    fn try_change(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
    ) -> Result<Option<Outcome>, IndexError> {
        let pool = &self.handle().pool;
        let pinned = pool.pin();
        let mut descent = Descent::at_top(self);
        self.descend(key, adds(change), &mut descent)?;
        let located = self.locate(key, &descent, adds(change))?;
        if let Some(previous) = self.answer(change, &located) {
            return Ok(Some(Outcome { previous, committed: Committed::nothing_to_do() }));
        }
        let (node, place, child) = match &located {
            Located::Differs(split) => (split.above, split.place, split.child),
            _ => (descent.parent.map(|parent| parent.node), descent.place, descent.child),
        };
        let Some(mut held) = self.try_lock(node) else { return Ok(None) };
        if !pool.domain().commits(mutants::STALE_DECISION)
            && !self.has_still(key, node, place, child)
        {
            return Ok(None);
        }
        // Nobody else can take away what is locked. The pool is not pinned while there may be room to
        // wait for, which retired blocks give.
        drop(pinned);
        loop {
            match (self.carry_out(key, change, &descent, &located, &held), descent.parent) {
                (Ok(outcome), _) => return Ok(Some(outcome)),
                (Err(Obstacle::Needs(_)), Some(parent)) => {
                    let Some(parent) = self.lock_above(key, parent.node, &mut held) else {
                        return Ok(None);
                    };
                    descent.parent = Some(parent);
                }
                (Err(Obstacle::Needs(_)), None) => return Ok(None),
                (Err(Obstacle::Failed(error)), _) => return Err(error),
            }
        }
    }

    /// Locks the node above `node`, which is locked, and says where the word is that refers to `node`.
    /// None if somebody else has that lock, or was there meanwhile.
    #[cold]
    #[inline(never)]
    fn lock_above<'t>(
        &'t self,
        key: &KeyOf<'_, Self>,
        node: Child,
        held: &mut HeldNodes<'t, D>,
    ) -> Option<Parent<Child>> {
        let _pinned = self.handle().pool.pin();
        let Descent { mut place, mut child, mut depth, .. } = Descent::at_top(self);
        let mut above = None;
        while child != node {
            let passes = !child.is_none()
                && !child.is_leaf()
                && child.position::<K>() < node.position::<K>();
            if !passes {
                return None;
            }
            let slot = key.slot_at(child.position::<K>())?;
            (above, depth) = (Some(child), child.position::<K>() + 1);
            (place, child) = self.step(child, slot);
        }
        let is_there = held.try_take_also(self.lock_of(above))
            && (self.handle().pool.domain().commits(mutants::UNCHECKED_ABOVE)
                || self.has_still(key, above, place, node));
        is_there.then_some(Parent { node, place, depth })
    }
}
