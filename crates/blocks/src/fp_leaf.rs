//! What a leaf with fingerprints consists of: FPTree's, and those on which interleaving is shown
//! ([`fp_leaves`](crate::fp_leaves)).
//!
//! After I. Oukid, J. Lasperas, A. Nica, T. Willhalm, W. Lehner, *FPTree*, SIGMOD 2016.
//!
//! ```text
//!  first line                                                    entry, four to a line
//!  0   8  bitmap        bit i: slot i is in use                  0  8  key, or a word for it
//!  8  56  fingerprints  byte i: of the key in slot i             8  8  value
//! ```
//!
//! A fingerprint that is stored before the bit of its slot is durable with it (rule R2).
//!
//! Where the line and the slots lie is each leaf's own matter, and so is the search: FPTree loads all
//! fingerprints and compares them at once, the other one after the other as far as it has to, giving
//! way before each key. What the model charges for an operation follows from that.

use lapis_pmem::{Domain, LINE_BYTES, PCell, persistent};

/// Fingerprints that share a line with the bitmap.
pub const FINGERPRINTS: usize = 56;
/// Entries of a line.
pub const ENTRIES_PER_LINE: usize = LINE_BYTES / size_of::<Entry>();

persistent! {
    /// What a leaf begins with.
    pub struct FingerprintLine: 64 {
        /// The slots in use.
        pub bitmap: PCell<u64>,
        /// That of slot i is byte i % 8 of word i / 8, from below.
        pub fingerprints: [PCell<u64>; FINGERPRINTS / 8],
    }
}

persistent! {
    /// What a slot holds.
    pub struct Entry: 16 {
        /// The key, or a word for it.
        pub key: PCell<u64>,
        /// The value.
        pub value: PCell<u64>,
    }
}

const _: () = assert!(size_of::<FingerprintLine>() == LINE_BYTES && ENTRIES_PER_LINE == 4);

/// The fingerprint of a key with this hash: its low bits.
#[inline(always)]
pub fn fingerprint_of(hash: u64) -> u8 {
    hash as u8
}

impl FingerprintLine {
    /// The fingerprint of a slot.
    #[inline(always)]
    pub fn fingerprint<D: Domain>(&self, domain: &D, slot: usize) -> u8 {
        (self.fingerprints[slot / 8].load(domain) >> (8 * (slot % 8))) as u8
    }

    /// The word in which a slot has its fingerprint, and what to store there for it to have this one.
    #[inline(always)]
    pub fn with_fingerprint<D: Domain>(
        &self,
        domain: &D,
        slot: usize,
        fingerprint: u8,
    ) -> (&PCell<u64>, u64) {
        let (word, shift) = (&self.fingerprints[slot / 8], 8 * (slot % 8));
        (word, word.load(domain) & !(0xFF << shift) | u64::from(fingerprint) << shift)
    }
}

impl Entry {
    /// Writes the entry of a slot that is not in use.
    #[inline(always)]
    pub fn write<D: Domain>(&self, domain: &D, key: u64, value: u64) {
        self.key.store(domain, key);
        self.value.store(domain, value);
    }
}

/// The slots of a bitmap, ascending.
#[inline(always)]
pub fn slots_in(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (bitmap != 0).then_some(bitmap.trailing_zeros() as usize)?;
        bitmap &= bitmap - 1;
        Some(next)
    })
}
