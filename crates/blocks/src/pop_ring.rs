//! PopLog in a ring: one barrier per append, and the number of set bits in each entry.
//!
//! The scheme of [`pop_log`](crate::pop_log), where the source and the reason are, in a ring of fixed
//! size instead of segments: for logs whose size is known, that several threads fill side by side
//! ([`SharedLog`](crate::shared_log::SharedLog)), whose batches are to cost one barrier, or whose
//! entries are to be dense.
//!
//! # Layout of an entry
//!
//! ```text
//!          63                  32  31    30    29                             0
//!   0  8  +----------------------+------+------+-------------------------------+
//!         | ones: bits set in    | more |joined| length of the payload, bytes  |
//!         | the payload          |      |      |                               |
//!   8  8  +----------------------+------+------+-------------------------------+
//!         | CRC-32C of the payload | CRC-32C of position and word 0, never zero |
//!         +------------------------+--------------------------------------------+
//!  16  n  payload
//!      …  zero to 8 bytes, or padded to the end of the line
//! ```
//!
//! Streamed entries are padded to the end of the line where another as long would not fit into what is
//! left of it.
//!
//! The ring, its root and start are in [`ring_log`](crate::ring_log), with the invariants G1 to G6. Of
//! those this log keeps
//!
//! * G2. What says that an entry is there is the entry: neither word of the header is ever zero and
//!   each persists whole, and over zeroes the payload has persisted if and only if as many bits are
//!   set as were written. There is nothing else to order.
//! * G3. Free space is zero, durably, before anything is stored there; recovery zeroes what a torn
//!   append has left behind the end, whose bits would make up for missing bits of the next.
//!
//! # Order of stores, and cost
//!
//! * Append, or batch: header and payload stored, flushed; fence. One barrier. As many flushes as
//!   lines.
//! * Truncate: [`ring_log`](crate::ring_log); zeroing keeps G3. Open: a torn end is zeroed; fence.

use lapis_pmem::{Domain, Mutant};

use crate::declaration::{Declaration, LogRun};
use crate::log::{Placement, Position};
use crate::mutants::{POP_RING_REUSE_WITHOUT_ZEROING, POP_RING_TORN_TAIL_STAYS};
use crate::ring_log::{
    ENTRY_HEADER_BYTES, Entry, Head, Parsed, Ring, RingKind, RingLog, Seen, Sink, sealed,
    write_words, zero_dirty,
};
use crate::set_bits::count_ones;
use crate::spacing::Spacing;

/// PopLog in a ring.
pub type PopRing<D> = RingLog<D, Pop>;

/// The kind of [`PopRing`].
#[derive(Debug)]
pub enum Pop {}

impl sealed::Sealed for Pop {}

#[expect(private_interfaces, reason = "see RingKind")]
impl RingKind for Pop {
    const NAME: &'static str = "pop-ring";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISPPR");
    const STREAMED: Spacing = Spacing::SharedLines;
    const ZEROED: bool = true;
    const BLANK: bool = true;
    const REUSE_MUTANT: Mutant = POP_RING_REUSE_WITHOUT_ZEROING;

    fn write<D: Domain>(sink: &mut Sink<'_, D, Self>, entry: &Entry<'_>) {
        let ones = entry.parts().iter().map(|part| count_ones(part)).sum();
        write_words(sink, entry, entry.words_with(ones));
    }

    fn look<D: Domain>(ring: &Ring<'_, D>, at: u64, end: u64, position: Position) -> Seen {
        if end.saturating_sub(at) < ENTRY_HEADER_BYTES as u64 {
            return Seen::Nothing;
        }
        let words = [ring.load(at), ring.load(at + 8)];
        let head = match Head::parse_any(words, position) {
            Parsed::Whole(head) => head,
            Parsed::Nothing | Parsed::Torn => return Seen::Nothing,
            Parsed::Damaged(what) => return Seen::Damaged(what),
        };
        if at + Self::body_bytes(head.length) > end {
            return Seen::Damaged("an entry that goes on behind the end");
        }
        let (mut ones, expected) = (0, (words[0] >> 32) as u32);
        let payload = at + ENTRY_HEADER_BYTES as u64;
        ring.pieces(payload, head.length, |piece| ones += count_ones(piece));
        match ones.cmp(&expected) {
            std::cmp::Ordering::Equal => Seen::Whole(head),
            std::cmp::Ordering::Less => Seen::Torn(head),
            std::cmp::Ordering::Greater => {
                Seen::Damaged("an entry with more bits than were written")
            }
        }
    }

    unsafe fn clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        if ring.pool.domain().commits(POP_RING_TORN_TAIL_STAYS) {
            return false;
        }
        // SAFETY: nobody else has the log open.
        unsafe { zero_dirty(ring, from, to) }
    }
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: Pop::NAME,
    sources: &["blocks/src/ring_log", "blocks/src/pop_ring"],
    mutants: crate::mutants::POP_RING,
    runs: &[
        LogRun::new("pop-ring:padded", Placement::Padded, 0)
            .filled_by(4080)
            .under_cells("log-cell:pop-ring")
            .compared("pop-ring", 1),
        LogRun::new("pop-ring:dense", Placement::Dense, 0),
        LogRun::new("pop-ring:streamed", Placement::Streamed, 0),
    ],
    operations: 100,
    persist_points: (100, 2),
};
