//! A run that shows a violation.

use std::ops::Range;

use lapis_device::{Event, Schedule};

use super::machines::{Found, Machines, Ran};
use super::options::Selection;
use crate::erased::AnyValue;

/// A run that shows the violation.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) selection: Selection,
    pub(super) schedule: Schedule,
    pub(super) found: Found,
    /// What happened before the crash.
    pub(super) events: Vec<Event>,
    /// At how many events the schedule deviates from the plain one, if it was found so.
    pub(super) deviations: Option<usize>,
    pub(super) runs: u64,
    /// Call, worker, and the steps in between.
    pub(super) spans: Vec<(u32, u8, Range<usize>)>,
}

impl Case {
    pub(super) fn of(machines: &Machines<'_>, ran: &Ran, found: Found) -> Self {
        let number = |(number, _): &(u32, AnyValue)| *number;
        Self {
            selection: Selection {
                calls: Some(machines.calls.iter().flatten().map(number).collect()),
                before: Some(machines.before.iter().map(number).collect()),
            },
            schedule: ran.run.schedule.clone(),
            events: ran.trace.units_before(found.position().unwrap_or(0)),
            spans: ran.spans.clone(),
            found,
            deviations: None,
            runs: 0,
        }
    }

    pub(super) fn calls(&self) -> &[u32] {
        self.selection.calls.as_deref().unwrap_or(&[])
    }

    pub(super) fn before(&self) -> &[u32] {
        self.selection.before.as_deref().unwrap_or(&[])
    }
}
