//! A log in a ring whose footer is called otherwise: the toy by which a test shows what it takes to add
//! a log. What it keeps of G2 and G3 is what [`classic_log`](crate::classic_log) keeps.

use lapis_pmem::{Mutant, mutants};

use crate::declaration::{Declaration, LogRun};
use crate::log::Placement;
use crate::ring_log::{RingKind, RingLog, sealed};

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

impl RingKind for Toy {
    const NAME: &'static str = "toy-log";
    const MAGIC: u64 = u64::from_le_bytes(*b"LAPISTOY");
    const FOOTER: bool = true;
    const ZEROED: bool = true;
    const BLANK: bool = true;
    const REUSE_MUTANT: Mutant = REUSE_WITHOUT_ZEROING;
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
