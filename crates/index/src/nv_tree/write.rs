//! Changes: one record appended, or one flag set, under the lock of the leaf.

use lapis_pmem::{Committed, Dirty, Domain, Guard, Owned};

use super::inner::Probe;
use super::leaf::{HEADER_BYTES, Leaf, LeafHeader, Newest};
use super::{NvTree, mutants};
use crate::index::{Change, IndexError, Outcome};
use crate::key::{IndexKey, KeyWord};
use crate::leaf_locks::LeafLocks;

/// Blocks that were allocated ahead of a change, because there was no room while readers, this
/// thread among them, kept retired ones from being used.
pub(super) struct Supplies<'p, D: Domain> {
    leaves: Vec<Owned<'p, D, LeafHeader, Dirty>>,
    word: Option<KeyWord<'p, D>>,
}

impl<D: Domain> Supplies<'_, D> {
    pub(super) fn none() -> Self {
        Self { leaves: Vec::new(), word: None }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        match self.try_change(key, change, &mut Supplies::none()) {
            Ok(outcome) => Ok(outcome),
            Err(error) if matches!(*error, IndexError::Alloc(_)) => {
                self.change_with_supplies(key, change)
            }
            Err(error) => Err(*error),
        }
    }

    /// Makes `change` with blocks that are there before. Nothing is pinned or locked.
    #[cold]
    #[inline(never)]
    fn change_with_supplies(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        let mut supplies = Supplies::none();
        for _ in 0..2 {
            let leaf = self.pool.allocate_with_tail(self.leaf_bytes - HEADER_BYTES)?;
            supplies.leaves.push(leaf);
        }
        if !K::INLINE {
            supplies.word = Some(key.make_word(&self.pool)?);
        }
        self.try_change(key, change, &mut supplies).map_err(|error| *error)
    }

    /// A block for a leaf.
    pub(super) fn leaf_block<'p>(
        &'p self,
        supplies: &mut Supplies<'p, D>,
    ) -> Result<Owned<'p, D, LeafHeader, Dirty>, IndexError> {
        match supplies.leaves.pop() {
            Some(block) => Ok(block),
            None => Ok(self.pool.allocate_with_tail(self.leaf_bytes - HEADER_BYTES)?),
        }
    }

    pub(super) fn key_word<'p>(
        &'p self,
        key: &K,
        supplies: &mut Supplies<'p, D>,
    ) -> Result<KeyWord<'p, D>, IndexError> {
        match supplies.word.take() {
            Some(word) => Ok(word),
            None => Ok(key.make_word(&self.pool)?),
        }
    }

    /// A result of two words, which stays in registers. One that is copied by wider loads than the stores it was just
    /// written by waits until they have been drained, and with them what the change has flushed.
    #[inline(always)]
    fn try_change<'p>(
        &'p self,
        key: &K,
        change: Change,
        supplies: &mut Supplies<'p, D>,
    ) -> Result<Outcome, Box<IndexError>> {
        let domain = self.domain();
        let mut space = [0; 8];
        let probe = Probe::up_to(key.bytes(&mut space));
        let pinned = self.pool.pin();
        loop {
            let Some((directory, found, leaf)) = self.arrive(probe, &pinned) else {
                let (Change::Insert(value) | Change::Put(value)) = change else {
                    return Ok(unchanged(None));
                };
                match self.plant(key, value, supplies, &pinned)? {
                    Some(committed) => return Ok(Outcome { previous: None, committed }),
                    None => continue,
                }
            };
            let _turn = self.locks.hold(domain, LeafLocks::number_of(leaf.link));
            // What is current now stays so while the lock is held (I7).
            if self.is_current(directory, &found, &pinned) {
                return self.change_in(leaf, key, change, probe, supplies, &pinned);
            }
        }
    }

    /// Makes the change in the key's leaf, which is locked. Everything in it is durable.
    #[inline(always)]
    fn change_in<'p>(
        &'p self,
        leaf: Leaf<'p>,
        key: &K,
        change: Change,
        probe: Probe<'_>,
        supplies: &mut Supplies<'p, D>,
        pinned: &Guard<'_, D>,
    ) -> Result<Outcome, Box<IndexError>> {
        let domain = self.domain();
        let count = leaf.count(domain);
        let newest = self.newest(leaf, count, key);
        let present = newest.filter(|newest| !newest.deleted);
        let previous = present.map(|newest| newest.value);
        let value = match (change, present) {
            (Change::Insert(value) | Change::Put(value), None)
            | (Change::Update(value) | Change::Put(value), Some(_)) => value,
            (Change::Remove, Some(newest)) => {
                let committed = self.remove_in(leaf, count, newest, probe, pinned);
                return Ok(Outcome { previous, committed });
            }
            _ => return Ok(unchanged(previous)),
        };
        // I4: a key has one word per leaf, whether it is present or not.
        let word = match newest {
            Some(newest) => KeyWord::again(newest.word),
            None => self.key_word(key, supplies)?,
        };
        let committed = if count < self.capacity {
            self.append(leaf, count, word, value, false)
        } else {
            self.reorganise(leaf, count, (word, value), probe, supplies, pinned)?
        };
        Ok(Outcome { previous, committed })
    }

    /// Appends a record to a leaf that has room: the record durable, then the count (I2).
    #[inline(always)]
    fn append(
        &self,
        leaf: Leaf<'_>,
        count: usize,
        word: KeyWord<'_, D>,
        value: u64,
        deleted: bool,
    ) -> Committed {
        let domain = self.domain();
        let record = &leaf.records[count];
        record.key.store(domain, word.bits());
        record.value.store(domain, value);
        // I2: record and key are durable before the count can be.
        let word = {
            let _mutant = domain.omitting(mutants::COUNT_BEFORE_RECORD);
            self.pool.persist_with(record, word)
        };
        if domain.commits(mutants::FLAG_AFTER_COUNT) {
            leaf.header.count.store_ordered(domain, count as u64 + 1);
            self.set_flag(leaf, count, deleted);
            domain.persist(leaf.header);
            return Committed::nothing_to_do();
        }
        // I3: the flag is in the line of the count, and stored before it.
        self.set_flag(leaf, count, deleted);
        leaf.header.count.publish_word(domain, word, |_| count as u64 + 1).persist()
    }

    /// Says of a record that does not count yet what it will be (I3).
    #[inline(always)]
    fn set_flag(&self, leaf: Leaf<'_>, slot: usize, deleted: bool) {
        let domain = self.domain();
        if leaf.is_deleted(domain, slot) == deleted {
            return;
        }
        let flags = &leaf.header.deleted[slot / 64];
        flags.store_ordered(domain, flags.load(domain) ^ 1 << (slot % 64));
    }

    /// Takes away the key of `newest`.
    #[inline]
    fn remove_in(
        &self,
        leaf: Leaf<'_>,
        count: usize,
        newest: Newest,
        probe: Probe<'_>,
        pinned: &Guard<'_, D>,
    ) -> Committed {
        let domain = self.domain();
        if !self.has_others(leaf, count, newest.word) {
            // I5: a leaf leaves with its last key.
            return self.unlink(leaf, count, probe, pinned);
        }
        let (committed, count) = if count < self.capacity {
            (self.append(leaf, count, KeyWord::again(newest.word), 0, true), count + 1)
        } else {
            domain.happens("a removal from a full leaf");
            // A full leaf takes no record more, and a removal must not need room: the newest record
            // becomes the deletion itself, by one store.
            let flags = &leaf.header.deleted[newest.slot / 64];
            let marked = flags.load(domain) | 1 << (newest.slot % 64);
            (flags.publish(domain, marked).persist(), count)
        };
        let hint = leaf.live_hint(domain, count);
        if hint <= self.capacity / 4 && (hint == 0 || hint.is_power_of_two()) {
            self.merge(leaf, probe, pinned);
        }
        committed
    }
}

fn unchanged(previous: Option<u64>) -> Outcome {
    Outcome { previous, committed: Committed::nothing_to_do() }
}
