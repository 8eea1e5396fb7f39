//! The header log: header and payload, barrier, the size of the log, barrier.
//!
//! After "Header" of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks for
//! persistent memory: How to get the most out of your new memory?*, The VLDB Journal 29 (2020),
//! section 3.3, the technique of *libpmemlog* (PMDK). What says that an entry is there is the size
//! of the log in its header, so recovery need not look for the end.
//!
//! The one size field is in a line that every append persists, and persisting a line again at once
//! is slow. *Dancing* size fields are many, on a line each, of which each append writes the next;
//! the greatest counts. The three variants of the thesis:
//!
//! | variant | [`Layout::placement`](crate::log::Layout) | `size_fields` |
//! |---|---|---|
//! | naive, as libpmemlog | `Dense` | 1 |
//! | aligned to lines | `Padded` | 1 |
//! | dancing | `Padded` | 64 |
//!
//! # Layout
//!
//! ```text
//!  size field (a line each, behind the root)       entry
//!     0   8  size                                     0  16  header (ring_log/entry.rs)
//!     8  56  zero                                    16   n  payload
//!                                                         …  anything to 8 bytes or to the line
//!  size:  63                 44 43                                            0
//!        +---------------------+-----------------------------------------------+
//!        | CRC of the rest     | end of the stream / 8, modulo 2^44            |
//!        +---------------------+-----------------------------------------------+
//! ```
//!
//! The ring, its root and start are in [`ring_log`](crate::ring_log), with the invariants G1 to G6. Of
//! those this log keeps
//!
//! * G2. A size is stored when all entries before it are durable: one barrier between. A size is one
//!   word, so it is the old one or the new one, and no field is ever greater than the size that was
//!   stored last.
//! * G3. Free space may hold anything: nothing behind the size is looked at.
//!
//! # Order of stores, and cost
//!
//! * Append, or batch: header and payload stored, flushed; fence; size stored, its line flushed;
//!   fence. Two barriers. As many flushes as the entry has lines, and one.
//! * Truncate: [`ring_log`](crate::ring_log): one barrier. Open: none.

use lapis_pmem::Domain;

use crate::declaration::{Declaration, LogRun};
use crate::log::Placement;
use crate::ring_log::{Ring, RingKind, RingLog, sealed};

/// The header log.
pub type HeaderLog<D> = RingLog<D, Header>;

/// The kind of [`HeaderLog`].
#[derive(Debug)]
pub enum Header {}

impl sealed::Sealed for Header {}

#[expect(private_interfaces, reason = "see RingKind")]
impl RingKind for Header {
    const NAME: &'static str = "header-log";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISHDR");
    const SIZED: bool = true;

    unsafe fn clean<D: Domain>(_: &Ring<'_, D>, _: u64, _: u64) -> bool {
        false
    }

    fn is_clean<D: Domain>(_: &Ring<'_, D>, _: u64, _: u64) -> bool {
        true
    }
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: Header::NAME,
    sources: &["blocks/src/ring_log", "blocks/src/header_log"],
    mutants: crate::mutants::HEADER_LOG,
    runs: &[
        LogRun::new("header-log:naive", Placement::Dense, 1).under_cells("log-cell:naive"),
        LogRun::new("header-log:aligned", Placement::Padded, 1)
            .filled_by(4080)
            .under_cells("log-cell:aligned")
            .compared("header-log", 1),
        LogRun::new("header-log:dancing", Placement::Padded, 8)
            .filled_by(4080)
            .under_cells("log-cell:dancing")
            .compared("header-log:dancing", 64),
        LogRun::new("header-log:streamed", Placement::Streamed, 8),
    ],
    operations: 100,
    persist_points: (100, 2),
};
