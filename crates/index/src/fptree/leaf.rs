//! The leaf: its layout, and what is read and written in it by whoever may. Its first line and its
//! entries are those of [`fp_leaf`](lapis_blocks::fp_leaf); all else is FPTree's: as many slots as its
//! bytes have room for, a next link, and a search without giving way.

use lapis_blocks::fp_leaf::{
    ENTRIES_PER_LINE, Entry, FINGERPRINTS, FingerprintLine, fingerprint_of, slots_in,
};
use lapis_pmem::{Domain, LINE_BYTES, Link, PCell, Pool, persistent};

use super::fingerprint;
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

persistent! {
    /// What a leaf begins with.
    pub struct LeafHeader: 128 {
        pub(super) line: FingerprintLine,
        pub(super) next: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 7],
    }
}

const _: () = {
    // I2 rests on this: no slot shares a line with the fingerprints and the bitmap.
    assert!(size_of::<LeafHeader>() == HEADER_BYTES && HEADER_BYTES.is_multiple_of(LINE_BYTES));
    assert!(slots_of(LARGEST_LEAF_BYTES) == FINGERPRINTS);
};

/// Slots of a leaf of so many bytes.
pub(super) const fn slots_of(leaf_bytes: usize) -> usize {
    (leaf_bytes - HEADER_BYTES) / size_of::<Entry>()
}

/// The first slot of the line in which an entry with this fingerprint lies, if there was room when it
/// came. Only a hint of what to fetch: an entry may be in any slot.
#[inline(always)]
pub(super) fn home_of(fingerprint: u8, slots: usize) -> usize {
    ((usize::from(fingerprint) * (slots / ENTRIES_PER_LINE)) >> 8) * ENTRIES_PER_LINE
}

/// Asks for the lines of the leaf at `link` in which an entry with this fingerprint is sought, both at
/// once.
#[inline(always)]
pub(super) fn prefetch<D: Domain>(
    pool: &Pool<D>,
    link: Link<LeafHeader>,
    fingerprint: u8,
    slots: usize,
) {
    let home = HEADER_BYTES + home_of(fingerprint, slots) * size_of::<Entry>();
    pool.prefetch(link);
    pool.prefetch(Link::<Entry>::from_bits(link.offset() + home as u64));
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
        let (header, slots) = pool.try_at_with(link, slots as u16)?;
        Some(Self { link, header, slots })
    }

    /// All slots, as a bitmap.
    #[inline(always)]
    pub(super) fn all(self) -> u64 {
        (1 << self.slots.len()) - 1
    }

    /// The slots in use. What is read after this is at least as new.
    #[inline(always)]
    pub(super) fn bitmap<D: Domain>(self, domain: &D) -> u64 {
        self.header.line.bitmap.load_acquire(domain) & self.all()
    }

    #[inline(always)]
    pub(super) fn next<D: Domain>(self, domain: &D) -> Link<LeafHeader> {
        Link::from_bits(self.header.next.load_acquire(domain))
    }

    /// The slot for a new entry beside those of `bitmap`: the first free one from its home on, around
    /// the end. 64 if none is free.
    #[inline(always)]
    pub(super) fn free_slot(self, bitmap: u64, fingerprint: u8) -> usize {
        let free = !bitmap & self.all();
        let onwards = free & (u64::MAX << home_of(fingerprint, self.slots.len()));
        let free = if onwards == 0 { free } else { onwards };
        free.trailing_zeros() as usize
    }

    /// The slots of `bitmap` with the fingerprint.
    #[inline(always)]
    pub(super) fn candidates<D: Domain>(
        self,
        domain: &D,
        bitmap: u64,
        sought: Sought,
    ) -> impl Iterator<Item = usize> {
        let words = std::array::from_fn(|word| self.header.line.fingerprints[word].load(domain));
        slots_in(fingerprint::matches(words, sought.fingerprint) & bitmap)
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
        for slot in self.candidates(domain, bitmap, sought) {
            let entry = &self.slots[slot];
            // Byte strings: the tag in the word is compared before the string is looked at.
            if key.eq_word(pool, sought.tag, entry.key.load(domain)) {
                return Some((slot, entry.value.load(domain)));
            }
        }
        None
    }

    /// Flushes the lines that the slots of `bitmap` lie in, each once.
    #[track_caller]
    pub(super) fn flush_slots<D: Domain>(self, domain: &D, bitmap: u64) {
        for (line, slots) in self.slots.chunks(ENTRIES_PER_LINE).enumerate() {
            if bitmap >> (line * ENTRIES_PER_LINE) & ((1 << ENTRIES_PER_LINE) - 1) != 0 {
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
        Self { fingerprint: fingerprint_of(key.hash64()), tag: key.tag() }
    }
}
