//! What a modelled machine is asked to observe.

use lapis_pmem::{Mutant, Optimisations};

use crate::counting::counters::MachineShape;
use crate::counting::timing::TimingShape;
use crate::modelled::persist_points::PersistPoint;

/// What a [`Modelled`](crate::Modelled) observes.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Record a [`Trace`] from the start. [`Modelled::set_tracing`] switches later.
    pub tracing: bool,
    /// Keep what dirtied lines held before, for [`Modelled::revert`].
    pub tracking: bool,
    /// Notice which bytes of given lines are read: [`Modelled::watch_reads`].
    pub watching: bool,
    /// Count what happens on a machine of this shape. Counting costs a lock per load.
    pub counting: Option<MachineShape>,
    /// Further delays to keep clocks with while counting ([`Modelled::all_now`]): what the same
    /// program takes on machines that differ in nothing else.
    pub other_timings: Vec<TimingShape>,
    /// A flush or fence that is not performed (no guarantee, no count), or a non-temporal copy
    /// that is done with ordinary stores and no flush. Host memory is ordered all the same.
    pub suppress: Option<PersistPoint>,
    /// Those of the amplification study's optimisations that are the machine's.
    pub optimisations: Optimisations,
    /// A known error that structures are to commit.
    pub mutant: Option<Mutant>,
    /// Made for [`Modelled::run_workers`]: several workers, each with a store buffer.
    pub concurrent: bool,
}

impl Config {
    /// Counts, on a machine of the default shape.
    pub fn counting() -> Self {
        Self { counting: Some(MachineShape::default()), ..Self::default() }
    }

    /// Records a trace, for crash exploration.
    pub fn tracing() -> Self {
        Self { tracing: true, ..Self::default() }
    }

    /// Tracks dirtied lines, nothing else: for recoveries on crash images.
    pub fn tracking() -> Self {
        Self { tracking: true, ..Self::default() }
    }

    /// Tracks dirtied lines and records a trace: for crashes during recovery.
    pub fn tracking_and_tracing() -> Self {
        Self { tracing: true, tracking: true, ..Self::default() }
    }

    /// Records a trace of several workers.
    pub fn concurrent() -> Self {
        Self { concurrent: true, ..Self::tracing() }
    }

    /// The same with one persist point switched off.
    pub fn suppressing(self, point: PersistPoint) -> Self {
        Self { suppress: Some(point), ..self }
    }

    /// The same with one known error committed.
    pub fn committing(self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self }
    }
}
