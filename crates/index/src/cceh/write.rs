//! Insert, update and remove, under the lock of the key's segment.

use lapis_pmem::{Committed, Domain, LockWait};

use super::segment::{Entry, Prefix, Segment};
use super::{Cceh, damaged_directory, mutants};
use crate::hash_table::locks::HeldLock;
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;

/// A segment, locked, and the hashes that it is for.
pub(super) struct Locked<'a, D: Domain> {
    pub(super) segment: Segment<'a>,
    pub(super) prefix: Prefix,
    pub(super) held: HeldLock<'a, D>,
}

impl<D: Domain, K: IndexKey + ?Sized> Cceh<D, K> {
    /// Waits for the lock for changes of the directory.
    pub(super) fn lock_structure(&self) -> HeldLock<'_, D> {
        HeldLock::take_cleared(self.structure_lock(), self.domain(), self.generation, 0)
    }

    /// Locks the segment of a hash. As long as it is locked the directory's entries for it stay.
    #[inline(always)]
    pub(super) fn lock(&self, hash: u64) -> Result<Locked<'_, D>, IndexError> {
        let mut wait = LockWait::default();
        // Looks at the directory anew each time: another segment may have taken the place of this.
        loop {
            // A word in a segment that has been freed must not be written to, not even to be locked.
            let guard = self.pool.pin();
            if let Some(locked) = self.try_lock(hash)? {
                return Ok(locked);
            }
            // Nothing that was seen is looked at again, and who waits keeps nothing from being freed.
            drop(guard);
            wait.once(self.domain());
        }
    }

    #[inline(always)]
    fn try_lock(&self, hash: u64) -> Result<Option<Locked<'_, D>>, IndexError> {
        let reference = self.reference(hash).ok_or_else(damaged_directory)?;
        let segment = self.segment(reference.link()).ok_or_else(damaged_directory)?;
        self.prefetch_window(segment, hash);
        let held = HeldLock::try_take(&segment.header.lock, self.domain(), self.generation);
        let Some(held) = held else { return Ok(None) };
        if self.reference(hash) != Some(reference) {
            held.leave_unchanged();
            return Ok(None);
        }
        let prefix = Prefix::of(hash, reference.depth());
        Ok(Some(Locked { segment, prefix, held }))
    }

    /// Asks for the first lines of a hash's window.
    #[inline(always)]
    pub(super) fn prefetch_window(&self, segment: Segment<'_>, hash: u64) {
        segment
            .window(hash)
            .take(2)
            .for_each(|line| self.domain().prefetch((&raw const *line).cast()));
    }

    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        match change {
            Change::Insert(value) => self.upsert(key, value, false),
            Change::Put(value) => self.upsert(key, value, true),
            Change::Update(value) => self.update_key(key, value),
            Change::Remove => self.remove_key(key),
        }
    }

    /// Adds or, if `replace`, changes a key.
    #[inline(always)]
    fn upsert(&self, key: &K, value: u64, replace: bool) -> Result<Outcome, IndexError> {
        let (hash, tag) = (self.hash_of(key), key.tag());
        loop {
            let Locked { segment, prefix, held } = self.lock(hash)?;
            if let Some(entry) = segment.find(&self.pool, hash, key, tag) {
                return Ok(self.change_present(entry, held, replace.then_some(value)));
            }
            if let Some(entry) = segment.free_slot::<D, K>(&self.pool, prefix, hash) {
                let added = self.add(key, value, entry);
                if added.is_err() {
                    held.leave_unchanged();
                }
                return added.map(|committed| Outcome { previous: None, committed });
            }
            self.split(Locked { segment, prefix, held })?;
        }
    }

    /// Puts an entry into a slot that is free.
    #[inline(always)]
    fn add(&self, key: &K, value: u64, entry: &Entry) -> Result<Committed, IndexError> {
        let domain = self.domain();
        // I3: the key is durable before its word counts.
        let word = key.make_word(&self.pool)?.fence_if(&self.pool, false);
        if domain.commits(mutants::KEY_BEFORE_VALUE) {
            entry.key.store_ordered(domain, word.bits());
        }
        // I3: within the line these persist in this order (R2).
        entry.value.store_ordered(domain, value);
        domain.order_in_line(&entry.value, &entry.key);
        let bits = word.bits();
        Ok(entry.key.publish_word(domain, word, |_| bits).persist())
    }

    /// What comes of a change of a key that is there: another value, or nothing.
    #[inline(always)]
    fn change_present(&self, entry: &Entry, held: HeldLock<'_, D>, value: Option<u64>) -> Outcome {
        let domain = self.domain();
        let previous = Some(entry.value.load(domain));
        let Some(value) = value else {
            held.leave_unchanged();
            return Outcome::unchanged(previous);
        };
        let committed = entry.value.publish(domain, value).persist();
        Outcome { previous, committed }
    }

    /// Replaces the value of a key that is present.
    #[inline]
    fn update_key(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        let hash = self.hash_of(key);
        let Locked { segment, held, .. } = self.lock(hash)?;
        let Some(entry) = segment.find(&self.pool, hash, key, key.tag()) else {
            held.leave_unchanged();
            return Ok(Outcome::unchanged(None));
        };
        Ok(self.change_present(entry, held, Some(value)))
    }

    /// Takes a key away; now and then its segment is merged with the buddy.
    fn remove_key(&self, key: &K) -> Result<Outcome, IndexError> {
        let (domain, hash) = (self.domain(), self.hash_of(key));
        let Locked { segment, prefix, held } = self.lock(hash)?;
        let Some(entry) = segment.find(&self.pool, hash, key, key.tag()) else {
            held.leave_unchanged();
            return Ok(Outcome::unchanged(None));
        };
        let previous = Some(entry.value.load(domain));
        let word = entry.key.load(domain);
        let committed = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_REMOVE);
            entry.key.publish(domain, prefix.vacant::<K>()).persist()
        };
        match segment.header.until_counted.load(domain) {
            0 => self.merge_if_sparse(Locked { segment, prefix, held }),
            until => {
                segment.header.until_counted.store(domain, until - 1);
                drop(held);
            }
        }
        if !K::INLINE {
            K::retire_word(&self.pool, word, committed, &self.pool.pin());
        }
        Ok(Outcome { previous, committed })
    }
}
