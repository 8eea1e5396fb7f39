//! RAWL: a log with one barrier per append and a validity bit in each eight bytes.
//!
//! After the *raw word log* of H. Volos, A. J. Tack, M. M. Swift, *Mnemosyne: Lightweight persistent
//! memory*, ASPLOS 2011, as "RAWL" in A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building
//! blocks for persistent memory: How to get the most out of your new memory?*, The VLDB Journal 29
//! (2020), section 3.3. Eight bytes persist whole or not at all; so if each eight have a bit that
//! says "new", it can be told which of them have persisted.
//!
//! # Layout of an entry
//!
//! ```text
//!  block, 8 bytes
//!     63  62                                                                 0
//!    +---+---------------------------------------------------------------------+
//!    | v | the next 63 bits of: header (128 bits), payload (8n bits), zeroes   |
//!    +---+---------------------------------------------------------------------+
//!
//!  an entry of n bytes is ceil((128 + 8n) / 63) blocks; padded, blocks of zeroes up to the line
//! ```
//!
//! The bits are numbered as in little-endian words: bit `i` of the stream is bit `i mod 64` of its
//! word `i / 64`. The header is that of `ring_log/entry.rs`. The *polarity* `v` of a block that is
//! written says in which round of the ring: 1 in the first, 0 in the second, and so on. The ring,
//! its root and start are in [`ring_log`](crate::ring_log), with the invariants G1 to G6. Of those
//! this log keeps
//!
//! * G2. What says that an entry is there is the polarity of all its blocks, padding included; each
//!   persists with the 63 bits that it speaks for.
//! * G3. Every block of free space has the polarity of the round before: the ring is zeroed once,
//!   each block of it is written in each round, and recovery flips those back that a torn append
//!   has left behind the end. A block left as it was would count as a block of the next entry there.
//!
//! That is exact: no torn entry passes, and no whole one is refused. A polarity bit that has flipped
//! in an entry that is not the last is told from a tear by the entry behind it (G6), which is found
//! because a header can be read, and its CRC checked, without regard to polarity.
//!
//! # Order of stores, and cost
//!
//! * Append, or batch: blocks stored, flushed; fence. One barrier. As many flushes as lines. The
//!   payload is shifted through, which costs processor time, and a bit in 64, which costs space.
//! * Truncate: [`ring_log`](crate::ring_log): one barrier. Open: a torn end is flipped; fence.

use crate::declaration::{Declaration, LogRun};
use crate::log::Placement;
use lapis_pmem::Domain;

use crate::log::Position;
use crate::mutants::{RAWL_POLARITY_STAYS, RAWL_TORN_TAIL_STAYS};
use crate::ring_log::{
    ENTRY_HEADER_BYTES, Entry, Head, Parsed, Ring, RingKind, RingLog, Seen, Sink, after_body,
    sealed,
};

/// The log with a validity bit in each block.
pub type Rawl<D> = RingLog<D, Raw>;

/// The kind of [`Rawl`].
#[derive(Debug)]
pub enum Raw {}

const BITS: u32 = 63;
const MASK: u64 = (1 << BITS) - 1;
/// Blocks that any bit of the header is in.
const HEADER_BLOCKS: u64 = (8 * ENTRY_HEADER_BYTES as u64).div_ceil(BITS as u64);
/// Bits of the header in the last of them.
const LAST_HEADER_BITS: u32 = 8 * ENTRY_HEADER_BYTES as u32 - 2 * BITS;

/// The validity bit, in place, of blocks that are written when the ring has been filled `pass`
/// times.
#[inline(always)]
fn polarity<D: Domain>(domain: &D, pass: u64) -> u64 {
    if domain.commits(RAWL_POLARITY_STAYS) { 1 << BITS } else { polarity_of(pass) }
}

#[inline(always)]
fn polarity_of(pass: u64) -> u64 {
    pass.wrapping_add(1) << BITS
}

/// Cuts a stream of bytes into blocks.
struct Cutter<'s, 'a, D: Domain> {
    sink: &'s mut Sink<'a, D, Raw>,
    /// Bits that have not made a block yet, the oldest lowest.
    bits: u128,
    count: u32,
}

impl<D: Domain> Cutter<'_, '_, D> {
    #[inline(always)]
    fn block(&mut self) {
        let polarity = polarity(self.sink.domain(), self.sink.pass());
        self.sink.word(polarity | self.bits as u64 & MASK);
        self.bits >>= BITS;
        self.count = self.count.saturating_sub(BITS);
    }

    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        self.bits |= u128::from(value) << self.count;
        self.count += count;
        while self.count >= BITS {
            self.block();
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.put(u64::from_le_bytes(*word), 64);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.put(u64::from_le_bytes(last), 8 * rest.len() as u32);
        }
    }
}

impl sealed::Sealed for Raw {}

#[expect(private_interfaces, reason = "see RingKind")]
impl RingKind for Raw {
    const NAME: &'static str = "rawl";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISRWL");
    const BLANK: bool = true;

    fn body_bytes(length: usize) -> u64 {
        8 * (8 * (ENTRY_HEADER_BYTES + length) as u64).div_ceil(BITS.into())
    }

    fn free_word(pass: u64) -> u64 {
        polarity_of(pass.wrapping_sub(1))
    }

    fn write<D: Domain>(sink: &mut Sink<'_, D, Self>, entry: &Entry<'_>) {
        let mut cutter = Cutter { sink, bits: 0, count: 0 };
        for word in entry.words() {
            cutter.put(word, 64);
        }
        for part in entry.parts() {
            cutter.bytes(part);
        }
        if cutter.count > 0 {
            cutter.block();
        }
    }

    fn pad<D: Domain>(sink: &mut Sink<'_, D, Self>, bytes: usize) {
        for _ in 0..bytes / 8 {
            // G3.
            sink.word(polarity(sink.domain(), sink.pass()));
        }
    }

    fn look<D: Domain>(ring: &Ring<'_, D>, at: u64, end: u64, position: Position) -> Seen {
        if end.saturating_sub(at) < 8 * HEADER_BLOCKS {
            return Seen::Nothing;
        }
        let domain = ring.pool.domain();
        let is_new = |at: u64, block: u64| block & !MASK == polarity(domain, at / ring.capacity);
        let [a, b, c] = [ring.load(at), ring.load(at + 8), ring.load(at + 16)];
        let all_new = is_new(at, a) && is_new(at + 8, b) && is_new(at + 16, c);
        let last = c & ((1 << LAST_HEADER_BITS) - 1);
        let bits =
            u128::from(a & MASK) | u128::from(b & MASK) << BITS | u128::from(last) << (2 * BITS);
        let head = match Head::parse([bits as u64, (bits >> 64) as u64], position) {
            Parsed::Whole(head) => head,
            _ if !all_new => return Seen::Nothing,
            Parsed::Damaged(what) => return Seen::Damaged(what),
            Parsed::Nothing | Parsed::Torn => return Seen::Damaged("a header of zeroes"),
        };
        let after = after_body::<Self>(ring.spacing, at, head.length);
        if after > end {
            return Seen::Damaged("an entry that goes on behind the end");
        }
        let rest_new = || {
            let mut new = true;
            let mut at = at + 8 * HEADER_BLOCKS;
            ring.pieces(at, (after - at) as usize, |piece| {
                // A piece does not go over the end of the ring.
                let expected = polarity(domain, at / ring.capacity);
                let (blocks, _) = piece.as_chunks::<8>();
                new &= blocks.iter().all(|b| u64::from_ne_bytes(*b) & !MASK == expected);
                at += piece.len() as u64;
            });
            new
        };
        if all_new && rest_new() { Seen::Whole(head) } else { Seen::Torn(head) }
    }

    fn is_intact<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head) -> bool {
        let mut crc = 0;
        payload(ring, at, head, |bytes| crc = crc32c::crc32c_append(crc, bytes));
        crc == head.payload_crc
    }

    fn read<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head, into: &mut Vec<u8>) {
        payload(ring, at, head, |bytes| into.extend_from_slice(bytes));
    }

    unsafe fn clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        let domain = ring.pool.domain();
        if domain.commits(RAWL_TORN_TAIL_STAYS) {
            return false;
        }
        let mut cleaned = false;
        for_dirty_words(ring, from, to, |at| {
            let cell = ring.word(at);
            // G5. A crash in here leaves some blocks of what had been begun.
            cell.store(domain, Self::free_word(at / ring.capacity));
            domain.flush(cell);
            cleaned = true;
        });
        cleaned
    }

    fn is_clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        let mut clean = true;
        for_dirty_words(ring, from, to, |_| clean = false);
        clean
    }
}

/// Calls `with` for each word of free space that is not of the polarity of the round before.
fn for_dirty_words<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64, mut with: impl FnMut(u64)) {
    let domain = ring.pool.domain();
    let mut at = from;
    while at < to {
        let end = to.min((at / ring.capacity + 1) * ring.capacity);
        let new = polarity(domain, at / ring.capacity);
        let mut dirty = Vec::new();
        ring.pieces(at, (end - at) as usize, |piece| {
            for (index, block) in piece.as_chunks::<8>().0.iter().enumerate() {
                if u64::from_ne_bytes(*block) & !MASK == new {
                    dirty.push(at + 8 * index as u64);
                }
            }
        });
        dirty.into_iter().for_each(&mut with);
        at = end;
    }
}

/// Hands the payload of an entry to `with` in pieces.
fn payload<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head, mut with: impl FnMut(&[u8])) {
    let blocks = Raw::body_bytes(head.length) as usize;
    // Bits of the header come first and are passed over.
    let (mut bits, mut count, mut skip) = (0u128, 0u32, 2u32);
    let mut left = head.length;
    ring.pieces(at, blocks, |piece| {
        for block in piece.as_chunks::<8>().0 {
            bits |= u128::from(u64::from_ne_bytes(*block) & MASK) << count;
            count += BITS;
            if count >= 64 {
                let word = (bits as u64).to_le_bytes();
                bits >>= 64;
                count -= 64;
                if skip > 0 {
                    skip -= 1;
                } else {
                    let take = left.min(8);
                    with(&word[..take]);
                    left -= take;
                }
            }
        }
    });
    if left > 0 {
        with(&(bits as u64).to_le_bytes()[..left]);
    }
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: Raw::NAME,
    sources: &["blocks/src/ring_log", "blocks/src/rawl"],
    mutants: crate::mutants::RAWL,
    runs: &[
        LogRun::new("rawl:padded", Placement::Padded, 0)
            .filled_by(4016)
            .under_cells("log-cell:rawl")
            .compared("rawl", 1),
        LogRun::new("rawl:dense", Placement::Dense, 0),
        LogRun::new("rawl:streamed", Placement::Streamed, 0),
    ],
    operations: 100,
    persist_points: (100, 2),
};
