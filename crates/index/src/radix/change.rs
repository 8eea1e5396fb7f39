//! Insert, update and remove, as far as they are the same for every tree.
//!
//! A writer goes down without locks, as a reader does, and finds out what there is to do and which
//! stripes that takes. If it is nothing, it answers as a reader does. Otherwise it takes the stripes,
//! and looks again whether what it found is still there:
//!
//! * If they were free, the pool has been pinned all the while. A node's word is the same for life,
//!   and no block can have become another's: the same words on the way are the same nodes, and what
//!   was found of prefixes and of a leaf's key (I3, I5) still holds.
//! * If it had to wait for one, it lets the pool go, waits for all in the order of their numbers, and
//!   goes down anew with them in its hands. What it then finds in the nodes it has claimed, nobody
//!   can change. If that takes other stripes, it starts again.
//!
//! Both walks find nodes that were reachable at some instant since they began: a node that is not
//! reachable any more keeps its last words, and what they refer to was reachable when it went. So a
//! node whose stripe was held when the walk began is still reachable, for it goes under its stripe
//! alone (I6), and stays so.
//!
//! What looks like damage to a walk without locks may be the work of others. A walk with all stripes
//! says whether it is.

use lapis_pmem::{AllocError, Committed, Domain, Link};

use super::descent::{Descending, Descent, Located};
use super::digits::Digits;
use super::leaf::{Leaf, leaf_bytes, make_leaf};
use super::stripes::{Claims, Held};
use super::tree::{KeyOf, Place, RadixTree, SlotWord};
pub use crate::index::Change;
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// Why a change is not made.
#[derive(Debug)]
pub enum Obstacle {
    /// It cannot be made.
    Failed(IndexError),
    /// It takes these stripes too. Nothing has been stored.
    Needs(Claims),
}

impl From<IndexError> for Obstacle {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

impl From<AllocError> for Obstacle {
    fn from(error: AllocError) -> Self {
        Self::Failed(error.into())
    }
}

/// What a walk found, and the stripes that a change there takes.
pub struct Plan<T: RadixTree> {
    descent: Descent<T>,
    located: Located<T>,
    claims: Claims,
}

/// Changes of every radix tree.
pub trait Changing: RadixTree {
    /// Makes `change`, durably.
    #[inline]
    fn change(&self, key: &Self::Key, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let mut space = [0; 8];
        let key: KeyOf<'_, Self> = Digits::of(key, &mut space);
        let handle = self.handle();
        let (domain, stripes) = (handle.pool.domain(), &handle.stripes);
        let mut held = Held::nothing();
        // What turned out to be needed besides what a walk had said.
        let mut needed = Claims::NONE;
        loop {
            let pinned = handle.pool.pin();
            let plan = match self.plan(&key, change) {
                Err(_) if !held.covers(Claims::ALL) => {
                    drop((pinned, held));
                    held = stripes.take(domain, Claims::ALL);
                    continue;
                }
                found => found?,
            };
            if let Some(previous) = self.answer(change, &plan.located) {
                return Ok(Outcome { previous, committed: Committed::nothing_to_do() });
            }
            let claims = plan.claims | needed;
            if held.is_empty()
                && let Some(taken) = stripes.try_take(domain, claims)
            {
                held = taken;
                if !self.still_holds(&key, &plan) {
                    // Once more, with what is held.
                    continue;
                }
            }
            // Nobody else can take away what is claimed. The pool is not pinned while there is
            // something to wait for: a lock, or room, which retired blocks may give.
            drop(pinned);
            if !held.covers(claims) {
                drop(held);
                held = stripes.take(domain, claims);
                continue;
            }
            match self.carry_out(&key, change, plan, &held) {
                Ok(outcome) => return Ok(outcome),
                Err(Obstacle::Failed(error)) => return Err(error),
                Err(Obstacle::Needs(more)) => needed |= more,
            }
        }
    }

    /// Finds out what is to be done. The caller has pinned the pool.
    #[inline(always)]
    fn plan(&self, key: &KeyOf<'_, Self>, change: Change) -> Result<Plan<Self>, IndexError> {
        let adds = matches!(change, Change::Insert(_) | Change::Put(_));
        let descent = self.descend(key, adds)?;
        let located = self.locate(key, &descent, adds)?;
        let claims = match &located {
            Located::Differs(split) => {
                let mut claims = Claims::above(key, split.depth);
                // I6: nobody stores into the new node before the word that refers to it is durable.
                if !self.handle().pool.domain().commits(Self::NEW_NODE_UNLOCKED) {
                    claims |= Claims::of_branch(key, split.position);
                }
                if Self::COPIES_WHAT_SINKS && !split.child.is_leaf() {
                    claims |= self.claims_of(split.child)?;
                }
                claims
            }
            // The stripe of a leaf is that of the node it hangs from.
            _ => Claims::above(key, descent.depth),
        };
        let replaced = descent.parent.as_ref().filter(|parent| match (change, &located) {
            (_, Located::Vacant) => {
                descent.place.is_null() && self.replaces_parent(key, parent, false)
            }
            (Change::Remove, Located::Present(_)) => self.replaces_parent(key, parent, true),
            _ => false,
        });
        let above = replaced.map_or(Claims::NONE, |parent| Claims::above(key, parent.depth));
        Ok(Plan { descent, located, claims: claims | above })
    }

    /// The answer, if there is nothing to change: what was there before. As a reader's, it rests on
    /// nothing that is not durable. The caller has pinned the pool.
    #[inline(always)]
    fn answer(&self, change: Change, located: &Located<Self>) -> Option<Option<u64>> {
        let handle = self.handle();
        let domain = handle.pool.domain();
        let previous = match (change, located) {
            (Change::Insert(_), &Located::Present(leaf)) => {
                Some(handle.pool.at(leaf).value.load_acquire(domain))
            }
            (_, Located::Present(_)) | (Change::Insert(_) | Change::Put(_), _) => return None,
            (Change::Update(_) | Change::Remove, _) => None,
        };
        if !domain.commits(Self::UNPERSISTED_ANSWER) {
            handle.persist_before_return();
        }
        Some(previous)
    }

    /// Whether what a walk found without locks is still there. The caller has pinned the pool since.
    #[inline(always)]
    fn still_holds(&self, key: &KeyOf<'_, Self>, plan: &Plan<Self>) -> bool {
        if self.handle().pool.domain().commits(Self::STALE_DECISION) {
            return true;
        }
        let descent = &plan.descent;
        match &plan.located {
            Located::Differs(split) => self.still_leads(key, split.place, split.child, None),
            _ => self.still_leads(key, descent.place, descent.child, descent.parent.as_ref()),
        }
    }

    /// Does what was planned, with the stripes that it takes.
    #[inline(always)]
    fn carry_out(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        plan: Plan<Self>,
        held: &Held<'_, Self::Domain>,
    ) -> Result<Outcome, Obstacle> {
        let Plan { descent, located, .. } = plan;
        let pool = &self.handle().pool;
        let previous = match located {
            Located::Present(leaf) => Some(pool.at(leaf).value.load(pool.domain())),
            _ => None,
        };
        let committed = match (change, located) {
            (Change::Insert(value) | Change::Put(value), Located::Vacant) => {
                self.add(key, value, &descent, held)?
            }
            (Change::Insert(value) | Change::Put(value), Located::Differs(split)) => {
                self.split(key, value, split)?
            }
            (Change::Update(value) | Change::Put(value), Located::Present(leaf)) => {
                self.set_value(key, value, leaf, descent.place)?
            }
            (Change::Remove, Located::Present(leaf)) => self.unlink(key, leaf, &descent, held)?,
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Puts a new leaf into `place`, where there is nothing and the key belongs.
    #[inline]
    fn link_leaf(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        place: Place,
    ) -> Result<Committed, Obstacle> {
        let handle = self.handle();
        let leaf = make_leaf(&handle.pool, key, value, Self::MISSING_LEAF_FLUSH)?;
        // I1: the leaf is durable before the slot refers to it.
        let leaf = {
            let _mutant = handle.pool.domain().omitting(Self::LINK_BEFORE_FENCE);
            handle.pool.fence(leaf)
        };
        Ok(handle.publish(place, Self::Word::leaf(leaf.release()).bits()))
    }

    /// Gives the key of `leaf`, to which the word at `place` refers, another value.
    #[inline]
    fn set_value(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        leaf: Link<Leaf>,
        place: Place,
    ) -> Result<Committed, Obstacle> {
        let handle = self.handle();
        if Self::Key::INLINE {
            // I5: one store. The value is the first word of the leaf.
            return Ok(handle.publish(leaf.cast(), value));
        }
        let replacement = make_leaf(&handle.pool, key, value, Self::MISSING_LEAF_FLUSH)?;
        // I1, and what the caller has flushed is durable before the value can be reached.
        let replacement = handle.pool.fence(replacement);
        let committed = handle.publish(place, Self::Word::leaf(replacement.release()).bits());
        self.retire(&[], Some((key, leaf)), committed);
        Ok(committed)
    }

    /// Takes a leaf out by the store that leaves no reference to it.
    #[inline]
    #[track_caller]
    fn replace_leaf(
        &self,
        key: &KeyOf<'_, Self>,
        leaf: Link<Leaf>,
        place: Place,
        word: u64,
    ) -> Committed {
        let committed = self.handle().publish(place, word);
        self.retire(&[], Some((key, leaf)), committed);
        committed
    }

    /// Retires what a store has unlinked that is durable (I7).
    #[inline]
    fn retire(
        &self,
        nodes: &[Self::Word],
        leaf: Option<(&KeyOf<'_, Self>, Link<Leaf>)>,
        committed: Committed,
    ) {
        let pool = &self.handle().pool;
        let pinned = pool.pin();
        for &node in nodes {
            pool.retire(node.header_place(), self.node_bytes(node), committed, &pinned);
        }
        if let Some((key, leaf)) = leaf {
            pool.retire(leaf, leaf_bytes(key), committed, &pinned);
        }
    }
}

impl<T: RadixTree> Changing for T {}
