//! Insert, update and remove, under the lock of the key's chain.

use lapis_pmem::{Committed, Domain, Link, LockWait};

use super::{PClht, damaged_chain, mutants};
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket, BucketImage, Entry, FROZEN};
use crate::hash_table::locks::{HeldLock, is_publishing};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;

/// Where a key is, in a chain that is locked.
enum Located<'a> {
    Present { before: Option<&'a Bucket>, bucket: &'a Bucket, slot: usize },
    Absent { free: Option<(&'a Bucket, usize)>, last: &'a Bucket },
}

/// A chain, locked.
struct Held<'a, D: Domain> {
    head: &'a Bucket,
    lock: HeldLock<'a, D>,
}

impl<D: Domain, K: IndexKey + ?Sized> PClht<D, K> {
    /// Locks the chain of a hash.
    #[inline(always)]
    fn lock(&self, hash: u64) -> Result<Held<'_, D>, IndexError> {
        let mut wait = LockWait::default();
        // Looks at the table anew each time: another may have taken its place, and the lock that was
        // waited for will never be free.
        loop {
            // A word in a table that has been freed must not be written to, not even to be locked.
            let guard = self.pool.pin();
            if let Some(held) = self.try_lock(hash)? {
                return Ok(held);
            }
            // Nothing that was seen is looked at again, and who waits keeps nothing from being freed.
            drop(guard);
            wait.once(self.domain());
        }
    }

    /// Locks the chain of a hash in the current table, if it is free.
    #[inline(always)]
    fn try_lock(&self, hash: u64) -> Result<Option<Held<'_, D>>, IndexError> {
        let (domain, generation) = (self.domain(), self.generation);
        let table = self.table();
        // I1: nothing is put into a table that a power cut could take away again. This is read
        // after `top`, and `PUBLISHING` was stored before it.
        if is_publishing(self.growing(), domain, generation) {
            return Ok(None);
        }
        let head = self.pool.try_at(table.at(self.chain_of(table, hash)));
        let head = head.ok_or_else(damaged_chain)?;
        let lock = HeldLock::try_take_cleared(&head.lock, domain, generation, FROZEN);
        Ok(lock.map(|lock| Held { head, lock }))
    }

    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        match change {
            Change::Insert(value) => self.upsert(key, value, false),
            Change::Put(value) => self.upsert(key, value, true),
            Change::Update(value) => self.update_key(key, value),
            Change::Remove => self.remove_key(key),
        }
    }

    /// Finds a key, or the place for it, in a chain that is locked.
    #[inline(always)]
    fn locate<'a>(&'a self, head: &'a Bucket, key: &K) -> Result<Located<'a>, IndexError> {
        let tag = key.tag();
        let (mut before, mut bucket, mut free) = (None, head, None);
        for _ in 0..self.hop_limit() {
            if let Some(slot) = bucket.find(&self.pool, key, tag) {
                return Ok(Located::Present { before, bucket, slot });
            }
            if free.is_none() {
                free = bucket.free_slot(self.domain()).map(|slot| (bucket, slot));
            }
            match self.after(bucket)? {
                Some(next) => (before, bucket) = (Some(bucket), next),
                None => return Ok(Located::Absent { free, last: bucket }),
            }
        }
        Err(damaged_chain())
    }

    /// Adds an entry that is absent, and lets go. Returns whether the chain became longer.
    fn add(
        &self,
        held: HeldLock<'_, D>,
        key: &K,
        value: u64,
        free: Option<(&Bucket, usize)>,
        last: &Bucket,
    ) -> Result<(Committed, bool), IndexError> {
        let domain = self.domain();
        let word = key.make_word(&self.pool)?;
        if let Some((bucket, slot)) = free {
            // I2: the key is durable before its bit can be.
            let word = word.fence_if(&self.pool, false);
            bucket.fill(domain, slot, word.bits(), value);
            let occupancy = bucket.occupancy(domain) | 1 << slot;
            let visible = bucket.publish_occupancy(domain, Some(word), occupancy);
            return Ok((held.persist(visible), false));
        }
        domain.happens("a chain has one bucket more");
        let bucket = self.pool.allocate::<Bucket>()?;
        self.count_overflow(true);
        bucket.write(domain, &BucketImage::of(&[(word.bits(), value)], Link::NULL));
        // I4: one fence makes the bucket and its key durable before the link exists.
        let new = self.pool.fence((bucket.flush(), word));
        let next = last.next.word();
        let _mutant = domain.omitting(mutants::UNFLUSHED_NEXT_POINTER);
        let visible = next.publish_word(domain, new, |(bucket, _)| bucket.link().bits());
        Ok((held.persist(visible), true))
    }

    /// Replaces the value in an occupied slot, if there is another, and lets go.
    #[inline(always)]
    fn replace(&self, held: HeldLock<'_, D>, entry: &Entry, value: Option<u64>) -> Outcome {
        let previous = Some(entry.value.load(self.domain()));
        let Some(value) = value else {
            held.leave_unchanged();
            return Outcome::unchanged(previous);
        };
        Outcome { previous, committed: held.persist(entry.value.publish(self.domain(), value)) }
    }

    /// Adds or, if `replace`, changes a key.
    #[inline(always)]
    fn upsert(&self, key: &K, value: u64, replace: bool) -> Result<Outcome, IndexError> {
        key.validate()?;
        let held = self.lock(self.hash_of(key))?;
        match self.locate(held.head, key)? {
            Located::Present { bucket, slot, .. } => {
                Ok(self.replace(held.lock, &bucket.entries[slot], replace.then_some(value)))
            }
            Located::Absent { free, last } => {
                let (committed, longer) = self.add(held.lock, key, value, free, last)?;
                if longer {
                    self.note_overflow();
                }
                Ok(Outcome { previous: None, committed })
            }
        }
    }

    /// Replaces the value of a key that is present.
    #[inline]
    fn update_key(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        key.validate()?;
        let held = self.lock(self.hash_of(key))?;
        let Located::Present { bucket, slot, .. } = self.locate(held.head, key)? else {
            held.lock.leave_unchanged();
            return Ok(Outcome::unchanged(None));
        };
        Ok(self.replace(held.lock, &bucket.entries[slot], Some(value)))
    }

    /// Takes a key away; an overflow bucket goes with its last entry.
    fn remove_key(&self, key: &K) -> Result<Outcome, IndexError> {
        key.validate()?;
        let domain = self.domain();
        let held = self.lock(self.hash_of(key))?;
        let Located::Present { before, bucket, slot } = self.locate(held.head, key)? else {
            held.lock.leave_unchanged();
            return Ok(Outcome::unchanged(None));
        };
        let previous = Some(bucket.entries[slot].value.load(domain));
        let word = bucket.entries[slot].key.load(domain);
        let left = bucket.occupancy(domain) & !(1 << slot);
        let emptied = (before.filter(|_| left == 0))
            .map(|before| (before, before.next.load(domain)))
            .filter(|(_, link)| !self.is_in_unit(*link));
        // Readers that do not pin rely on this section's being counted before anything is retired.
        let committed = match emptied {
            Some((before, _)) => {
                domain.happens("an empty bucket leaves its chain");
                // I5: the bucket goes with its last entry, by one store.
                self.count_overflow(false);
                let _mutant = domain.omitting(mutants::UNFLUSHED_UNLINKING);
                held.lock.persist(before.next.redirect(domain, bucket.next.load(domain)))
            }
            None => {
                let _mutant = domain.omitting(mutants::UNFLUSHED_REMOVE);
                held.lock.persist(bucket.publish_occupancy(domain, None, left))
            }
        };
        if let Some((_, link)) = emptied {
            self.pool.retire(link, BUCKET_BYTES, committed, &self.pool.pin());
        }
        if !K::INLINE {
            K::retire_word(&self.pool, word, committed, &self.pool.pin());
        }
        Ok(Outcome { previous, committed })
    }
}
