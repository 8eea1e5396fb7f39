//! A log in a ring whose footer is called otherwise: the toy by which a test shows what it takes to add
//! a log. What it keeps of G2 and G3 is what [`classic_log`](crate::classic_log) keeps.

use lapis_pmem::{Domain, Mutant, mutants};

use crate::declaration::{Declaration, LogRun};
use crate::log::{Placement, Position};
use crate::ring_log::{
    Entry, Head, Ring, RingLog, Scheme, Seen, Sink, is_zero, plain, sealed, zero_dirty,
};

mutants! {
    /// The mutants of the toy, and operations in which all show.
    CATALOGUE: 150 operations;

    /// Truncated space is used again as it is.
    REUSE_WITHOUT_ZEROING = "toy-log/reuse-without-zeroing" =>
        at("blocks/src/ring_log/retention.rs, truncate");
}

/// A log in a ring.
pub type ToyLog<D> = RingLog<D, Toy>;

/// The kind of [`ToyLog`].
#[derive(Debug)]
pub enum Toy {}

impl sealed::Sealed for Toy {}

#[expect(private_interfaces, reason = "see Scheme")]
impl Scheme for Toy {
    const NAME: &'static str = "toy-log";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISTOY");
    const FOOTER: bool = true;
    const ZEROED: bool = true;
    const BLANK: bool = true;
    const REUSE_MUTANT: Mutant = REUSE_WITHOUT_ZEROING;

    fn body_bytes(length: usize) -> u64 {
        plain::body_bytes(length)
    }

    fn free_word(_: u64) -> u64 {
        0
    }

    fn write<D: Domain>(sink: &mut Sink<'_, D, Self>, entry: &Entry<'_>) {
        plain::write(sink, entry);
    }

    fn look<D: Domain>(ring: &Ring<'_, D>, at: u64, end: u64, position: Position) -> Seen {
        plain::look(ring, at, end, position)
    }

    fn is_intact<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head) -> bool {
        plain::is_intact(ring, at, head)
    }

    fn read<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head, into: &mut Vec<u8>) {
        plain::read(ring, at, head, into);
    }

    unsafe fn clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        // SAFETY: nobody else has the log open.
        unsafe { zero_dirty(ring, from, to) }
    }

    fn is_clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        is_zero(ring, from, to)
    }
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: Toy::NAME,
    sources: &["blocks/src/ring_log", "blocks/src/toy_log"],
    mutants: CATALOGUE,
    runs: &[LogRun::new("toy-log:padded", Placement::Padded, 0)
        .under_cells("log-cell:toy")
        .compared("toy-log", 1)],
    operations: 60,
    persist_points: (60, 1),
};
