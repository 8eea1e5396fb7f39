//! The classic log: header and payload, barrier, footer, barrier.
//!
//! After "Classic" of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks for
//! persistent memory: How to get the most out of your new memory?*, The VLDB Journal 29 (2020),
//! section 3.3: write-ahead logging as database systems on disks do it. What says that an entry is
//! there is a copy of its sequence number behind it, which is written when the entry is durable.
//!
//! # Layout of an entry
//!
//! ```text
//!  dense, streamed                         padded
//!     0  16  header  (ring_log/entry.rs)      0  16  header
//!    16   n  payload                         16   n  payload
//!         …  zero to 8 bytes                      …  zero to the end of the line
//!         8  footer  complement of the            8  footer, on a line of its own
//!                    entry's position            56  zero
//! ```
//!
//! The entries of a batch but the last have no footer (`more` in the header): the footer of the last
//! stands for all, so a batch is there whole or not at all. The ring, its root and start are in
//! [`ring_log`](crate::ring_log), with the invariants G1 to G6. Of those this log keeps
//!
//! * G2. The footer is stored when the entry is durable: one barrier between the two.
//! * G3. Free space is zero, durably, before anything is stored there. So where a footer will be,
//!   nothing can be taken for one before it is stored, whatever users wrote there in an earlier
//!   round; and a torn header shows, since neither of its words is ever zero.
//!
//! # Order of stores, and cost
//!
//! * Append: header and payload stored, flushed; fence; footer stored, flushed; fence. Two barriers.
//!   Padded, as many flushes as header and payload have lines, and one; two lines of padding at
//!   most. Dense, the line of the footer is flushed up to three times in a row.
//! * Truncate: [`ring_log`](crate::ring_log); zeroing keeps G3.

use lapis_pmem::Mutant;

use crate::declaration::{Declaration, LogRun};
use crate::log::Placement;
use crate::mutants::CLASSIC_REUSE_WITHOUT_ZEROING;
use crate::ring_log::{RingKind, RingLog, sealed};

/// The classic log.
pub type ClassicLog<D> = RingLog<D, Classic>;

/// The kind of [`ClassicLog`].
#[derive(Debug)]
pub enum Classic {}

impl sealed::Sealed for Classic {}

impl RingKind for Classic {
    const NAME: &'static str = "classic-log";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISCLS");
    const FOOTER: bool = true;
    const ZEROED: bool = true;
    const BLANK: bool = true;
    const REUSE_MUTANT: Mutant = CLASSIC_REUSE_WITHOUT_ZEROING;
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: Classic::NAME,
    sources: &["blocks/src/ring_log", "blocks/src/classic_log"],
    mutants: crate::mutants::CLASSIC_LOG,
    runs: &[
        LogRun::new("classic-log:padded", Placement::Padded, 0)
            .filled_by(4016)
            .under_cells("log-cell:classic")
            .compared("classic-log", 1),
        LogRun::new("classic-log:dense", Placement::Dense, 0),
        LogRun::new("classic-log:streamed", Placement::Streamed, 0),
    ],
    operations: 100,
    persist_points: (100, 2),
};
