//! Removing: a bit; leaves with few entries are taken away.

use lapis_blocks::fp_leaf::slots_in;
use lapis_pmem::{Committed, Domain, LockWait};

use super::FpTree;
use super::inner::{Place, Target};
use super::leaf::{Leaf, Sought};
use super::micro_log::Plan;
use super::mutants;
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;
use crate::leaf_locks::LeafLocks;

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    pub(super) fn remove_key(&self, key: &K) -> Result<Outcome, IndexError> {
        key.validate()?;
        let (domain, sought) = (self.domain(), Sought::of(key));
        let mut wait = LockWait::default();
        loop {
            let (place, leaf) = self.lock_leaf_of(key, sought);
            let bitmap = leaf.bitmap(domain);
            let Some((slot, value)) = leaf.find(&self.pool, bitmap, key, sought) else {
                self.unlock_unchanged(leaf);
                let committed = Committed::nothing_to_do();
                return Ok(Outcome { previous: None, committed });
            };
            let word = leaf.slots[slot].key.load(domain);
            let left = bitmap.count_ones() - 1;
            let removed = if left > 0 || self.is_alone(leaf) {
                let committed =
                    leaf.header.line.bitmap.publish(domain, bitmap & !(1 << slot)).persist();
                self.unlock(leaf);
                Some(committed)
            } else {
                // I4: the entry goes with the leaf. Gives the lock back.
                self.remove_leaf(place, leaf, key)?
            };
            let Some(committed) = removed else {
                wait.once(domain);
                continue;
            };
            let few = self.slots as u32 * 3 / 8;
            // Not at every removal, as it may be that no neighbour has room.
            if left > 0 && left <= few && (left < 4 || left.is_multiple_of(4)) {
                self.merge_around(key, sought);
            }
            if !K::INLINE {
                K::retire_word(&self.pool, word, committed, &self.pool.pin());
            }
            return Ok(Outcome { previous: Some(value), committed });
        }
    }

    fn is_alone(&self, leaf: Leaf<'_>) -> bool {
        self.first_leaf() == leaf.link && leaf.next(self.domain()).is_null()
    }

    /// Takes a locked leaf out of the tree whose only entry is being removed, and gives its lock
    /// back. None if a neighbour is busy or has changed: to be tried again.
    #[cold]
    fn remove_leaf(
        &self,
        place: Place<'_>,
        leaf: Leaf<'_>,
        key: &K,
    ) -> Result<Option<Committed>, IndexError> {
        let (pool, domain) = (&*self.pool, self.domain());
        if self.first_leaf() == leaf.link {
            domain.happens("the first leaf leaves");
            // Only the holder of the first leaf's lock changes this word.
            let next = leaf.next(domain).cast();
            let committed = self.root().top.redirect(domain, next).persist();
            self.inner.remove(pool, key, leaf.link);
            self.unlock(leaf);
            pool.retire(leaf.link, self.leaf_bytes, committed, &pool.pin());
            return Ok(Some(committed));
        }
        let before = if place.index > 0 {
            self.inner.neighbour(pool, &place, place.index - 1)
        } else {
            // The lower end of the range may move down meanwhile; what is found then does not
            // lead here.
            let (_, range) = self.inner.descend_with_range(pool, Target::Of(key));
            let lower = range.lower.as_ref().map(K::borrow);
            lower.map(|lower| self.inner.descend(pool, Target::Before(lower)))
        };
        let Some(before) = before.filter(|before| before.leaf != leaf.link) else {
            self.unlock_unchanged(leaf);
            return Ok(None);
        };
        let Some(has_own_lock) = self.try_lock_second(leaf, &before) else {
            self.unlock_unchanged(leaf);
            return Ok(None);
        };
        let left = self.leaf(before.leaf);
        if left.next(domain) != leaf.link {
            // I7: neighbours in the inner nodes are neighbours in the list.
            if has_own_lock {
                self.unlock_unchanged(left);
            }
            self.unlock_unchanged(leaf);
            return Err(IndexError::Damaged { what: "a leaf is missing from the list".into() });
        }
        domain.happens("an empty leaf leaves");
        Ok(Some(self.unlink(left, leaf, key, left.bitmap(domain), has_own_lock)))
    }

    /// Tries to lock a second leaf, at `second`, beside `first`, which is locked. Says whether the
    /// lock is another one; none if it is not to be had or the place is out of date.
    fn try_lock_second(&self, first: Leaf<'_>, second: &Place<'_>) -> Option<bool> {
        let domain = self.domain();
        let number = LeafLocks::number_of(second.leaf);
        let is_another = number != LeafLocks::number_of(first.link);
        if is_another && !self.locks.try_lock(domain, number) {
            return None;
        }
        if self.inner.is_current(&self.pool, second) {
            return Some(is_another);
        }
        if is_another {
            self.locks.unlock_unchanged(domain, number);
        }
        None
    }

    /// Puts the leaf of `key` and a neighbour under the same node into one, if they fill half of it
    /// at most and nobody is in the way.
    #[cold]
    fn merge_around(&self, key: &K, sought: Sought) {
        let pool = &*self.pool;
        let (place, leaf) = self.lock_leaf_of(key, sought);
        let index = if place.index > 0 { place.index - 1 } else { 1 };
        let Some(other) = self.inner.neighbour(pool, &place, index) else {
            return self.unlock_unchanged(leaf);
        };
        let Some(has_own_lock) = self.try_lock_second(leaf, &other) else {
            return self.unlock_unchanged(leaf);
        };
        let other = self.leaf(other.leaf);
        let (left, right) = if place.index > 0 { (other, leaf) } else { (leaf, other) };
        if self.merge(left, right, has_own_lock).is_none() {
            if has_own_lock {
                self.unlock_unchanged(other);
            }
            self.unlock_unchanged(leaf);
        }
    }

    /// Moves what is in `right` to `left` and gives the locks back. None, and nothing is done, if
    /// that would fill more than half of it.
    fn merge(&self, left: Leaf<'_>, right: Leaf<'_>, has_own_lock: bool) -> Option<Committed> {
        let (pool, domain) = (&*self.pool, self.domain());
        let (mut bitmap, moving) = (left.bitmap(domain), right.bitmap(domain));
        let together = (bitmap.count_ones() + moving.count_ones()) as usize;
        if together > self.slots / 2 || left.next(domain) != right.link {
            return None;
        }
        let first = slots_in(moving).next()?;
        K::with_word(pool, right.slots[first].key.load(domain), |key| {
            domain.happens("merge of leaves");
            let mut added = 0u64;
            for slot in slots_in(moving) {
                let fingerprint = right.header.line.fingerprint(domain, slot);
                let free = left.free_slot(bitmap, fingerprint);
                let entry = &right.slots[slot];
                left.slots[free].write(domain, entry.key.load(domain), entry.value.load(domain));
                let line = &left.header.line;
                let (fingerprints, with_new) = line.with_fingerprint(domain, free, fingerprint);
                fingerprints.store_ordered(domain, with_new);
                bitmap |= 1 << free;
                added |= 1 << free;
            }
            // I2: both before the record, which makes the bits true.
            let not_yet_durable = domain.omitting(mutants::MERGED_BEFORE_DURABLE);
            left.flush_slots(domain, added);
            domain.flush(&left.header.line.bitmap);
            domain.fence();
            drop(not_yet_durable);
            // By now others may have put the two under different nodes.
            self.unlink(left, right, key, bitmap, has_own_lock)
        })
    }

    /// Takes `right` out, the leaf of `key`, whose left neighbour becomes `left` with this bitmap. Both
    /// are locked, with two locks or the same one; what the bitmap adds is durable. Gives both back.
    fn unlink(
        &self,
        left: Leaf<'_>,
        right: Leaf<'_>,
        key: &K,
        bitmap: u64,
        two_locks: bool,
    ) -> Committed {
        let (pool, domain) = (&*self.pool, self.domain());
        let planned = {
            let _mutant = domain.omitting(mutants::UNLINKED_WITHOUT_MICRO_LOG);
            self.plan(Plan { leaf: left, bitmap, next: right.next(domain) }, ())
        };
        let leaves_early = domain.commits(mutants::LEFT_EARLY);
        if leaves_early {
            self.inner.remove(pool, key, right.link);
        }
        let committed = self.carry_out(&planned);
        // I6: whoever does not find the leaf finds what was in it.
        if !leaves_early {
            self.inner.remove(pool, key, right.link);
        }
        {
            let _mutant = domain.omitting(mutants::MICRO_LOG_NOT_RESET);
            self.finish(planned);
        }
        self.unlock(left);
        if two_locks {
            self.unlock(right);
        }
        pool.retire(right.link, self.leaf_bytes, committed, &pool.pin());
        committed
    }
}
