//! Adding and replacing: a free slot, then one word.

use lapis_blocks::fp_leaf::{Entry, FINGERPRINTS, slots_in};
use lapis_pmem::{Committed, Domain, Owned};

use super::inner::Place;
use super::leaf::{HEADER_BYTES, LARGEST_LEAF_BYTES, Leaf, LeafHeader, Sought};
use super::micro_log::Plan;
use super::{FpTree, mutants};
use crate::index::{Change, IndexError, Outcome};
use crate::key::{IndexKey, KeyWord};
use crate::leaf_locks::LeafLocks;

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    /// Finds and locks the leaf whose range has `key`.
    #[inline(always)]
    pub(super) fn lock_leaf_of(&self, key: &K, sought: Sought) -> (Place<'_>, Leaf<'_>) {
        let domain = self.domain();
        loop {
            let place = self.approach_leaf(key, sought);
            let number = LeafLocks::number_of(place.leaf);
            self.locks.lock(domain, number);
            // I7: under the lock the leaf's range cannot shrink, nor the leaf go away.
            if self.inner.is_current(&self.pool, &place) {
                return (place, self.leaf(place.leaf));
            }
            self.locks.unlock_unchanged(domain, number);
        }
    }

    #[inline(always)]
    pub(super) fn unlock(&self, leaf: Leaf<'_>) {
        self.locks.unlock(self.domain(), LeafLocks::number_of(leaf.link));
    }

    #[inline(always)]
    pub(super) fn unlock_unchanged(&self, leaf: Leaf<'_>) {
        self.locks.unlock_unchanged(self.domain(), LeafLocks::number_of(leaf.link));
    }

    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        match change {
            Change::Insert(value) | Change::Update(value) | Change::Put(value) => {
                self.write(key, value, change)
            }
            Change::Remove => self.remove_key(key),
        }
    }

    fn write(&self, key: &K, value: u64, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let (domain, sought) = (self.domain(), Sought::of(key));
        loop {
            let (_, leaf) = self.lock_leaf_of(key, sought);
            let bitmap = leaf.bitmap(domain);
            let found = leaf.find(&self.pool, bitmap, key, sought);
            let previous = found.map(|(_, value)| value);
            if (found.is_some() && matches!(change, Change::Insert(_)))
                || (found.is_none() && matches!(change, Change::Update(_)))
            {
                self.unlock_unchanged(leaf);
                return Ok(Outcome { previous, committed: Committed::nothing_to_do() });
            }
            if found.is_none() && bitmap.count_ones() as usize >= leaf.slots.len() - 1 {
                // Gives the lock back: the new leaf may be the right one now.
                self.split(leaf, bitmap, key)?;
                continue;
            }
            let (word, replaced) = match found {
                // The key word, and the string that it refers to, are the new slot's.
                Some((slot, _)) => {
                    (Ok(KeyWord::again(leaf.slots[slot].key.load(domain))), 1 << slot)
                }
                None => (key.make_word(&self.pool).map_err(IndexError::from), 0),
            };
            let outcome =
                word.and_then(|word| self.fill(leaf, bitmap, replaced, (word, value), sought));
            let outcome = outcome.inspect_err(|_| self.unlock_unchanged(leaf))?;
            self.unlock(leaf);
            return Ok(Outcome { previous, committed: outcome });
        }
    }

    /// Writes an entry into a free slot and then, in one store, says that the slot is in use and
    /// those of `replaced` are not.
    #[inline(always)]
    fn fill(
        &self,
        leaf: Leaf<'_>,
        bitmap: u64,
        replaced: u64,
        (word, value): (KeyWord<'_, D>, u64),
        sought: Sought,
    ) -> Result<Committed, IndexError> {
        let domain = self.domain();
        let slot = leaf.free_slot(bitmap, sought.fingerprint);
        // I3.
        let Some(place) = leaf.slots.get(slot) else {
            return Err(IndexError::Damaged { what: "a leaf has no free slot".into() });
        };
        place.write(domain, word.bits(), value);
        let word = {
            let _mutant = domain.omitting(mutants::BITMAP_BEFORE_ENTRY);
            domain.flush(place);
            // I2: the entry, and the string that its key may be, before the bit.
            self.pool.fence(word)
        };
        let after = (bitmap | 1 << slot) & !replaced;
        if domain.commits(mutants::FINGERPRINT_AFTER_BITMAP) {
            leaf.header.line.bitmap.store_ordered(domain, after);
        }
        let line = &leaf.header.line;
        let (fingerprints, with_new) = line.with_fingerprint(domain, slot, sought.fingerprint);
        fingerprints.store_ordered(domain, with_new);
        // I2: after the fingerprint, in the same line.
        Ok(line.bitmap.publish_word(domain, word, |_| after).persist())
    }

    /// Splits a full, locked leaf, for the sake of `key`, and gives its lock back, on error too.
    #[cold]
    fn split(&self, leaf: Leaf<'_>, bitmap: u64, key: &K) -> Result<(), IndexError> {
        let result = self.split_locked(leaf, bitmap, key);
        match result {
            Ok(()) => self.unlock(leaf),
            Err(_) => self.unlock_unchanged(leaf),
        }
        result
    }

    fn split_locked(&self, leaf: Leaf<'_>, bitmap: u64, key: &K) -> Result<(), IndexError> {
        let (pool, domain) = (&*self.pool, self.domain());
        let damaged = || IndexError::Damaged { what: "a key word is no key".into() };
        let mut entries: Vec<(u64, usize)> =
            slots_in(bitmap).map(|slot| (leaf.slots[slot].key.load(domain), slot)).collect();
        self.sort_by_key(&mut entries);
        let next = leaf.next(domain);
        // Keys that arrive in ascending order leave leaves behind that are nearly full.
        let is_append = next.is_null()
            && entries.last().is_some_and(|&(last, _)| key.cmp_word(pool, last).is_gt());
        let moving = if is_append { entries.len() / 8 + 1 } else { entries.len() / 2 };
        domain.happens(if is_append { "a new last leaf" } else { "split of a leaf" });
        let upper = entries.split_off(entries.len() - moving);
        let first = upper.first().map_or(0, |&(word, _)| word);

        // What can fail, first.
        let fresh = self.compose(leaf, &upper, next.bits())?;
        let provision = K::with_word(pool, first, |first| self.inner.prepare(pool, first))
            .ok_or_else(damaged)??;
        let fresh = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_NEW_LEAF);
            fresh.flush()
        };
        let link = fresh.link();
        let moved = upper.iter().fold(0u64, |moved, &(_, slot)| moved | 1 << slot);
        let kept = bitmap & !moved;
        if domain.commits(mutants::CLEARED_BEFORE_LINKED) {
            let _: Committed = leaf.header.line.bitmap.publish(domain, kept).persist();
        }
        // I1: before the record, which any line of may be durable at any time.
        let fresh = pool.fence(fresh);
        let planned = self.plan(Plan { leaf, bitmap: kept, next: link }, fresh);
        if domain.commits(mutants::ENTERED_LATE) {
            let _: Committed = self.carry_out(&planned);
        }
        // I6: readers who find the upper half gone find the new leaf.
        let entered = K::with_word(pool, first, |first| {
            self.inner.insert(pool, provision, first, link);
        });
        debug_assert!(entered.is_some(), "a key word was a key and is none");
        let _: Committed = self.carry_out(&planned);
        self.finish(planned);
        Ok(())
    }

    /// Writes a leaf that nobody can reach, with the entries in these slots of another one.
    fn compose(
        &self,
        from: Leaf<'_>,
        entries: &[(u64, usize)],
        next: u64,
    ) -> Result<Owned<'_, D, LeafHeader, lapis_pmem::Dirty>, IndexError> {
        let domain = self.domain();
        let mut fingerprints = [0u8; FINGERPRINTS];
        let mut slots = [0u8; LARGEST_LEAF_BYTES - HEADER_BYTES];
        let mut bitmap = 0u64;
        for &(word, slot) in entries {
            let fingerprint = from.header.line.fingerprint(domain, slot);
            let value = from.slots[slot].value.load(domain);
            // Both leaves have as many slots.
            let free = from.free_slot(bitmap, fingerprint);
            let place = free * size_of::<Entry>();
            slots[place..][..8].copy_from_slice(&word.to_ne_bytes());
            slots[place + 8..][..8].copy_from_slice(&value.to_ne_bytes());
            fingerprints[free] = fingerprint;
            bitmap |= 1 << free;
        }
        let slots = &slots[..size_of_val(from.slots)];
        compose(&self.pool, bitmap, fingerprints, next, slots)
    }

    /// Sorts by the keys of the words, which come first in each pair.
    pub(super) fn sort_by_key<T>(&self, entries: &mut [(u64, T)]) {
        entries.sort_unstable_by(|one, other| K::cmp_words(&self.pool, one.0, other.0));
    }
}

/// Allocates and writes a leaf.
pub(super) fn compose<'p, D: Domain>(
    pool: &'p lapis_pmem::Pool<D>,
    bitmap: u64,
    fingerprints: [u8; FINGERPRINTS],
    next: u64,
    tail: &[u8],
) -> Result<Owned<'p, D, LeafHeader, lapis_pmem::Dirty>, IndexError> {
    let domain = pool.domain();
    let mut fresh = pool.allocate_with_tail::<LeafHeader>(tail.len())?;
    fresh.line.bitmap.store(domain, bitmap);
    for (cell, bytes) in fresh.line.fingerprints.iter().zip(fingerprints.chunks_exact(8)) {
        cell.store(domain, u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    }
    fresh.next.store(domain, next);
    fresh.reserved.iter().for_each(|word| word.store(domain, 0));
    fresh.write_tail(0, tail);
    Ok(fresh)
}
