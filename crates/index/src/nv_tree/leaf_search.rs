//! Finding leaves, and records in a leaf.

use lapis_pmem::{Domain, Link};

use super::NvTree;
use super::leaf::{Leaf, LeafHeader, Newest, leaf_at};
use crate::integer_order::{IntegerOrder, MOST_PLACES};
use crate::key::IndexKey;

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    #[inline(always)]
    pub(super) fn try_leaf(&self, link: Link<LeafHeader>) -> Option<Leaf<'_>> {
        leaf_at(&self.pool, link, self.capacity)
    }

    #[inline(always)]
    pub(super) fn leaf(&self, link: Link<LeafHeader>) -> Leaf<'_> {
        match self.try_leaf(link) {
            Some(leaf) => leaf,
            None => beyond_the_end(link),
        }
    }

    /// Brings all lines of a leaf on their way to the cache at once.
    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, leaf: Leaf<'_>) {
        let domain = self.domain();
        domain.prefetch((&raw const *leaf.header).cast());
        if domain.prefetches() {
            for line in leaf.records.chunks(4) {
                domain.prefetch(line.as_ptr().cast());
            }
        }
    }

    /// The newest record of `key` among the first `count`: the reverse scan of the paper.
    #[inline(always)]
    pub(super) fn newest(&self, leaf: Leaf<'_>, count: usize, key: &K) -> Option<Newest> {
        let domain = self.domain();
        let tag = if K::INLINE { 0 } else { key.tag() };
        for (slot, record) in leaf.records[..count].iter().enumerate().rev() {
            let word = record.key.load(domain);
            if key.eq_word(&self.pool, tag, word) {
                let value = record.value.load(domain);
                let deleted = leaf.is_deleted(domain, slot);
                return Some(Newest { slot, word, value, deleted });
            }
        }
        None
    }

    /// Whether a key other than that of `word` is present. Within a leaf equal keys have equal
    /// words (I4).
    pub(super) fn has_others(&self, leaf: Leaf<'_>, count: usize, word: u64) -> bool {
        let domain = self.domain();
        let key_at = |slot: usize| leaf.records[slot].key.load(domain);
        (0..count).rev().any(|slot| {
            let found = key_at(slot);
            found != word
                && !leaf.is_deleted(domain, slot)
                && (slot + 1..count).all(|newer| key_at(newer) != found)
        })
    }

    /// The newest record of every key of a leaf, in the order of keys, deletions included.
    pub(super) fn newest_of_all(&self, leaf: Leaf<'_>, count: usize) -> Vec<Newest> {
        let mut all = Vec::with_capacity(count + 1);
        self.each_newest(leaf, count, |newest| all.push(newest));
        if !K::INLINE {
            all.sort_by(|one, other| K::cmp_words(&self.pool, one.word, other.word));
        }
        all
    }

    /// Calls `visit` with the newest record of every key word, in the order of words.
    #[inline(always)]
    pub(super) fn each_newest(&self, leaf: Leaf<'_>, count: usize, mut visit: impl FnMut(Newest)) {
        let domain = self.domain();
        let deleted: [u64; 2] =
            std::array::from_fn(|word| leaf.header.deleted[word].load_acquire(domain));
        let records = &leaf.records[..count];
        // Of records of one key the newest comes first.
        let place = |slot: usize| MOST_PLACES - 1 - slot;
        let keys = records.iter().map(|record| record.key.load(domain));
        let order = IntegerOrder::of(keys.enumerate().map(|(slot, word)| (word, place(slot))));
        let mut last = None;
        for (word, at) in order.entries() {
            if last.replace(word) == Some(word) {
                continue;
            }
            let slot = place(at);
            let value = records[slot].value.load(domain);
            visit(Newest {
                slot,
                word,
                value,
                deleted: deleted[slot / 64] >> (slot % 64) & 1 != 0,
            });
        }
    }
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Link<LeafHeader>) -> ! {
    panic!("the index is damaged: the leaf {link:?} does not end within the pool")
}
