//! The locks: one in the line of each chain's first bucket, and one in the index root for growing.
//!
//! Both are [`GenerationLock`]s, so that a lock which a crash has left behind is free. The seven
//! bits of payload of a bucket's word:
//!
//! ```text
//!  6      4    3     2      0
//! +--------+--------+-----------+
//! |  zero  | frozen | occupancy |
//! +--------+--------+-----------+
//! ```
//!
//! `frozen` says of a *locked* word that its holder changes nothing: the chain is being, or has
//! been, copied into a larger table. It means nothing in a word that is free, and whoever finds it
//! there takes it away. The locks of a table that has been replaced are never given back. Hence a
//! lock that could be taken belongs to the current table, which is not replaced while it is held.

use lapis_pmem::{Domain, GenerationLock, LockWait, LockWord};

use super::PClht;
use super::bucket::{Bucket, FROZEN, Table};
use super::{IndexError, damaged_chain};
use crate::key::IndexKey;

/// The payload of the lock for growing while `top` is being replaced: a new table may be visible
/// that is not durable yet.
pub(super) const PUBLISHING: u8 = 1;

/// A chain, locked. Dropping it counts one more section and lets go.
#[must_use]
pub(super) struct Held<'a, D: Domain> {
    pub(super) head: &'a Bucket,
    domain: &'a D,
    changed: bool,
}

impl<D: Domain> Held<'_, D> {
    /// Lets go without counting: nothing was changed.
    #[inline(always)]
    pub(super) fn leave_unchanged(mut self) {
        self.changed = false;
    }
}

impl<D: Domain> Drop for Held<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.changed {
            self.head.lock.unlock(self.domain);
        } else {
            self.head.lock.unlock_unchanged(self.domain);
        }
    }
}

/// What a reader has seen before it reads a chain.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    table: Table,
    pub(super) head: &'a Bucket,
    word: LockWord,
}

impl<D: Domain, K: IndexKey + ?Sized> PClht<D, K> {
    /// Finds the chain of a hash and looks at its lock.
    #[inline(always)]
    pub(super) fn look(&self, hash: u64) -> Look<'_> {
        let table = self.table();
        let head = self.pool.at(table.head_link(table.index_of(hash)));
        Look { table, head, word: head.lock.read(self.domain()) }
    }

    /// The lock's word now, if no change of the chain was completed and the table was not replaced
    /// since the look. Then nothing that was read between had been freed: buckets are retired after
    /// the section that unlinked them is counted, tables after another has taken their place, and
    /// tables only become larger, so that `top` never has a value it once had.
    #[inline(always)]
    pub(super) fn still(&self, look: &Look<'_>) -> Option<LockWord> {
        let word = look.head.lock.reread(self.domain());
        // In this order: while the table is in use, the word is that of the same bucket.
        let same = look.word.is_same_section(word);
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        (same && self.table() == look.table).then_some(word)
    }

    /// Locks the chain of a hash.
    #[inline(always)]
    pub(super) fn lock(&self, hash: u64) -> Result<Held<'_, D>, IndexError> {
        // A word in a table that has been freed must not be written to, not even to be locked.
        let _guard = self.pool.pin();
        match self.try_lock(hash)? {
            Some(held) => Ok(held),
            None => self.lock_contended(hash),
        }
    }

    /// Locks the chain of a hash in the current table, if it is free.
    #[inline(always)]
    fn try_lock(&self, hash: u64) -> Result<Option<Held<'_, D>>, IndexError> {
        let (domain, generation) = (self.domain(), self.generation);
        let table = self.table();
        // I1: nothing is put into a table that a power cut could take away again. This is read
        // after `top`, and `PUBLISHING` was stored before it.
        let growing = self.growing().read(domain);
        if growing.payload() & PUBLISHING != 0 && growing.is_locked(generation) {
            return Ok(None);
        }
        let head = self.pool.try_at(table.head_link(table.index_of(hash)));
        let head = head.ok_or_else(damaged_chain)?;
        let Some(before) = head.lock.try_lock(domain, generation) else { return Ok(None) };
        if before.payload() & FROZEN != 0 {
            // Left behind by a growth that was cut short.
            head.lock.set_payload(domain, before.payload() & !FROZEN);
        }
        Ok(Some(Held { head, domain, changed: true }))
    }

    /// Looks at the table anew each time: another may have taken its place, and the lock that was
    /// waited for will never be free.
    #[cold]
    fn lock_contended(&self, hash: u64) -> Result<Held<'_, D>, IndexError> {
        let mut wait = LockWait::default();
        loop {
            wait.once(self.domain());
            if let Some(held) = self.try_lock(hash)? {
                return Ok(held);
            }
        }
    }

    /// The lock of whoever grows the table.
    #[inline(always)]
    pub(super) fn growing(&self) -> &GenerationLock {
        GenerationLock::in_word(&self.root().words[0])
    }
}

/// Chains of a table that are locked for copying: the first so many. Dropping this lets go of them
/// without counting, for nothing was changed.
#[must_use]
pub(super) struct Frozen<'a, D: Domain, K: IndexKey + ?Sized> {
    index: &'a PClht<D, K>,
    table: Table,
    chains: u64,
}

impl<'a, D: Domain, K: IndexKey + ?Sized> Frozen<'a, D, K> {
    pub(super) fn none_of(index: &'a PClht<D, K>, table: Table) -> Self {
        Self { index, table, chains: 0 }
    }

    /// Waits for the writer of the next chain and keeps others out. None if the chain is damaged.
    pub(super) fn freeze_next(&mut self) -> Option<&'a Bucket> {
        let (index, domain) = (self.index, self.index.domain());
        let head = index.pool.try_at(self.table.head_link(self.chains))?;
        // In ascending order; writers hold one lock and wait for none.
        let before = head.lock.lock(domain, index.generation);
        head.lock.set_payload(domain, before.payload() | FROZEN);
        self.chains += 1;
        Some(head)
    }

    /// Leaves the chains locked for ever: another table has taken their place.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Drop for Frozen<'_, D, K> {
    fn drop(&mut self) {
        let domain = self.index.domain();
        for chain in 0..self.chains {
            let head = self.index.pool.at(self.table.head_link(chain));
            let held = head.lock.read(domain);
            head.lock.set_payload(domain, held.payload() & !FROZEN);
            head.lock.unlock_unchanged(domain);
        }
    }
}
