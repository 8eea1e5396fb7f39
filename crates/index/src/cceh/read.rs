//! Reading without locks.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use lapis_pmem::{Domain, persist_before_answer};

use super::segment::{Prefix, Segment, hash_of_word};
use super::{Cceh, leads_out_of_the_pool, mutants};
use crate::key::IndexKey;
use crate::leaf_entries::visit_word;

impl<D: Domain, K: IndexKey + ?Sized> Cceh<D, K> {
    /// One attempt at reading a key, pinned: the outer option is none if a writer has completed
    /// meanwhile.
    #[inline(always)]
    pub(super) fn try_get(&self, hash: u64, key: &K, tag: u64) -> Option<Option<u64>> {
        let domain = self.domain();
        let reference = self.reference(hash);
        let segment = reference.and_then(|reference| self.segment(reference.link()));
        let Some(segment) = segment else { leads_out_of_the_pool() };
        self.prefetch_window(segment, hash);
        let lock = &segment.header.lock;
        let before = lock.read(domain);
        let found = segment.find(&self.pool, hash, key, tag);
        let found = found.map(|entry| entry.value.load_acquire(domain));
        let now = lock.reread(domain);
        let is_same = now.is_same_section(before) || domain.commits(mutants::ANSWER_UNCHECKED);
        let is_there = is_same
            && (self.reference(hash) == reference || domain.commits(mutants::DIRECTORY_UNCHECKED));
        if !is_there {
            return None;
        }
        if now.is_locked(self.generation) {
            persist_before_answer(domain, segment.window(hash));
        }
        Some(found)
    }

    /// Visits all entries, pinned, one segment after the other in the order of hashes.
    pub(super) fn visit_entries(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        let _guard = self.pool.pin();
        let mut entries = Vec::new();
        let mut from = Some(0);
        while let Some(start) = from {
            let prefix = loop {
                if let Some(prefix) = self.read_segment(start, &mut entries) {
                    break prefix;
                }
            };
            for &(hash, word, value) in &entries {
                // Below `start` is what was visited before its segment was merged with this.
                if hash >= start && visit_word::<D, K, _>(&self.pool, word, value, visit).is_break()
                {
                    return;
                }
            }
            from = prefix.end();
        }
    }

    /// Copies the entries of the segment that a hash is in: each line as it is at one instant. None if
    /// the segment was replaced or divided meanwhile.
    fn read_segment(&self, hash: u64, entries: &mut Vec<(u64, u64, u64)>) -> Option<Prefix> {
        let (domain, directory) = (self.domain(), self.directory());
        let reference = self.reference_in(directory, hash);
        let segment = reference.and_then(|reference| self.segment(reference.link()));
        let (Some(reference), Some(segment)) = (reference, segment) else {
            leads_out_of_the_pool()
        };
        // A damaged entry may claim more depth than its directory has, and so little of the hashes that
        // to visit them all would not end.
        let prefix = Prefix::of(hash, reference.depth().min(directory.log2()));
        entries.clear();
        let lock = &segment.header.lock;
        let first = lock.read(domain);
        let mut before = first;
        for line in segment.lines {
            let kept = entries.len();
            loop {
                for entry in &line.entries {
                    let word = entry.key.load_acquire(domain);
                    let value = entry.value.load_acquire(domain);
                    if let Ok(Some(hash)) =
                        hash_of_word::<D, K>(&self.pool, prefix, word, self.seed)
                    {
                        entries.push((hash, word, value));
                    }
                }
                let now = lock.reread(domain);
                if now.is_same_section(before) || domain.commits(mutants::SCANNED_LINE_UNCHECKED) {
                    break;
                }
                before = now;
                entries.truncate(kept);
            }
        }
        if self.reference(hash) != Some(reference)
            && !domain.commits(mutants::SCANNED_SEGMENT_UNCHECKED)
        {
            return None;
        }
        if lock.reread(domain).is_locked(self.generation) {
            self.persist_lines(segment);
        }
        if before != first {
            self.leave_each_once(entries);
        }
        Some(prefix)
    }

    /// A key that was removed and added again meanwhile may have been read in two lines.
    #[cold]
    fn leave_each_once(&self, entries: &mut Vec<(u64, u64, u64)>) {
        let same = |one: u64, other: u64| K::cmp_words(&self.pool, one, other) == Ordering::Equal;
        entries.sort_unstable();
        entries.dedup_by(|later, earlier| later.0 == earlier.0 && same(later.1, earlier.1));
    }

    #[cold]
    fn persist_lines(&self, segment: Segment<'_>) {
        persist_before_answer(self.domain(), segment.lines);
    }
}
