//! Running a subject's operations once on the modelled machine, and recording what they did.

mod first_cut;
mod record;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use lapis_device::{
    CrashPoints, Event, Marker, PersistPoint, PowerFailDomain, StorageGrowth, Trace,
};

pub(crate) use self::first_cut::{FirstCut, one_image};
pub(crate) use self::record::RecordError;
use crate::erased::{AnyState, AnySubject, AnyValue};
use crate::image_check::{ImageChecker, Known};
use crate::options::ExploreOptions;
use crate::storage::Contents;

/// A recorded run. Operation 0 is the creation, or the opening after a first power cut; operations 1 to n are the
/// subject's, and the last is the clean shutdown.
pub(crate) struct Run {
    /// When it was begun.
    pub(crate) begun: Instant,
    pub(crate) trace: Trace,
    pub(crate) operations: Vec<AnyValue>,
    /// The number of each in the sequence that the seed gives, from 1 on: others may have been left
    /// out between them.
    pub(crate) numbers: Vec<usize>,
    /// How long that sequence is.
    planned: usize,
    /// The state after each operation; `states[0]` after the creation. The shutdown, which is the
    /// last, changes nothing.
    pub(crate) states: Vec<AnyState>,
    /// Their hashes.
    pub(crate) hashes: Vec<u64>,
    /// Every persist point that was passed.
    pub(crate) points: Vec<PersistPoint>,
    /// What there was before.
    pub(crate) base: Contents,
    /// The power cut that has left that, if one has.
    pub(crate) first_cut: Option<FirstCut>,
    /// What the run was at from which event on.
    phases: Vec<(usize, Phase)>,
    /// How often what happened.
    pub(crate) events: Events,
    /// After how many events of the trace for the first time, of what the structure tells.
    pub(crate) first_events: BTreeMap<&'static str, usize>,
}

/// How often what happened, by name.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Creating the pool and the structure.
    Creation,
    /// An operation during which nothing else happens.
    Operation,
    /// An operation during which the pool's storage grows.
    Growth,
    /// Shutting down cleanly.
    Close,
    /// Opening after that, or after the power cut that the run begins with.
    Open,
}

impl Run {
    /// The number that an operation of the trace has in the sequence that the seed gives: 0 for the
    /// creation, and beyond the last for the shutdown.
    pub(crate) fn number(&self, sequential: u32) -> usize {
        match (sequential as usize).checked_sub(1) {
            None => 0,
            Some(index) => self.numbers.get(index).copied().unwrap_or(self.planned + 1),
        }
    }

    /// After how many events the operation of this number, or the first after it, begins.
    pub(crate) fn begin_of(&self, number: usize) -> usize {
        let begins = |event: &Event| match event {
            Event::Marker { marker: Marker::Begin(begun), .. } => self.number(*begun) >= number,
            _ => false,
        };
        self.trace.events.iter().position(begins).unwrap_or(0)
    }

    /// The number of the operation in which the event at `position` happened.
    pub(crate) fn operation_at(&self, position: usize) -> usize {
        let end = position.min(self.trace.events.len());
        let begun = self.trace.events[..end].iter().rev().find_map(|event| match event {
            Event::Marker { marker: Marker::Begin(number), .. } => Some(*number),
            _ => None,
        });
        begun.map_or(0, |begun| self.number(begun))
    }

    /// The state after an operation, as something to expect.
    pub(crate) fn known(&self, operation: u32) -> Known<'_> {
        let at = operation as usize;
        Known { state: &self.states[at], hash: self.hashes[at] }
    }

    /// What the run was at when the event before `position` happened.
    pub(crate) fn phase(&self, position: usize) -> Phase {
        let begun = |(from, _): &&(usize, Phase)| *from < position.max(1);
        self.phases.iter().rfind(begun).map_or(self.phases[0].1, |(_, phase)| *phase)
    }

    /// How long the pool's storage may be after so many events.
    pub(crate) fn storage_bytes(&self, position: usize) -> usize {
        self.grown(|growth| growth.position <= position)
    }

    /// How long a power cut after so many events may leave it, if that is shorter: what grew just there may not have yet.
    pub(crate) fn durable_storage_bytes(&self, position: usize) -> Option<usize> {
        let durable = self.grown(|growth| growth.is_durable && growth.position < position);
        (durable < self.storage_bytes(position)).then_some(durable)
    }

    fn grown(&self, counts: impl Fn(&StorageGrowth) -> bool) -> usize {
        let last = self.trace.growths.iter().rfind(|growth| counts(growth));
        last.map_or(self.base.memory.len(), |growth| growth.bytes)
    }

    /// Its crash points, one after the other.
    pub(crate) fn crash_points(&self, options: &ExploreOptions) -> CrashPoints<'_> {
        let Contents { memory, devices } = &self.base;
        let points = CrashPoints::new(&self.trace, memory, PowerFailDomain::AdrPortable);
        let points = points.with_devices(devices.clone());
        if options.every_store { points.at_every_store() } else { points }
    }

    /// A machine to check images on, which holds what there was before.
    pub(crate) fn checker(
        &self,
        subject: &dyn AnySubject,
        options: &ExploreOptions,
    ) -> Result<ImageChecker, String> {
        ImageChecker::new(subject, &self.base, options)
    }

    /// So many of the operations with at least this number, in their order: those with the most fences, which change
    /// the structure most.
    pub(crate) fn longest_operations(&self, from: usize, count: usize) -> BTreeSet<usize> {
        let mut fences = vec![0; self.numbers.len()];
        let mut operation = 0;
        for event in &self.trace.events {
            match event {
                Event::Marker { marker: Marker::Begin(begun), .. } => operation = *begun as usize,
                Event::Fence { .. } if operation > 0 => {
                    fences.get_mut(operation - 1).into_iter().for_each(|fences| *fences += 1);
                }
                _ => {}
            }
        }
        let mut longest: Vec<_> =
            fences.into_iter().zip(&self.numbers).filter(|(_, number)| **number >= from).collect();
        longest.sort_by_key(|(fences, number)| (Reverse(*fences), **number));
        longest.into_iter().take(count).map(|(_, number)| *number).collect()
    }

    /// Whether it has passed a flush or a fence that another has not, or come to an event.
    pub(crate) fn adds_to(&self, other: &Self) -> bool {
        self.points.iter().any(|point| !other.points.contains(point))
            || self.first_events.keys().any(|event| !other.first_events.contains_key(event))
    }

    /// The kind of each operation, the creation and the shutdown included: the name of its variant.
    pub(crate) fn operation_kinds(&self) -> Vec<String> {
        let kind = |operation: &AnyValue| {
            let text = format!("{operation:?}");
            let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
            if name.is_empty() { "operation".to_owned() } else { name.to_lowercase() }
        };
        let between = self.operations.iter().map(kind);
        let first = std::iter::once("creation".to_owned());
        first.chain(between).chain(std::iter::once("shutdown".to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::AllocatorSubject;

    #[test]
    fn where_the_storage_grows_a_power_cut_leaves_it_as_long_as_before_or_as_after() {
        let subject = AllocatorSubject::new("allocator:growing", 0).growing();
        let options = ExploreOptions { ops: 120, ..ExploreOptions::default() };
        let run = Run::record(&subject, &options).unwrap();
        let mut before = run.base.memory.len();
        assert!(!run.trace.growths.is_empty());
        for growth in &run.trace.growths {
            assert!(growth.is_durable && growth.bytes > before);
            assert_eq!(run.storage_bytes(growth.position), growth.bytes);
            assert_eq!(run.durable_storage_bytes(growth.position), Some(before));
            assert_eq!(run.durable_storage_bytes(growth.position + 1), None);
            before = growth.bytes;
        }
    }
}
