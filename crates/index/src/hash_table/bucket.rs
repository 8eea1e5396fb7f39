//! Buckets: a line of three slots, whose occupancy lies in the word of a lock.
//!
//! ```text
//!  offset  bytes  field
//!       0      8  lock         GenerationLock; its payload:
//!                               6      4    3     2      0
//!                              +--------+--------+-----------+
//!                              |  zero  | frozen | occupancy |   bit s: slot s holds an entry
//!                              +--------+--------+-----------+
//!       8     16  slot 0       key word, value
//!      24     16  slot 1       key word, value
//!      40     16  slot 2       key word, value
//!      56      8  next         overflow bucket of the same chain, or null
//! ```
//!
//! Which bucket's lock is one, and for what, is the structure's own; in the others the word only says
//! which slots are occupied. `frozen` says of a *locked* word that its holder changes nothing: what it
//! locks is being, or has been, copied into a larger table. It means nothing in a word that is free, and
//! whoever finds it there takes it away.

use lapis_pmem::{
    Domain, Durable, GenerationLock, Link, LockGeneration, LockWord, PCell, Pool, Slot, Visible,
    persistent,
};

use crate::key::{IndexKey, KeyWord};

/// Entries in a bucket.
pub(crate) const SLOTS: usize = 3;
/// All slots occupied.
pub(crate) const FULL: u8 = (1 << SLOTS) - 1;
/// The bit of payload above those of the slots.
pub(crate) const FROZEN: u8 = 1 << SLOTS;
/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();

/// Whether the holder of a lock may have made changes that are not durable yet.
#[inline(always)]
pub(crate) fn is_changing(word: LockWord, generation: LockGeneration) -> bool {
    word.is_locked(generation) && word.payload() & FROZEN == 0
}

persistent! {
    /// A slot: a key word and a value.
    pub(crate) struct Entry: 16 {
        pub(crate) key: PCell<u64>,
        pub(crate) value: PCell<u64>,
    }
}

persistent! {
    /// A bucket. See the module documentation for its layout.
    pub(crate) struct Bucket: 64 {
        pub(crate) lock: GenerationLock,
        pub(crate) entries: [Entry; 3],
        pub(crate) next: Slot<Bucket>,
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
    pub(crate) fn occupancy<D: Domain>(&self, domain: &D) -> u8 {
        self.lock.read(domain).payload() & FULL
    }

    /// Replaces the occupancy by one ordered store, under the lock that the bucket is under. It makes the block of
    /// `word` reachable, if there is one.
    #[inline(always)]
    pub(crate) fn publish_occupancy<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        word: Option<KeyWord<'_, D, Durable>>,
        occupancy: u8,
    ) -> Visible<'a, D> {
        self.lock.publish_payload(domain, word, occupancy)
    }

    /// Replaces the occupancy by one ordered store, of a line that is flushed later.
    #[inline(always)]
    pub(crate) fn set_occupancy<D: Domain>(&self, domain: &D, occupancy: u8) {
        let word = self.lock.word();
        let kept = word.load(domain) & !LockWord::free(u8::MAX).bits();
        word.store_ordered(domain, kept | LockWord::free(occupancy).bits());
    }

    /// A slot that is free, if there is one.
    #[inline(always)]
    pub(crate) fn free_slot<D: Domain>(&self, domain: &D) -> Option<usize> {
        let occupancy = self.occupancy(domain);
        (occupancy != FULL).then(|| (!occupancy).trailing_zeros() as usize % SLOTS)
    }

    /// Stores an entry in a slot that is free, without its bit. Within the line these stores and that of
    /// the bit persist in their order (rule R2), so that with the bit there are the key and its value.
    #[inline(always)]
    pub(crate) fn fill<D: Domain>(&self, domain: &D, slot: usize, key: u64, value: u64) {
        let entry = &self.entries[slot];
        entry.value.store_ordered(domain, value);
        entry.key.store_ordered(domain, key);
        domain.order_in_line(entry, self.lock.word());
    }

    /// The slot that is occupied by `key`, if any. `tag` is the key's tag.
    #[inline(always)]
    pub(crate) fn find<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        key: &K,
        tag: u64,
    ) -> Option<usize> {
        // The bit first: with it come the key and the value that were stored before it.
        self.find_in(self.lock.read(pool.domain()), pool, key, tag)
    }

    /// The same of the slots that `word`, read from the lock, says are occupied.
    #[inline(always)]
    pub(crate) fn find_in<D: Domain, K: IndexKey + ?Sized>(
        &self,
        word: LockWord,
        pool: &Pool<D>,
        key: &K,
        tag: u64,
    ) -> Option<usize> {
        let (domain, occupancy) = (pool.domain(), word.payload());
        // With branches: what depends on a line that is missing waits where few instructions can, and how many of
        // them a search has decides how many searches' misses a processor waits for at once.
        (0..SLOTS).find(|&slot| {
            occupancy & (1 << slot) != 0
                && key.eq_word(pool, tag, self.entries[slot].key.load_acquire(domain))
        })
    }

    /// The occupied slots, as an iterator of key word and value.
    pub(crate) fn occupied<D: Domain>(&self, domain: &D) -> impl Iterator<Item = (u64, u64)> {
        let occupancy = self.occupancy(domain);
        (0..SLOTS).filter(move |slot| occupancy & (1 << slot) != 0).map(|slot| {
            let entry = &self.entries[slot];
            (entry.key.load_acquire(domain), entry.value.load_acquire(domain))
        })
    }

    /// Writes every word of a bucket that nobody else can reach.
    pub(crate) fn write<D: Domain>(&self, domain: &D, image: &BucketImage) {
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
pub(crate) struct BucketImage {
    entries: [(u64, u64); SLOTS],
    used: usize,
    next: Link<Bucket>,
}

impl BucketImage {
    /// A bucket of the given entries (at most three), followed by `next`.
    #[inline]
    pub(crate) fn of(entries: &[(u64, u64)], next: Link<Bucket>) -> Self {
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
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let [a, b, c] = self.entries;
        let words = [self.lock_word(), a.0, a.1, b.0, b.1, c.0, c.1, self.next.bits()];
        bytes.extend_from_slice(words.map(u64::to_ne_bytes).as_flattened());
    }
}
