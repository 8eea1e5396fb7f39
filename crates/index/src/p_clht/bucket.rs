//! What lies in persistent memory: buckets, and the word that refers to a table of them.

use lapis_pmem::{
    Domain, Durable, GenerationLock, Link, LockGeneration, LockWord, PCell, Pool, Slot, Visible,
    persistent,
};

use crate::key::{IndexKey, KeyWord};

/// Entries in a bucket.
pub(super) const SLOTS: usize = 3;
/// All slots occupied.
pub(super) const FULL: u8 = (1 << SLOTS) - 1;
/// The bit of payload above those of the slots: see [`locks`](super::locks).
pub(super) const FROZEN: u8 = 1 << SLOTS;
/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = size_of::<Bucket>();
/// Tables have at most two to the power of this many buckets (32 GiB).
pub(super) const MAX_LOG2: u32 = 29;

/// Whether the holder of a lock may have made changes that are not durable yet.
#[inline(always)]
pub(super) fn is_changing(word: LockWord, generation: LockGeneration) -> bool {
    word.is_locked(generation) && word.payload() & FROZEN == 0
}

persistent! {
    /// A slot: a key word and a value.
    pub(super) struct Entry: 16 {
        pub(super) key: PCell<u64>,
        pub(super) value: PCell<u64>,
    }
}

persistent! {
    /// A bucket: one line. See the [module documentation](super) for its layout.
    pub(super) struct Bucket: 64 {
        pub(super) lock: GenerationLock,
        pub(super) entries: [Entry; 3],
        pub(super) next: Slot<Bucket>,
    }
}

const _: () = {
    assert!(core::mem::offset_of!(Bucket, entries) == 8);
    assert!(core::mem::offset_of!(Bucket, next) == 56);
    assert!(BUCKET_BYTES == lapis_pmem::LINE_BYTES);
};

impl Bucket {
    /// Bit `s` is set if slot `s` holds an entry. What is loaded later is at least as new.
    #[inline(always)]
    pub(super) fn occupancy<D: Domain>(&self, domain: &D) -> u8 {
        self.lock.read(domain).payload() & FULL
    }

    /// Replaces the occupancy by one ordered store, under the lock of the chain. It makes the block of
    /// `word` reachable, if there is one.
    #[inline(always)]
    pub(super) fn publish_occupancy<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        word: Option<KeyWord<'_, D, Durable>>,
        occupancy: u8,
    ) -> Visible<'a, D> {
        self.lock.publish_payload(domain, word, occupancy)
    }

    /// The slot that is occupied by `key`, if any. `tag` is the key's tag.
    #[inline(always)]
    pub(super) fn find<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        key: &K,
        tag: u64,
    ) -> Option<usize> {
        let domain = pool.domain();
        // The bit first: with it come the key and the value that were stored before it.
        let occupancy = self.occupancy(domain);
        if K::INLINE {
            // Without branches on the keys, which no processor could predict.
            let mut matching = 0u8;
            for (slot, entry) in self.entries.iter().enumerate() {
                let equal = key.eq_word(pool, tag, entry.key.load_acquire(domain));
                matching |= u8::from(equal) << slot;
            }
            let found = matching & occupancy;
            return (found != 0).then(|| found.trailing_zeros() as usize);
        }
        (0..SLOTS).find(|&slot| {
            occupancy & (1 << slot) != 0
                && key.eq_word(pool, tag, self.entries[slot].key.load_acquire(domain))
        })
    }

    /// The occupied slots, as an iterator of key word and value.
    pub(super) fn occupied<D: Domain>(&self, domain: &D) -> impl Iterator<Item = (u64, u64)> {
        let occupancy = self.occupancy(domain);
        (0..SLOTS).filter(move |slot| occupancy & (1 << slot) != 0).map(|slot| {
            let entry = &self.entries[slot];
            (entry.key.load_acquire(domain), entry.value.load_acquire(domain))
        })
    }

    /// Writes every word of a bucket that nobody else can reach.
    pub(super) fn write<D: Domain>(&self, domain: &D, image: &BucketImage) {
        self.lock.word().store(domain, image.lock_word());
        for (entry, &(key, value)) in self.entries.iter().zip(&image.entries) {
            entry.key.store(domain, key);
            entry.value.store(domain, value);
        }
        self.next.word().store(domain, image.next.bits());
    }
}

/// A bucket being composed outside of the pool.
#[derive(Clone, Copy)]
pub(super) struct BucketImage {
    entries: [(u64, u64); SLOTS],
    used: usize,
    next: Link<Bucket>,
}

impl BucketImage {
    /// A bucket of the given entries (at most three), followed by `next`.
    #[inline]
    pub(super) fn of(entries: &[(u64, u64)], next: Link<Bucket>) -> Self {
        let mut image = Self { entries: [(0, 0); SLOTS], used: entries.len(), next };
        image.entries[..entries.len()].copy_from_slice(entries);
        image
    }

    /// Free in every generation.
    fn lock_word(&self) -> u64 {
        LockWord::free((1 << self.used) - 1).bits()
    }

    /// Appends the bytes as they lie in memory.
    #[inline]
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        let [a, b, c] = self.entries;
        let words = [self.lock_word(), a.0, a.1, b.0, b.1, c.0, c.1, self.next.bits()];
        bytes.extend_from_slice(words.map(u64::to_ne_bytes).as_flattened());
    }
}

/// The word in the index root that refers to the current table.
///
/// ```text
///  63      48 47                                              0
/// +----------+------------------------------------------------+
/// | log2 of  |  offset of bucket 0 from the start of the pool |
/// | buckets  |                                                |
/// +----------+------------------------------------------------+
/// ```
///
/// Any bits can be asked anything: a damaged word leads to links that the pool refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table(u64);

const LOG2_SHIFT: u32 = 48;

impl Table {
    pub(super) fn new(link: Link<Bucket>, log2: u32) -> Self {
        Self(link.bits() | (u64::from(log2) << LOG2_SHIFT))
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn link(self) -> Link<Bucket> {
        Link::from_bits(self.0)
    }

    #[inline(always)]
    pub(super) fn log2(self) -> u32 {
        (self.0 >> LOG2_SHIFT) as u32
    }

    /// Number of buckets; 0 if there cannot be as many as the word says.
    pub(super) fn buckets(self) -> u64 {
        if self.log2() > MAX_LOG2 { 0 } else { 1 << self.log2() }
    }

    pub(super) fn bytes(self) -> usize {
        self.buckets() as usize * BUCKET_BYTES
    }

    /// The chain that a hash belongs to. The upper bits decide, so that one chain of a table is
    /// divided among neighbours in a larger one.
    #[inline(always)]
    pub(super) fn index_of(self, hash: u64) -> u64 {
        // A table has more buckets than one; a damaged word selects any chain.
        hash.wrapping_shr(self.log2().wrapping_neg())
    }

    #[inline(always)]
    pub(super) fn head_link(self, index: u64) -> Link<Bucket> {
        Link::from_bits((self.0 & lapis_pmem::LINK_MASK).wrapping_add(index << 6))
    }

    /// Whether the whole table lies inside the pool.
    pub(super) fn is_inside<D: Domain>(self, pool: &Pool<D>) -> bool {
        let buckets = self.buckets();
        let last = self.link().offset() + (buckets.max(1) - 1) * BUCKET_BYTES as u64;
        buckets > 0
            && last <= lapis_pmem::LINK_MASK
            && pool.try_at(self.link()).is_some()
            && pool.try_at(Link::<Bucket>::from_bits(last)).is_some()
    }
}
