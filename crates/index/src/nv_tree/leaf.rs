//! Leaves: the only part of the tree that persists.

use std::cmp::Ordering;
use std::sync::atomic::{Ordering as MemoryOrdering, fence};

use lapis_pmem::{Domain, Link, PCell, Pool, Slot, persistent};

use super::NvTree;
use crate::key::IndexKey;
use crate::node_size::NodeSizes;

persistent! {
    /// The head of a leaf: one line. See the diagram in `nv_tree/mod.rs`.
    pub(super) struct LeafHeader: 64 {
        /// Records that count (I2).
        pub(super) count: PCell<u64>,
        /// Bit i: record i takes its key away.
        pub(super) deleted: [PCell<u64>; 2],
        /// The next leaf, or null.
        pub(super) next: Slot<LeafHeader>,
        pub(super) reserved: [PCell<u64>; 4],
    }
}

persistent! {
    /// A key and what became of it. Never straddles a line.
    pub(super) struct Record: 16 {
        pub(super) key: PCell<u64>,
        pub(super) value: PCell<u64>,
    }
}

pub(super) const HEADER_BYTES: usize = size_of::<LeafHeader>();
pub(super) const RECORD_BYTES: usize = size_of::<Record>();
/// Two records at the least are left after a split; the flags have room for 124.
///
/// With leaves of the default size, full nodes of 128 and 512 entries above them put 128 million keys
/// at depth 3, as in Table 1 (d) of Lee et al., FAST 2017: 28 records to a leaf, about 19 of them in
/// use, 64 leaves to a PLN after a rebuild, and 512 PLNs to an inner node.
pub(super) const LEAF_SIZES: NodeSizes = NodeSizes {
    names: ["leaf", "leaves"],
    smallest_bytes: 128,
    largest_bytes: 2048,
    default_bytes: 512,
};
const _: () = assert!(capacity_of(LEAF_SIZES.largest_bytes) <= 128);

/// Records in a leaf of so many bytes.
pub(super) const fn capacity_of(leaf_bytes: usize) -> usize {
    (leaf_bytes - HEADER_BYTES) / RECORD_BYTES
}

/// A leaf as it lies in the pool.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'p> {
    pub(super) link: Link<LeafHeader>,
    pub(super) header: &'p LeafHeader,
    pub(super) records: &'p [Record],
}

/// The newest record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) slot: usize,
    pub(super) word: u64,
    pub(super) value: u64,
    pub(super) deleted: bool,
}

impl<'p> Leaf<'p> {
    /// How many records count; what they hold was written before. A damaged count is cut to what
    /// the leaf has room for.
    #[inline(always)]
    pub(super) fn count<D: Domain>(&self, domain: &D) -> usize {
        (self.header.count.load_acquire(domain) as usize).min(self.records.len())
    }

    #[inline(always)]
    pub(super) fn is_deleted<D: Domain>(&self, domain: &D, slot: usize) -> bool {
        self.header.deleted[slot / 64].load_acquire(domain) >> (slot % 64) & 1 != 0
    }

    #[inline(always)]
    pub(super) fn next<D: Domain>(&self, domain: &D) -> Link<LeafHeader> {
        self.header.next.load(domain)
    }

    /// At most so many keys are present, unless records were marked as deletions in place.
    pub(super) fn live_hint<D: Domain>(&self, domain: &D, count: usize) -> usize {
        let words = &self.header.deleted;
        let deletions: u32 = (0..2)
            .map(|word| {
                let below = count.saturating_sub(word * 64).min(64) as u32;
                let mask = u64::MAX.checked_shr(64 - below).unwrap_or(0);
                (words[word].load(domain) & mask).count_ones()
            })
            .sum();
        count.saturating_sub(2 * deletions as usize)
    }
}

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
        let domain = self.domain();
        let mut all: Vec<Newest> = (0..count)
            .map(|slot| {
                let record = &leaf.records[slot];
                Newest {
                    slot,
                    word: record.key.load(domain),
                    value: record.value.load(domain),
                    deleted: leaf.is_deleted(domain, slot),
                }
            })
            .collect();
        if K::INLINE {
            all.sort_unstable_by_key(|record| (record.word, !record.slot));
            all.dedup_by_key(|record| record.word);
        } else {
            all.sort_unstable_by_key(|record| (record.word, !record.slot));
            all.dedup_by_key(|record| record.word);
            all.sort_by(|one, other| compare_words::<D, K>(&self.pool, one.word, other.word));
        }
        all
    }
}

/// The leaf at `link`, if it lies in the pool.
#[inline(always)]
pub(super) fn leaf_at<D: Domain>(
    pool: &Pool<D>,
    link: Link<LeafHeader>,
    capacity: usize,
) -> Option<Leaf<'_>> {
    let header = pool.try_at(link)?;
    let records = Link::from_bits(link.offset() + HEADER_BYTES as u64);
    Some(Leaf { link, header, records: pool.try_slice(records, capacity)? })
}

/// Orders the keys of two words. Damaged words come first, in an order of their own, so that this
/// is a total order whatever the bytes.
pub(super) fn compare_words<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    one: u64,
    other: u64,
) -> Ordering {
    if K::INLINE {
        return one.cmp(&other);
    }
    let both = K::with_word(pool, one, |one| K::with_word(pool, other, |other| one.cmp(other)));
    match both {
        Some(Some(order)) => order,
        Some(None) => Ordering::Greater,
        None if K::with_word(pool, other, |_| ()).is_some() => Ordering::Less,
        None => one.cmp(&other),
    }
}

/// Keeps the loads before from being taken after the loads behind: of the content of something
/// and of what tells whether it was current.
#[inline(always)]
pub(super) fn order_loads() {
    fence(MemoryOrdering::Acquire);
}

#[cold]
#[inline(never)]
pub(super) fn beyond_the_end(link: Link<LeafHeader>) -> ! {
    panic!("the index is damaged: the leaf {link:?} does not end within the pool")
}
