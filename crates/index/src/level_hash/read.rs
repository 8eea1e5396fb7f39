//! Reading without locks.

use std::ops::ControlFlow;

use lapis_pmem::{Domain, Link, persist_before_answer};

use super::levels::{Hashes, Levels};
use super::{LevelHash, mutants};
use crate::hash_table::bucket::{Bucket, is_changing};
use crate::key::IndexKey;
use crate::leaf_entries::visit_word;

/// An iteration that is under way: no movement begins meanwhile.
struct Iteration<'a, D: Domain, K: IndexKey + ?Sized>(&'a LevelHash<D, K>);

impl<D: Domain, K: IndexKey + ?Sized> Drop for Iteration<'_, D, K> {
    fn drop(&mut self) {
        self.0.iterations().count(false);
    }
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    #[inline(always)]
    pub(super) fn prefetch_buckets(&self, levels: Levels, hashes: Hashes) {
        levels.candidates(hashes).into_iter().for_each(|link| self.pool.prefetch(link));
    }

    /// The bucket and slot of a key, and which of its hashes led there. For the holder of its lock, or who
    /// looks whether that was taken.
    #[inline(always)]
    pub(super) fn find(
        &self,
        levels: Levels,
        hashes: Hashes,
        key: &K,
        tag: u64,
    ) -> Option<Place<'_>> {
        levels.candidates(hashes).into_iter().enumerate().find_map(|(at, link)| {
            let bucket = self.bucket(link);
            let slot = bucket.find(&self.pool, key, tag)?;
            Some(Place { bucket, slot, hash: at & 1 })
        })
    }

    /// The value of a key. Whoever reads byte strings has pinned the pool.
    #[inline(always)]
    pub(super) fn look_up(&self, key: &K) -> Option<u64> {
        let (hashes, tag) = (self.hashes_of(key), key.tag());
        loop {
            if let Some(found) = self.try_look_up(hashes, key, tag) {
                return found;
            }
        }
    }

    /// One attempt: the outer option is none if a writer has completed meanwhile.
    #[inline(always)]
    fn try_look_up(&self, hashes: Hashes, key: &K, tag: u64) -> Option<Option<u64>> {
        let (domain, levels) = (self.domain(), self.levels());
        self.prefetch_buckets(levels, hashes);
        let lock = &self.bucket(levels.leader(levels.group_of(hashes.0[0]))).lock;
        let before = lock.read(domain);
        let found = self.find(levels, hashes, key, tag);
        let value = found.map(|place| place.bucket.entries[place.slot].value.load_acquire(domain));
        let now = lock.reread(domain);
        // In this order: while the table is in use, the word is that of the same group.
        let is_same = now.is_same_section(before) || domain.commits(mutants::ANSWER_UNCHECKED);
        // Growing freezes the lock, and its word says so. Only the top level tells of what is done afterwards, under other
        // locks, to what has become the bottom level: to a reader that is held up twice, before it reads the lock and behind.
        if !is_same || self.top() != levels.top {
            return None;
        }
        if is_changing(now, self.generation) {
            let candidates = levels.candidates(hashes);
            persist_before_answer(domain, candidates.map(|link| self.bucket(link)));
        }
        Some(value)
    }

    /// Visits all entries, pinned.
    pub(super) fn visit_entries(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        let _guard = self.pool.pin();
        self.iterations().count(true);
        let _iteration = Iteration(self);
        // If the table grows meanwhile, what was the bottom level stays as it was at that moment, and what
        // comes above need not be visited.
        let levels = self.current_levels();
        // What may be on its way from one bucket to another since before.
        let moved = self
            .moved_slot(levels)
            .and_then(|(_, word)| K::with_word(&self.pool, word, |key| (key.tag(), key.to_buf())));
        let is_moved = |word| {
            let moved = moved.as_ref();
            moved.is_some_and(|(tag, key)| K::borrow(key).eq_word(&self.pool, *tag, word))
        };
        let mut entries = Vec::new();
        for level in levels.both() {
            for number in 0..level.len() {
                self.read_bucket(level.at(number), &mut entries);
                for &(word, value) in entries.iter().filter(|(word, _)| !is_moved(*word)) {
                    if visit_word::<D, K, _>(&self.pool, word, value, visit).is_break() {
                        return;
                    }
                }
            }
        }
        if let Some((_, key)) = &moved
            && let Some(value) = self.look_up(K::borrow(key))
        {
            let _: ControlFlow<()> = visit(K::borrow(key), value);
        }
    }

    /// The levels as they are at one instant.
    pub(super) fn current_levels(&self) -> Levels {
        loop {
            let levels = self.levels();
            if self.top() == levels.top {
                return levels;
            }
        }
    }

    /// Copies the entries of a bucket as they are at one instant.
    fn read_bucket(&self, link: Link<Bucket>, entries: &mut Vec<(u64, u64)>) {
        let (domain, bucket) = (self.domain(), self.bucket(link));
        loop {
            entries.clear();
            let levels = self.current_levels();
            let Some(group) = levels.group_at(link) else {
                // It was in a bottom level that is in use no longer, and stays as it was.
                return entries.extend(bucket.occupied(domain));
            };
            let lock = &self.bucket(levels.leader(group)).lock;
            let before = lock.read(domain);
            entries.extend(bucket.occupied(domain));
            let now = lock.reread(domain);
            let is_same =
                now.is_same_section(before) || domain.commits(mutants::SCANNED_BUCKET_UNCHECKED);
            if is_same && self.top() == levels.top {
                if is_changing(now, self.generation) {
                    persist_before_answer(domain, [bucket]);
                }
                return;
            }
        }
    }
}

/// A slot in which a key is, or can be.
pub(super) struct Place<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) slot: usize,
    /// Which of the key's hashes leads there.
    pub(super) hash: usize,
}
