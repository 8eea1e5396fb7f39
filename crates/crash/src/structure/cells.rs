//! The subjects of the cells that are updated in place, as their declarations say, and as those of the
//! logs do.

use lapis_blocks::in_place::InPlace;
use lapis_blocks::log::{Layout, Placement};
use lapis_blocks::{CellKind, CellRun, LogKind, LogRun, with_cell, with_log};
use lapis_device::Modelled;

use super::logs::RING_BYTES;
use crate::erased::{AnySubject, Subjects};
use crate::subjects::InPlaceSubject;

/// Bytes of values whose entries fill a ring several times.
const LOGGED_BYTES: usize = 200;

pub(super) fn subjects(kind: CellKind) -> Subjects {
    let layout = Layout { bytes: RING_BYTES, placement: Placement::Padded, size_fields: 0 };
    let of = |&CellRun { name, value_bytes }: &CellRun| {
        subject(kind, LogKind::PopLog, name, value_bytes, layout)
    };
    let mut subjects: Subjects = kind.declaration().runs.iter().map(of).collect();
    if kind.takes_log() {
        let by_log = |log: LogKind| {
            let of = move |run: &LogRun| {
                Some(subject(kind, log, run.under_cells?, LOGGED_BYTES, run.layout(RING_BYTES)))
            };
            log.declaration().runs.iter().filter_map(of)
        };
        subjects.extend(LogKind::ALL.into_iter().flat_map(by_log));
    }
    subjects
}

fn subject(
    kind: CellKind,
    log: LogKind,
    name: &'static str,
    value_bytes: usize,
    layout: Layout,
) -> Box<dyn AnySubject> {
    fn boxed<S: InPlace<Modelled> + 'static>(
        name: &'static str,
        value_bytes: usize,
        layout: Layout,
    ) -> Box<dyn AnySubject> {
        Box::new(InPlaceSubject::<S>::new(name, value_bytes, layout))
    }
    with_log!(log, Modelled, |L| {
        with_cell!(kind, Modelled, L, |S| boxed::<S>(name, value_bytes, layout))
    })
}
