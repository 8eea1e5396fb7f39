//! What an exploration with several workers found.

use std::collections::BTreeSet;

use lapis_device::PersistPoint;

use super::pairs::FlushPairs;
use super::rule::BrokenRule;
use crate::coverage::Coverage;
use crate::report::Shrunk;

/// The result of an exploration with several workers.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ConcurrentReport {
    /// What was explored.
    pub structure: String,
    /// Workers.
    pub workers: usize,
    /// The first seed.
    pub seed: u64,
    /// Calls of one history.
    pub ops: usize,
    /// Histories run, each on a schedule of its own.
    pub schedules: u64,
    /// Of these, those that began with what a power cut had left.
    pub after_a_cut: u64,
    /// Events traced in them.
    pub events: u64,
    /// Instants at which the power was cut.
    pub crash_points: u64,
    /// Images recovered and judged.
    pub images: u64,
    /// Different contents that were recovered to, counted for each history.
    pub distinct_states: u64,
    /// Images per second of this machine.
    pub images_per_s: f64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// With bounded deviations: whether all schedules within the bound were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// It ended early, because somebody asked for that.
    pub stopped: bool,
    /// What has no linearization, or was not survived.
    pub violations: Vec<ConcurrentViolation>,
    /// Every flush and fence that was passed in a history.
    #[serde(skip)]
    pub persist_points: BTreeSet<PersistPoint>,
    /// What of the structure's sources was passed, and what never.
    pub coverage: Coverage,
    /// Of its flushes and fences, those before which another worker did something when what they persist had
    /// been stored. What the others make of what is visible and not durable is tried with these alone.
    #[serde(serialize_with = "names")]
    pub interrupted: BTreeSet<PersistPoint>,
    /// Flushes of one line by two workers, of which the second never came between a store and the first.
    #[serde(rename = "never_interleaved")]
    pub(crate) flush_pairs: FlushPairs,
}

fn names<S: serde::Serializer>(
    points: &BTreeSet<PersistPoint>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(points.iter().map(ToString::to_string))
}

impl ConcurrentReport {
    /// The structure's flushes and fences that were passed and never interrupted.
    pub fn never_interrupted(&self) -> impl Iterator<Item = PersistPoint> {
        let passed = self.coverage.points_in_runs();
        passed.filter(|point| !self.interrupted.contains(point))
    }

    /// How many pairs of flushes of one line by two workers there were, and of how many the second came between a
    /// store and the first.
    pub fn flush_pairs(&self) -> (usize, usize) {
        self.flush_pairs.counts()
    }

    /// The others of these pairs.
    pub fn never_interleaved(&self) -> impl Iterator<Item = (PersistPoint, PersistPoint)> {
        self.flush_pairs.never_interleaved()
    }
}

/// A history that is not durably linearizable, or that went wrong otherwise.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ConcurrentViolation {
    /// Which part of the structure.
    pub subject: String,
    /// The seed of the history.
    pub seed: u64,
    /// The schedule; replays the run.
    pub schedule: String,
    /// Events before the crash; none if it went wrong without one.
    pub position: Option<usize>,
    /// Why the power was cut there.
    pub point: Option<String>,
    /// The state chosen for each uncertain line; 0 is the durable one.
    pub image: Vec<u32>,
    /// The call that does not fit.
    pub operation: Option<String>,
    /// What of durable linearizability, or of what must hold besides, does not.
    pub rule: BrokenRule,
    /// What went wrong, in a sentence.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
    /// The shortest case of its kind that was found, if it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
}
