//! The subjects of the logs, as their declarations say.

use lapis_blocks::log::Log;
use lapis_blocks::{LogKind, LogRun, with_log};
use lapis_device::Modelled;

use crate::erased::{AnySubject, Subjects};
use crate::subjects::LogSubject;

/// Bytes of the rings, or of their segments, that are explored: few, so that they are filled often.
pub(super) const RING_BYTES: usize = 4096;

pub(super) fn subjects(kind: LogKind) -> Subjects {
    let boxed = |run: &LogRun| -> Box<dyn AnySubject> {
        with_log!(kind, Modelled, |L| Box::new(subject::<L>(kind, run)))
    };
    kind.declaration().runs.iter().map(boxed).collect()
}

pub(crate) fn subject<L: Log<Modelled>>(kind: LogKind, run: &LogRun) -> LogSubject<L> {
    let (sources, layout) = (kind.declaration().sources, run.layout(RING_BYTES));
    LogSubject::new(run.name, sources, layout, run.filling_bytes)
}
