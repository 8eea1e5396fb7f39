//! Reading without locks.

use lapis_pmem::{Domain, LockWord, persist_before_answer};

use super::{PClht, mutants};
use crate::hash_table::bucket::{Bucket, is_changing};
use crate::hash_table::table::Table;
use crate::key::IndexKey;

/// What a reader has seen before it reads a chain.
#[derive(Clone, Copy)]
struct Look<'a> {
    table: Table<Bucket>,
    head: &'a Bucket,
    word: LockWord,
}

impl<D: Domain, K: IndexKey + ?Sized> PClht<D, K> {
    /// Finds the chain of a hash and looks at its lock.
    #[inline(always)]
    fn look(&self, hash: u64) -> Look<'_> {
        let table = self.table();
        let head = self.pool.at(table.at(self.chain_of(table, hash)));
        Look { table, head, word: head.lock.read(self.domain()) }
    }

    /// The lock's word now, if no change of the chain was completed and the table was not replaced
    /// since the look. Then nothing that was read between had been freed: buckets are retired after
    /// the section that unlinked them is counted, tables after another has taken their place, and
    /// tables only become larger, so that `top` never has a value it once had.
    #[inline(always)]
    fn still(&self, look: &Look<'_>) -> Option<LockWord> {
        let domain = self.domain();
        let word = look.head.lock.reread(domain);
        // In this order: while the table is in use, the word is that of the same bucket.
        let same_section =
            look.word.is_same_section(word) || domain.commits(mutants::ANSWER_UNCHECKED);
        let same = same_section
            && (self.table() == look.table || domain.commits(mutants::TABLE_UNCHECKED));
        same.then_some(word)
    }

    /// Makes durable what a reader has seen in a chain that a writer is changing: the buckets from
    /// `head` to `last` (to the end if none), for a key may be visible, or gone, by a `next` before
    /// its bucket.
    #[cold]
    #[inline(never)]
    fn persist_before_return(&self, head: &Bucket, last: Option<&Bucket>) {
        let mut at = None;
        let chain = std::iter::from_fn(|| {
            at = match at {
                None => Some(head),
                Some(bucket) if last.is_some_and(|last| std::ptr::eq(last, bucket)) => None,
                // A link to nowhere is one that the writer has left behind for others: its change
                // is complete, hence durable.
                Some(bucket) => self.after(bucket).ok().flatten(),
            };
            at
        });
        persist_before_answer(self.domain(), chain.take(self.hop_limit()));
    }

    /// The value of a key. Whoever reads byte strings has pinned the pool.
    ///
    /// Most are in the first bucket of a chain that nobody changes: few instructions decide that.
    #[inline(always)]
    pub(super) fn look_up(&self, key: &K) -> Option<u64> {
        let (hash, tag) = (self.hash_of(key), key.tag());
        let look = self.look(hash);
        if let Some(slot) = look.head.find_in(look.word, &self.pool, key, tag) {
            let value = look.head.entries[slot].value.load_acquire(self.domain());
            let unchanged = look.head.lock.reread(self.domain()) == look.word;
            if unchanged && look.word.is_free_in_every_generation() && self.table() == look.table {
                return Some(value);
            }
        }
        self.look_up_anywhere(hash, key, tag)
    }

    #[inline(never)]
    fn look_up_anywhere(&self, hash: u64, key: &K, tag: u64) -> Option<u64> {
        loop {
            if let Some(found) = self.try_get(hash, key, tag) {
                return found;
            }
        }
    }

    /// One attempt at reading a key: the outer option is none if a writer has completed meanwhile.
    #[inline(always)]
    fn try_get(&self, hash: u64, key: &K, tag: u64) -> Option<Option<u64>> {
        let look = self.look(hash);
        let mut bucket = look.head;
        let mut hops = 0;
        loop {
            if let Some(slot) = bucket.find(&self.pool, key, tag) {
                let value = bucket.entries[slot].value.load_acquire(self.domain());
                let now = self.still(&look)?;
                if is_changing(now, self.generation) {
                    self.persist_before_return(look.head, Some(bucket));
                }
                return Some(Some(value));
            }
            let next = bucket.next.load(self.domain());
            let now = self.still(&look)?;
            if next.is_null() {
                if is_changing(now, self.generation) {
                    self.persist_before_return(look.head, None);
                }
                return Some(None);
            }
            bucket = self.pool.at(next);
            hops += 1;
            assert!(
                hops <= self.hop_limit(),
                "the pool is damaged: a chain of buckets has a cycle"
            );
        }
    }

    /// Copies the entries of chain `index` of a table, which the caller keeps from being freed, as
    /// they are at one instant.
    pub(super) fn read_chain(
        &self,
        table: Table<Bucket>,
        index: u64,
        entries: &mut Vec<(u64, u64)>,
    ) {
        let domain = self.domain();
        let head = self.pool.at(table.at(index));
        loop {
            entries.clear();
            let seen = head.lock.read(domain);
            let (mut bucket, mut hops) = (head, 0);
            loop {
                entries.extend(bucket.occupied(domain));
                let next = bucket.next.load(domain);
                if next.is_null() || !head.lock.reread(domain).is_same_section(seen) {
                    break;
                }
                bucket = self.pool.at(next);
                hops += 1;
                assert!(
                    hops <= self.hop_limit(),
                    "the pool is damaged: a chain of buckets has a cycle"
                );
            }
            let now = head.lock.reread(domain);
            if now.is_same_section(seen) {
                if is_changing(now, self.generation) {
                    let _mutant = domain.omitting(mutants::UNPERSISTED_WALK);
                    self.persist_before_return(head, None);
                }
                return;
            }
        }
    }
}
