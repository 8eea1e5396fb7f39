//! The first page of a pool: what it is, what state it is in, and its named roots.
//!
//! ```text
//!  offset  bytes  field
//!       0      8  magic            "LAPISPM1", or "LAPISNEW" while being created
//!       8      4  format_version   1
//!      12      4  header_bytes     4096
//!      16      8  features_required   a reader must know every bit
//!      24      8  features_optional   a reader may ignore
//!      32     16  uuid
//!      48      8  chunk_bytes      65536
//!      56      8  checksum         XXH3-64 of bytes 0..56, magic as when complete
//!      64      8  generation       one more at every open; locks of older generations are free
//!      72      8  state            bit 0: shut down cleanly; bit 1: saved bitmaps are valid
//!      80      8  high_water       chunks from here on were never used
//!      88      8  storage_bytes    the file is at least this long
//!      96     16  boot             the boot of the machine on which it was opened last, or 0
//!     112      8  unsafe_shutdowns one more than the memory module had counted at the last open; 0 if it does not
//!     120    392  reserved, zero
//!     512   3584  roots            56 of 64 bytes: name (40), kind (8), reserved (8), link (8)
//! ```
//!
//! Invariants, at every instant a crash may come:
//!
//! * H1. `magic` is complete only if every other field of the header is durable: creation writes
//!   "LAPISNEW", persists it, writes and persists the rest, and stores the complete magic last.
//! * H2. `generation` is durable before any lock of that generation can be taken: open persists it
//!   before it returns.
//! * H3. `state` claims a clean shutdown only if everything before the claim is durable: close
//!   persists the bitmaps, then the state; open clears the state and persists that before anything
//!   can be allocated.
//! * H4. A root whose link is not null has its name and kind: they are stored before the link, in
//!   the same line (rule R2), and the link is published by one 8-byte store.
//! * H6. What a process stored and did not persist before it died, while the machine ran on, is made
//!   durable by the next open, before anybody acts on it. `boot` tells such an end from a power
//!   cut, which leaves nothing that is visible and not durable.
//! * H5. `high_water` and `storage_bytes` are durable before a chunk beneath them is used, and the size
//!   of the storage is durable before they claim it. They only grow, but for one case: a file that is
//!   shorter all the same, and lacks nothing but chunks that are free, is claimed as it is when it is opened.

use crate::cell::{PCell, Slot};
use crate::domain::Domain;
use crate::persistent;

/// "LAPISPM1", read as a little-endian word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"LAPISPM1");
/// "LAPISNEW": creation has begun and not ended.
pub(crate) const MAGIC_CREATING: u64 = u64::from_le_bytes(*b"LAPISNEW");
/// The format this code writes and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the header page.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Named roots a pool can have.
pub const ROOT_CAPACITY: usize = 56;
/// Longest name of a root in bytes.
pub const ROOT_NAME_BYTES: usize = 40;

/// Required features this code knows: none yet.
pub(crate) const KNOWN_FEATURES: u64 = 0;

pub(crate) const STATE_CLEAN: u64 = 1 << 0;
pub(crate) const STATE_BITMAPS_VALID: u64 = 1 << 1;

persistent! {
    pub(crate) struct Header: 4096 {
        pub(crate) magic: PCell<u64>,
        pub(crate) format_version: PCell<u32>,
        pub(crate) header_bytes: PCell<u32>,
        pub(crate) features_required: PCell<u64>,
        pub(crate) features_optional: PCell<u64>,
        pub(crate) uuid: [PCell<u64>; 2],
        pub(crate) chunk_bytes: PCell<u64>,
        pub(crate) checksum: PCell<u64>,
        pub(crate) generation: PCell<u64>,
        pub(crate) state: PCell<u64>,
        pub(crate) high_water: PCell<u64>,
        pub(crate) storage_bytes: PCell<u64>,
        pub(crate) boot: [PCell<u64>; 2],
        pub(crate) unsafe_shutdowns: PCell<u64>,
        pub(crate) reserved: [PCell<u64>; 49],
        pub(crate) roots: [RootEntry; 56],
    }
}

persistent! {
    pub(crate) struct RootEntry: 64 {
        pub(crate) name: [PCell<u64>; 5],
        pub(crate) kind: PCell<u64>,
        pub(crate) reserved: PCell<u64>,
        pub(crate) link: Slot<PCell<u64>>,
    }
}

const _: () = {
    // H4: a root is one line.
    assert!(size_of::<RootEntry>() == 64);
    assert!(core::mem::offset_of!(Header, checksum) == 56);
    assert!(core::mem::offset_of!(Header, generation) == 64);
    assert!(core::mem::offset_of!(Header, roots) == 512);
    assert!(core::mem::offset_of!(RootEntry, link) == 56);
};

impl Header {
    /// The checksum that bytes 0..56 ask for once the magic is complete.
    pub(crate) fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let mut bytes = [0u8; 56];
        let versions = u64::from(self.format_version.load(domain))
            | (u64::from(self.header_bytes.load(domain)) << 32);
        let words = [
            MAGIC,
            versions,
            self.features_required.load(domain),
            self.features_optional.load(domain),
            self.uuid[0].load(domain),
            self.uuid[1].load(domain),
            self.chunk_bytes.load(domain),
        ];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

impl RootEntry {
    pub(crate) fn name_is<D: Domain>(&self, domain: &D, name: &[u64; 5]) -> bool {
        self.name.iter().zip(name).all(|(cell, &word)| cell.load(domain) == word)
    }

    pub(crate) fn name_text<D: Domain>(&self, domain: &D) -> String {
        let bytes: Vec<u8> = self
            .name
            .iter()
            .flat_map(|cell| cell.load(domain).to_le_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A root name as it is stored: zero-padded little-endian words; `None` if it does not fit.
pub(crate) fn encode_name(name: &str) -> Option<[u64; 5]> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > ROOT_NAME_BYTES || bytes.contains(&0) {
        return None;
    }
    let mut padded = [0u8; ROOT_NAME_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    let mut words = [0u64; 5];
    for (word, eight) in words.iter_mut().zip(padded.chunks_exact(8)) {
        *word = u64::from_le_bytes(eight.try_into().ok()?);
    }
    Some(words)
}
