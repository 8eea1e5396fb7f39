//! Insert, update and remove, as far as they are the same for every tree.
//!
//! A writer goes down without locks, as a reader does, and finds out what there is to do and which
//! stripes that takes. If it is nothing, it answers as a reader does. Otherwise it takes the stripes,
//! and looks again whether what it found is still there:
//!
//! * If they were free, the pool has been pinned all the while, and no block can have become another's:
//!   the same words are the same nodes. What was found of digits (I3, I5) still holds. It asks its
//!   stripes whether nodes have been unlinked under them since before the walk, and looks once more at
//!   the one word that its change rests on. There is no second walk: W1 to W4 in
//!   `docs/wort-concurrency.md` say why.
//! * If one was not, or something has changed, it lets the pool go, waits for all in the order of their
//!   numbers, and goes down anew with them in its hands. What it then finds in the nodes it has claimed, nobody
//!   can change. If that takes other stripes, it starts again.
//!
//! Both walks find nodes that were reachable at some instant since they began: a node that is not
//! reachable any more keeps its last words, and what they refer to was reachable when it went. So a
//! node whose stripe was held when the walk began is still reachable, for it goes under its stripe
//! alone (I6), and stays so.
//!
//! What looks like damage to a walk without locks may be the work of others. A walk with all stripes
//! says whether it is.

use lapis_pmem::{AllocError, Blocks, Committed, Durable, Guard, InFlight, Link, Observed, Owned};

use super::descent::{Descending, Located};
use super::digits::Digits;
use super::leaf::Leaf;
use super::stripes::{Claims, Held, Holding, Obstacle};
use super::tree::{Descent, KeyOf, RadixTree};
use super::word::{Place, SlotWord};
pub use crate::index::Change;
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// Whether a change looks for the place of a key that is absent.
#[inline(always)]
pub fn adds(change: Change) -> bool {
    matches!(change, Change::Insert(_) | Change::Put(_))
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
        // Nothing of what is only needed later is made before the walk: a processor that has still to
        // drain what the change before this one has stored can go ahead with its loads, as far as its
        // store buffer has room for the stores among them.
        let pinned = handle.pool.pin();
        let unlinkings = handle.stripes.unlinkings();
        let mut descent = Descent::at_top(self);
        let done = if self.descend(&key, adds(change), &mut descent).is_err() {
            drop(pinned);
            Err(Obstacle::Needs(Claims::NONE))
        } else if adds(change) && descent.is_plainly_vacant() {
            // A copy of the code for what comes most often: what has been found stays in registers.
            self.change_at_once(&key, change, descent, Located::Vacant, unlinkings, pinned)
        } else if let Ok(located) = self.locate(&key, &descent, adds(change)) {
            self.change_at_once(&key, change, descent, located, unlinkings, pinned)
        } else {
            drop(pinned);
            Err(Obstacle::Needs(Claims::NONE))
        };
        match done {
            Ok(outcome) => Ok(outcome),
            Err(Obstacle::Failed(error)) => Err(error),
            Err(Obstacle::Needs(claims)) => self.change_again(&key, change, claims),
        }
    }

    /// Makes `change` where a walk without locks has led, if the stripes that it takes are free and what
    /// was found is still there.
    #[inline(always)]
    fn change_at_once(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        descent: Descent<Self>,
        located: Located<Self>,
        unlinkings: u64,
        pinned: Guard<'_, Self::Domain>,
    ) -> Result<Outcome, Obstacle> {
        let handle = self.handle();
        if let Some(previous) = self.answer(change, &located) {
            return Ok(Outcome { previous, committed: Committed::nothing_to_do() });
        }
        // What looks like damage may be the work of others.
        let again = || Obstacle::Needs(Claims::NONE);
        let claims = self.claims(key, change, &descent, &located).map_err(|_| again())?;
        match handle.stripes.try_take(handle.pool.domain(), claims) {
            Some(held) if self.still_holds(key, &descent, &located, unlinkings, &held) => {
                drop(pinned);
                self.carry_out(key, change, &descent, &located, &held)
            }
            _ => Err(again()),
        }
    }

    /// Makes `change` with stripes that it waits for, of which `needed` are some.
    #[cold]
    #[inline(never)]
    fn change_again(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        needed: Claims,
    ) -> Result<Outcome, IndexError> {
        let handle = self.handle();
        let (domain, stripes) = (handle.pool.domain(), &handle.stripes);
        let mut held = stripes.none(domain);
        let mut needed = needed;
        loop {
            let pinned = handle.pool.pin();
            let mut descent = Descent::at_top(self);
            let (located, claims) = match self.plan(key, change, &mut descent) {
                Err(_) if !held.covers(Claims::ALL) => {
                    drop((pinned, held));
                    held = stripes.take(domain, Claims::ALL);
                    continue;
                }
                found => found?,
            };
            if let Some(previous) = self.answer(change, &located) {
                return Ok(Outcome { previous, committed: Committed::nothing_to_do() });
            }
            // Nobody else can take away what is claimed. The pool is not pinned while there is
            // something to wait for: a lock, or room, which retired blocks may give.
            drop(pinned);
            let claims = claims | needed;
            if !held.covers(claims) {
                drop(held);
                held = stripes.take(domain, claims);
                continue;
            }
            match self.carry_out(key, change, &descent, &located, &held) {
                Ok(outcome) => return Ok(outcome),
                Err(Obstacle::Failed(error)) => return Err(error),
                Err(Obstacle::Needs(more)) => needed |= more,
            }
        }
    }

    /// Finds out what is to be done, and the stripes that it takes. The caller has pinned the pool.
    fn plan(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        descent: &mut Descent<Self>,
    ) -> Result<(Located<Self>, Claims), IndexError> {
        self.descend(key, adds(change), descent)?;
        let located = self.locate(key, descent, adds(change))?;
        let claims = self.claims(key, change, descent, &located)?;
        Ok((located, claims))
    }

    /// The stripes that it takes to do something where a walk has led. The caller has pinned the pool.
    #[inline(always)]
    fn claims(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        descent: &Descent<Self>,
        located: &Located<Self>,
    ) -> Result<Claims, IndexError> {
        if let Located::Differs(split) = located {
            let mut claims = Claims::above(key, split.depth);
            // I6: nobody stores into the new node before the word that refers to it is durable.
            if !self.handle().pool.domain().commits(Self::MUTANTS.new_node_unlocked) {
                claims |= Claims::of_branch(key, split.position);
            }
            if Self::COPIES_WHAT_SINKS && !split.child.is_leaf() {
                claims |= self.claims_of(split.child)?;
            }
            return Ok(claims);
        }
        // The stripe of a leaf is that of the node it hangs from.
        let mut claims = Claims::above(key, descent.depth);
        let Some(parent) = &descent.parent else { return Ok(claims) };
        let replaces_parent = match (change, located) {
            (_, Located::Vacant) if descent.place.is_null() => {
                // Now: loads that come after a locked instruction wait for it, and for those before.
                self.prefetch_for_adding(parent.node);
                self.replaces_parent(key, parent, false)
            }
            (Change::Remove, Located::Present(_)) => self.replaces_parent(key, parent, true),
            _ => false,
        };
        if replaces_parent {
            claims |= Claims::above(key, parent.depth);
        }
        Ok(claims)
    }

    /// The answer, if there is nothing to change. The caller has pinned the pool.
    #[inline(always)]
    fn answer(&self, change: Change, located: &Located<Self>) -> Option<Option<u64>> {
        let present = match located {
            &Located::Present(leaf) => Some(leaf.cast()),
            _ => None,
        };
        self.handle().answer(change, present, Self::MUTANTS.unpersisted_answer)
    }

    /// Whether what a walk found without locks is still there: the nodes that take stripes, and the
    /// words in them. All else that it found stays true (I3, I5). There had been so many unlinkings
    /// before the walk (W3), and the caller has pinned the pool since.
    #[inline(always)]
    fn still_holds(
        &self,
        key: &KeyOf<'_, Self>,
        descent: &Descent<Self>,
        located: &Located<Self>,
        unlinkings: u64,
        held: &Held<'_, Self::Domain>,
    ) -> bool {
        if self.handle().pool.domain().commits(Self::MUTANTS.stale_decision) {
            return true;
        }
        if !held.none_unlinked_since(unlinkings) {
            return false;
        }
        if let Located::Differs(split) = located {
            return self.has_still(key, split.above, split.place, split.child);
        }
        let Descent { child, place, ref parent, .. } = *descent;
        let above = parent.as_ref().map(|parent| parent.node);
        self.has_still(key, above, place, child)
            && parent.as_ref().is_none_or(|parent| self.child_at(parent.place) == parent.node)
    }

    /// Does what was planned, with the stripes that it takes.
    #[inline(always)]
    fn carry_out(
        &self,
        key: &KeyOf<'_, Self>,
        change: Change,
        descent: &Descent<Self>,
        located: &Located<Self>,
        held: &impl Holding,
    ) -> Result<Outcome, Obstacle> {
        let pool = &self.handle().pool;
        let previous = match located {
            &Located::Present(leaf) => Some(pool.at(leaf).value.load(pool.domain())),
            _ => None,
        };
        let committed = match (change, located) {
            (Change::Insert(value) | Change::Put(value), Located::Vacant) => {
                self.add(key, value, descent, held)?
            }
            (Change::Insert(value) | Change::Put(value), &Located::Differs(split)) => {
                self.split(key, value, split, held)?
            }
            (Change::Update(value) | Change::Put(value), &Located::Present(leaf)) => {
                let missing_flush = Self::MUTANTS.missing_leaf_flush;
                let places = [leaf.cast(), descent.place];
                let word = |leaf| Self::Word::leaf(leaf).bits();
                self.handle().set_value(key, value, places, missing_flush, word)?
            }
            (Change::Remove, &Located::Present(leaf)) => self.unlink(key, leaf, descent, held)?,
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Writes and flushes a leaf; it is durable after the caller's next fence.
    #[inline(always)]
    #[track_caller]
    fn make_leaf(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
    ) -> Result<Owned<'_, Self::Domain, Leaf, InFlight>, AllocError> {
        self.handle().make_leaf(key, value, Self::MUTANTS.missing_leaf_flush)
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
        let leaf = self.make_leaf(key, value)?;
        // I1: the leaf is durable before the slot refers to it.
        let leaf = {
            let _mutant = handle.pool.domain().omitting(Self::MUTANTS.link_before_fence);
            handle.pool.fence(leaf)
        };
        Ok(handle.publish(place, leaf, |leaf| Self::Word::leaf(leaf.link()).bits()))
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
        let committed = self.handle().publish(place, (), |_| word);
        self.retire(&[], Some((key, leaf)), committed);
        committed
    }

    /// Takes `nodes`, and perhaps a leaf, out by the store that leaves no reference to them and makes
    /// `new` reachable. Held are their stripes or locks. W2: it is noted when it has been made.
    #[inline]
    #[track_caller]
    fn replace_nodes<B: Blocks<Durable>>(
        &self,
        nodes: &[Self::Word],
        leaf: Option<(&KeyOf<'_, Self>, Link<Leaf>)>,
        place: Place,
        new: B,
        word: impl FnOnce(&B) -> u64,
        held: &impl Holding,
    ) -> Committed {
        let handle = self.handle();
        let committed = handle.publish(place, new, word);
        if !handle.pool.domain().commits(Self::MUTANTS.unnoted_unlinking) {
            held.note_unlinking();
        }
        self.retire(nodes, leaf, committed);
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
            self.handle().retire_leaf(key, leaf, committed);
        }
    }
}

impl<T: RadixTree> Changing for T {}
