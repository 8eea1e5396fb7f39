//! Leaves: the only part of the tree that persists.

use std::sync::atomic::{Ordering, fence};

use lapis_pmem::{Domain, Link, PCell, Pool, Slot, persistent};

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

/// Keeps the loads before from being taken after the loads behind: of the content of something
/// and of what tells whether it was current.
#[inline(always)]
pub(super) fn order_loads() {
    fence(Ordering::Acquire);
}
