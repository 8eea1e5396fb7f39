//! The subjects of the logs, as their declarations say.

use lapis_blocks::log::Log;
use lapis_blocks::{LogKind, LogRun, with_log};
use lapis_device::Modelled;

use super::each_subject::Subjects;
use crate::erased::AnySubject;
use crate::subjects::{LogSubject, PopLogSubject};

/// Bytes of the rings that are explored: few, so that they are filled often.
pub(super) const RING_BYTES: usize = 4096;

pub(super) fn subjects(kind: LogKind) -> Subjects {
    kind.declaration().runs.iter().map(|run| subject(kind, run)).collect()
}

fn subject(kind: LogKind, run: &LogRun) -> Box<dyn AnySubject> {
    let &LogRun { name, placement, size_fields, filling_bytes } = run;
    if kind == LogKind::PopLog {
        // It also survives the death of its process, and has no end.
        return Box::new(PopLogSubject::new(name, placement));
    }
    let sources = kind.declaration().sources;
    with_log!(kind, Modelled, |L| {
        let options = L::options(RING_BYTES, placement, size_fields);
        Box::new(LogSubject::<L>::new(name, sources, options, RING_BYTES, filling_bytes))
    })
}
