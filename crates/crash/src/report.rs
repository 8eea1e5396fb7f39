//! What an exploration found.

use std::collections::{BTreeMap, BTreeSet};

use lapis_device::PersistPoint;

use crate::coverage::Coverage;
use crate::erased::AnySubject;
use crate::options::ExploreOptions;
use crate::oracle::Failure;
use crate::run::Phase;
use crate::strategy::Strategy;
use crate::timeline::entry::{LineFate, TimelineEntry};

/// The result of an exploration.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ExploreReport {
    /// What was explored.
    pub structure: String,
    /// The seed of the operations and of the sampled images.
    pub seed: u64,
    /// How the images of a crash point were chosen.
    pub strategy: Strategy,
    /// Operations run.
    pub ops: usize,
    /// Instants at which the power was cut.
    pub crash_points: u64,
    /// One crash point in so many was tried: of the subject of which the fewest were.
    pub one_crash_point_in: u64,
    /// How many of them fall into what.
    pub crash_points_in: BTreeMap<Phase, u64>,
    /// How many of them come just before which fence.
    #[serde(skip)]
    pub fences: BTreeMap<PersistPoint, u64>,
    /// Of those, at how many every image was tried or is known to come out like one that was.
    pub exhaustive_points: u64,
    /// Images recovered and checked, those of crashes during recovery included.
    pub images: u64,
    /// Of those, images of a second crash, during recovery or the operations after it.
    pub images_in_recovery: u64,
    /// Of the images, those of which nothing was run: they agree with one that was, at another
    /// crash point, in every byte that was read of it.
    pub images_by_proof: u64,
    /// Those of which recovery and contents were known in that way, and operations were run on them.
    pub images_partly_by_proof: u64,
    /// Recoveries crashed again after which the pool's storage grew.
    pub grown_recoveries: u64,
    /// Lines copied to make the images and to take them back, what recoveries and checks dirtied
    /// included: what an image costs.
    pub lines_copied: u64,
    /// Parts of walks over the structure that were passed over, because nothing is read in them that
    /// was different the last time.
    pub parts_passed: u64,
    /// Images of a first crash that were tried or are known to come out like one that was. At 2⁶⁴ − 1
    /// counting ends, and the report says that they are more.
    #[serde(serialize_with = "in_words_if_too_many")]
    pub images_covered: u64,
    /// Different contents that were recovered to.
    pub distinct_states: u64,
    /// How often what happened in the run, of what the subject counts or the structure tells of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "as_list")]
    pub events: BTreeMap<&'static str, u64>,
    /// Runs besides the first of each subject, for what that had not passed or for more images.
    pub further_runs: u64,
    /// What of the structure's sources was passed, and what never.
    pub coverage: Coverage,
    /// What came of each crash point, by subject and position.
    #[serde(skip)]
    pub outcomes: BTreeMap<(String, usize), PointOutcomes>,
    /// Images per second of this machine.
    pub images_per_s: f64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// It ended early, because somebody asked for that.
    pub stopped: bool,
    /// What was not survived.
    pub violations: Vec<Violation>,
    /// Each flush and fence of the structure, and whether switching it off was found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persist_points: Vec<PersistPointRow>,
    /// Those in its sources that no run passed, nor a recovery, and that were therefore not switched off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never_passed: Vec<PersistPoint>,
}

/// A flush or fence, and what became of the structure without it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PersistPointRow {
    /// File, line and kind.
    pub name: String,
    /// Whether the checker found a violation with it switched off.
    pub killed: bool,
    /// Images tried until then.
    pub images: u64,
    /// The violation.
    pub by: Option<String>,
    /// It is passed only in recoveries from crashes, and in what is done after these.
    pub only_after_crashes: bool,
}

/// What came of the images of one crash point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointOutcomes {
    /// Whether every image was tried or is known to come out like one that was.
    pub complete: bool,
    /// Images tried.
    pub images: u64,
    /// A hash of each outcome: the contents recovered to, or the failure.
    pub hashes: BTreeSet<u64>,
}

/// A crash that was not survived.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Violation {
    /// Which part of the structure's run: indexes are explored once per kind of keys.
    pub subject: String,
    /// Events before the crash.
    pub position: usize,
    /// Why the power was cut there.
    pub point: String,
    /// The operation in flight, or none between operations.
    pub operation: Option<String>,
    /// The number of the last acknowledged operation.
    pub acknowledged: Option<u32>,
    /// The state chosen for each uncertain line; 0 is the durable one.
    pub image: Vec<u32>,
    /// The choices of the image in which everything has persisted.
    #[serde(skip)]
    pub newest: Vec<u32>,
    /// The process was killed there and the power cut during the recovery.
    pub killed: bool,
    /// What failed.
    pub failure: Failure,
    /// The same in a sentence.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
    /// The shortest case of its kind that was found, if it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
}

/// A violation in as few operations and lines as were found to do, told step by step.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shrunk {
    /// Which subject.
    pub subject: String,
    /// The operations that it takes.
    pub operations: Vec<KeptOperation>,
    /// What became of each line that was uncertain.
    pub lines: Vec<LineFate>,
    /// What happened, in order.
    pub timeline: Vec<TimelineEntry>,
    /// The clause of the oracle that is broken.
    pub clause: String,
    /// What failed.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
    /// Explorations that shrinking took; with several workers, runs.
    pub explorations: u64,
    /// With several workers: what there was beforehand, and who ran when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<ShrunkHistory>,
    /// It is of a recorded trace: nothing is left out of its operations, and its memory is not a pool.
    #[serde(skip)]
    pub recorded: bool,
}

impl Shrunk {
    /// Whether it says who does what.
    pub(crate) fn names_workers(&self) -> bool {
        self.timeline.iter().any(|entry| entry.worker.is_some())
    }
}

/// What several workers came from, and how they were interleaved.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShrunkHistory {
    /// Workers that make a call.
    pub workers: usize,
    /// The operations that made what there was beforehand, by number from 1 on.
    pub before: Vec<KeptOperation>,
    /// The schedule up to the crash.
    pub schedule: String,
    /// How often another worker takes over in it.
    pub switches: usize,
    /// At how many events it is not worker after worker with store buffers that drain at once; none
    /// if no schedule with few deviations shows the violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviations: Option<usize>,
}

/// One of the operations that a violation takes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KeptOperation {
    /// Its number in the sequence that the seed gives.
    pub number: usize,
    /// Who does it, if there are several workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<u8>,
    /// What it is.
    pub what: String,
}

/// How often something happened.
#[derive(serde::Serialize)]
struct Counted<'a> {
    event: &'a str,
    count: u64,
}

fn as_list<S: serde::Serializer>(
    events: &BTreeMap<&'static str, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(|(&event, &count)| Counted { event, count }))
}

/// A count, or that it is too large for one.
fn in_words_if_too_many<S: serde::Serializer>(
    count: &u64,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match count {
        &u64::MAX => serializer.serialize_str("more than 64 bits count"),
        count => serializer.serialize_u64(*count),
    }
}

impl ExploreReport {
    /// Of a subject of which nothing was explored yet.
    pub(crate) fn of(subject: &dyn AnySubject, options: &ExploreOptions) -> Self {
        Self {
            structure: subject.name().to_owned(),
            seed: options.seed,
            strategy: options.strategy,
            ops: options.ops,
            coverage: Coverage::none_of(|file| subject.owns_source(file)),
            ..Self::default()
        }
    }

    /// Adds the report of another part of the same structure.
    pub(crate) fn add(&mut self, other: Self) {
        self.crash_points += other.crash_points;
        self.one_crash_point_in = self.one_crash_point_in.max(other.one_crash_point_in);
        for (phase, count) in other.crash_points_in {
            *self.crash_points_in.entry(phase).or_default() += count;
        }
        for (fence, count) in other.fences {
            *self.fences.entry(fence).or_default() += count;
        }
        self.exhaustive_points += other.exhaustive_points;
        self.images += other.images;
        self.images_in_recovery += other.images_in_recovery;
        self.images_by_proof += other.images_by_proof;
        self.images_partly_by_proof += other.images_partly_by_proof;
        self.grown_recoveries += other.grown_recoveries;
        self.lines_copied += other.lines_copied;
        self.parts_passed += other.parts_passed;
        self.images_covered = self.images_covered.saturating_add(other.images_covered);
        self.distinct_states += other.distinct_states;
        for (event, count) in other.events {
            *self.events.entry(event).or_default() += count;
        }
        self.further_runs += other.further_runs;
        self.coverage.add(other.coverage);
        self.outcomes.extend(other.outcomes);
        self.seconds += other.seconds;
        self.images_per_s = self.images as f64 / self.seconds.max(1e-9);
        self.stopped |= other.stopped;
        self.violations.extend(other.violations);
    }
}
