//! The leaf: its layout, and what is read and written in it by whoever may.

use lapis_pmem::{Domain, LINE_BYTES, Link, PCell, Pool, persistent};

use super::fingerprint::{self, FINGERPRINTS};
use crate::key::IndexKey;
use crate::node_size::NodeSizes;

/// Bytes before the first slot.
pub(super) const HEADER_BYTES: usize = 128;
/// Bytes of the largest leaf, and of those that nobody has chosen another size for: as many slots
/// as there are fingerprints.
pub(super) const LARGEST_LEAF_BYTES: usize = 1024;
/// The smallest leaf has 8 slots.
pub(super) const LEAF_SIZES: NodeSizes = NodeSizes {
    names: ["leaf", "leaves"],
    smallest_bytes: 256,
    largest_bytes: LARGEST_LEAF_BYTES,
    default_bytes: LARGEST_LEAF_BYTES,
};
/// Slots of a line.
pub(super) const SLOTS_PER_LINE: usize = LINE_BYTES / size_of::<Entry>();

persistent! {
    /// What a leaf begins with.
    pub struct LeafHeader: 128 {
        pub(super) bitmap: PCell<u64>,
        pub(super) fingerprints: [PCell<u64>; 7],
        pub(super) next: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 7],
    }
}

persistent! {
    /// A slot: a key word and a value.
    pub struct Entry: 16 {
        pub(super) key: PCell<u64>,
        pub(super) value: PCell<u64>,
    }
}

const _: () = {
    use core::mem::offset_of;
    // I2 rests on this: the fingerprints share the bitmap's line, and no slot does.
    assert!(offset_of!(LeafHeader, next) == LINE_BYTES);
    assert!(size_of::<LeafHeader>() == HEADER_BYTES);
    assert!(slots_of(LARGEST_LEAF_BYTES) == FINGERPRINTS);
    assert!(LINE_BYTES.is_multiple_of(size_of::<Entry>()));
};

/// Slots of a leaf of so many bytes.
pub(super) const fn slots_of(leaf_bytes: usize) -> usize {
    (leaf_bytes - HEADER_BYTES) / size_of::<Entry>()
}

/// A leaf, in the pool.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'p> {
    pub(super) link: Link<LeafHeader>,
    pub(super) header: &'p LeafHeader,
    pub(super) slots: &'p [Entry],
}

impl<'p> Leaf<'p> {
    /// The leaf at `link`, or none if it is not all inside the pool.
    #[inline(always)]
    pub(super) fn try_at<D: Domain>(
        pool: &'p Pool<D>,
        link: Link<LeafHeader>,
        slots: usize,
    ) -> Option<Self> {
        let first = Link::from_bits(link.offset() + HEADER_BYTES as u64);
        Some(Self { link, header: pool.try_at(link)?, slots: pool.try_slice(first, slots)? })
    }

    /// All slots, as a bitmap.
    #[inline(always)]
    pub(super) fn all(self) -> u64 {
        (1 << self.slots.len()) - 1
    }

    /// The slots in use. What is read after this is at least as new.
    #[inline(always)]
    pub(super) fn bitmap<D: Domain>(self, domain: &D) -> u64 {
        self.header.bitmap.load_acquire(domain) & self.all()
    }

    #[inline(always)]
    pub(super) fn next<D: Domain>(self, domain: &D) -> Link<LeafHeader> {
        Link::from_bits(self.header.next.load_acquire(domain))
    }

    /// The slot of `key` among those of `bitmap`, which was read before, and its value.
    #[inline(always)]
    pub(super) fn find<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Pool<D>,
        bitmap: u64,
        key: &K,
        sought: Sought,
    ) -> Option<(usize, u64)> {
        let domain = pool.domain();
        let words = std::array::from_fn(|word| self.header.fingerprints[word].load(domain));
        let mut likely = fingerprint::matches(words, sought.fingerprint) & bitmap;
        while likely != 0 {
            let slot = likely.trailing_zeros() as usize;
            likely &= likely - 1;
            let entry = &self.slots[slot];
            // Byte strings: the tag in the word is compared before the string is looked at.
            if key.eq_word(pool, sought.tag, entry.key.load(domain)) {
                return Some((slot, entry.value.load(domain)));
            }
        }
        None
    }

    /// Whether slot `slot` has this fingerprint.
    pub(super) fn fingerprint<D: Domain>(self, domain: &D, slot: usize) -> u8 {
        (self.header.fingerprints[slot / 8].load(domain) >> (8 * (slot % 8))) as u8
    }

    /// Gives a slot that is not in use its fingerprint. Under the leaf's lock.
    #[inline(always)]
    pub(super) fn set_fingerprint<D: Domain>(self, domain: &D, slot: usize, fingerprint: u8) {
        let (word, shift) = (&self.header.fingerprints[slot / 8], 8 * (slot % 8));
        let others = word.load(domain) & !(0xFF << shift);
        word.store_ordered(domain, others | u64::from(fingerprint) << shift);
    }

    /// Writes a slot that is not in use. Under the leaf's lock.
    #[inline(always)]
    pub(super) fn write<D: Domain>(self, domain: &D, slot: usize, key: u64, value: u64) {
        self.slots[slot].key.store(domain, key);
        self.slots[slot].value.store(domain, value);
    }

    /// Flushes the lines that the slots of `bitmap` lie in, each once.
    #[track_caller]
    pub(super) fn flush_slots<D: Domain>(self, domain: &D, bitmap: u64) {
        for (line, slots) in self.slots.chunks(SLOTS_PER_LINE).enumerate() {
            if bitmap >> (line * SLOTS_PER_LINE) & ((1 << SLOTS_PER_LINE) - 1) != 0 {
                domain.flush(slots);
            }
        }
    }
}

/// What of a key is compared before the key itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    pub(super) fingerprint: u8,
    tag: u64,
}

impl Sought {
    #[inline(always)]
    pub(super) fn of<K: IndexKey + ?Sized>(key: &K) -> Self {
        Self { fingerprint: fingerprint::of(key.hash64()), tag: key.tag() }
    }
}

/// The positions of the bits of a bitmap, ascending.
pub(super) fn positions(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (bitmap != 0).then_some(bitmap.trailing_zeros() as usize)?;
        bitmap &= bitmap - 1;
        Some(next)
    })
}
