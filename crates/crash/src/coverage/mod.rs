//! Where an exploration has been, and where it has not.
//!
//! That nothing was found says something of what was passed only. So whoever explores a structure knows
//! all persist points and events of its sources (`sources.rs`), and says which of them were passed: in the
//! run, in whose crashes the power is cut, or only in recoveries from these and in what was tried after.

#[cfg(test)]
mod sources;

use std::collections::BTreeMap;

use lapis_device::{PersistKind, PersistPoint, PersistPointCount, StructuralEvent};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::run::Events;

include!(concat!(env!("OUT_DIR"), "/source_points.rs"));

/// Every flush, fence and non-temporal copy in the sources of the workspace, in their order: found without
/// running anything. None elsewhere than in the workspace.
pub fn known_persist_points() -> &'static [PersistPoint] {
    PERSIST_POINTS
}

/// When something was passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Passed {
    #[default]
    Never,
    /// Only after a crash.
    AfterCrash,
    /// In the run.
    InRun,
}

/// What of a structure's sources was passed. See the [module documentation](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    points: BTreeMap<PersistPoint, Passed>,
    events: BTreeMap<&'static str, Passed>,
}

impl Coverage {
    /// Of the source files that `owns` says, of which nothing was run.
    pub(crate) fn none_of(owns: impl Fn(&str) -> bool) -> Self {
        let points = PERSIST_POINTS.iter().filter(|point| owns(point.file));
        let events = EVENTS.iter().filter(|(file, _)| owns(file));
        Self {
            points: points.map(|point| (*point, Passed::Never)).collect(),
            events: events.map(|(_, name)| (*name, Passed::Never)).collect(),
        }
    }

    /// Adds what a subject counts itself, to the events of the sources; those of others are left out.
    pub(crate) fn count_events(
        &self,
        counted: &mut Events,
        told: BTreeMap<&'static str, StructuralEvent>,
    ) {
        for (event, StructuralEvent { count, .. }) in
            told.into_iter().filter(|(event, _)| self.events.contains_key(event))
        {
            *counted.entry(event).or_default() += count;
        }
    }

    /// With what was passed in a run.
    pub(crate) fn pass_run(
        &mut self,
        points: impl IntoIterator<Item = PersistPoint>,
        events: &Events,
    ) {
        points.into_iter().for_each(|point| self.pass_point(point, Passed::InRun));
        for (event, count) in events {
            let passed = if *count > 0 { Passed::InRun } else { Passed::Never };
            let known = self.events.entry(event).or_default();
            *known = passed.max(*known);
        }
    }

    /// With what was passed after crashes.
    pub(crate) fn pass_after_crashes(
        &mut self,
        points: &[PersistPointCount],
        events: &BTreeMap<&'static str, StructuralEvent>,
    ) {
        points.iter().for_each(|found| self.pass_point(found.point, Passed::AfterCrash));
        for event in events.keys() {
            if let Some(known) = self.events.get_mut(event) {
                *known = (*known).max(Passed::AfterCrash);
            }
        }
    }

    fn pass_point(&mut self, point: PersistPoint, passed: Passed) {
        // A path as it is from the root of the workspace, wherever that lies.
        let file = point.file.rfind("crates/").map_or(point.file, |at| &point.file[at..]);
        let known = self.points.entry(PersistPoint { file, ..point }).or_default();
        *known = passed.max(*known);
    }

    /// With what another exploration of the same structure has passed.
    pub fn add(&mut self, other: Self) {
        for (point, passed) in other.points {
            self.pass_point(point, passed);
        }
        for (event, passed) in other.events {
            let known = self.events.entry(event).or_default();
            *known = passed.max(*known);
        }
    }

    /// Flushes, fences and non-temporal copies of the structure's sources.
    pub fn persist_points(&self) -> usize {
        self.points.len()
    }

    /// Those of them that were never passed, in the order of the source.
    pub fn missed_points(&self) -> impl Iterator<Item = PersistPoint> + Clone {
        of(&self.points, Passed::Never).copied()
    }

    /// Those that were passed in runs.
    pub(crate) fn points_in_runs(&self) -> impl Iterator<Item = PersistPoint> + Clone {
        of(&self.points, Passed::InRun).copied()
    }

    /// Those that were passed only after crashes.
    pub fn points_after_crashes(&self) -> impl Iterator<Item = PersistPoint> + Clone {
        of(&self.points, Passed::AfterCrash).copied()
    }

    /// Events that the structure's sources name.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Those that never happened.
    pub fn missed_events(&self) -> impl Iterator<Item = &'static str> + Clone {
        of(&self.events, Passed::Never).copied()
    }

    /// Those that happened only after crashes.
    pub fn events_after_crashes(&self) -> impl Iterator<Item = &'static str> + Clone {
        of(&self.events, Passed::AfterCrash).copied()
    }

    /// How much was never passed.
    pub fn missed(&self) -> usize {
        self.missed_points().count() + self.missed_events().count()
    }
}

fn of<T>(found: &BTreeMap<T, Passed>, when: Passed) -> impl Iterator<Item = &T> + Clone {
    found.iter().filter(move |(_, passed)| **passed == when).map(|(key, _)| key)
}

impl Serialize for Coverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = |points: &mut dyn Iterator<Item = PersistPoint>| -> Vec<String> {
            points.map(|point| point.to_string()).collect()
        };
        let missed = names(&mut self.missed_points());
        let mut fields = serializer.serialize_struct("Coverage", 8)?;
        fields.serialize_field("persist_points", &self.persist_points())?;
        fields.serialize_field("persist_points_passed", &(self.persist_points() - missed.len()))?;
        let after = names(&mut self.points_after_crashes());
        fields.serialize_field("persist_points_passed_only_after_crashes", &after)?;
        fields.serialize_field("persist_points_missed", &missed)?;
        let missed: Vec<_> = self.missed_events().collect();
        fields.serialize_field("events", &self.events())?;
        fields.serialize_field("events_passed", &(self.events() - missed.len()))?;
        let after: Vec<_> = self.events_after_crashes().collect();
        fields.serialize_field("events_only_after_crashes", &after)?;
        fields.serialize_field("events_missed", &missed)?;
        fields.end()
    }
}
