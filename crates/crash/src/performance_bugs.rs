//! Performance bugs: flushes and fences that a trace shows to be wasted.
//!
//! The classes are those that checkers of persistent programs look for, and the remedies those of
//! Woo, Kim, Jung, Seo: *Analysis and Optimization of Persistent Memory Index Structures' Write
//! Amplification* (IEEE Access 2021), who save up to a third of the writes to the memory controller
//! by *flush coalescing*:
//!
//! * a flush of a line that the same worker has flushed since the last store to it, before its
//!   fence ([`Waste::InFlight`]) or after a fence made that durable ([`Waste::Durable`]);
//! * a flush of a line that nothing was stored to, or only past the caches ([`Waste::Clean`]);
//! * a flush that a later flush of the same line before the same fence covers
//!   ([`Waste::Coalescable`]): it and not the later one is reported, since the later one remains;
//! * a fence whose worker has flushed nothing dirty and stored nothing past the caches since its
//!   last fence ([`Waste::IdleFence`]).
//!
//! A worker that flushes what another has flushed and not fenced wastes nothing: its own fence
//! completes only its own flushes (rule R4). Locked instructions complete nothing here, as for
//! crashes (rule R5). A flush or fence that is wasted in one run may be needed in another, where
//! its line is dirty: what is always wasted shows by its count being that of its passings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{Event, Marker};
use serde::Serialize;

use crate::options::ExploreOptions;
use crate::run::Run;
use crate::structure::{CrashError, Structure, each_run};
use crate::subject::Subject;

/// A way to waste a flush or a fence. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waste {
    /// The line has been flushed since it was last stored to; the fence is still to come.
    InFlight,
    /// The line has been flushed since it was last stored to, and fenced.
    Durable,
    /// Nothing was stored to the line that a flush would write back.
    Clean,
    /// A later flush of the line before the same fence covers this one.
    Coalescable,
    /// Nothing has been flushed or stored past the caches since the last fence.
    IdleFence,
}

impl Waste {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::InFlight, Self::Durable, Self::Clean, Self::Coalescable, Self::IdleFence];

    /// The same in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "flushed again, unchanged, before the fence",
            Self::Durable => "flushed again, unchanged, after the fence",
            Self::Clean => "flush of a clean line",
            Self::Coalescable => "flush that a later one before the fence covers",
            Self::IdleFence => "fence with nothing to order",
        }
    }
}

/// What was found in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerformanceReport {
    /// What was traced.
    pub subject: String,
    /// Operations that were begun.
    pub operations: u64,
    /// Lines flushed.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Wasted flushes and fences by kind; none where there are none.
    pub wasted: BTreeMap<Waste, u64>,
    /// What was wasted where, most often first.
    pub findings: Vec<PerformanceFinding>,
    /// The same by kind of operation.
    pub by_operation: Vec<OperationWaste>,
}

/// One way to waste at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PerformanceFinding {
    /// The way.
    pub waste: Waste,
    /// The flush or fence that is wasted: `file:line:column`.
    pub location: String,
    /// The flush that makes it so, if one does.
    pub because_of: Option<String>,
    /// How often.
    pub count: u64,
    /// How often the flush or fence was passed, wasted or not.
    pub passed: u64,
    /// How often by kind of operation.
    pub by_operation: BTreeMap<String, u64>,
    /// Events before the first time.
    pub first_position: usize,
    /// The number of the operation of the first time; none between operations.
    pub first_operation: Option<u32>,
}

/// What one kind of operation does and wastes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationWaste {
    /// The kind.
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// Lines they flushed.
    pub flushes: u64,
    /// Fences of theirs.
    pub fences: u64,
    /// Flushes and fences that were wasted.
    pub wasted: BTreeMap<Waste, u64>,
}

impl PerformanceReport {
    /// All that was wasted.
    pub fn wasted_total(&self) -> u64 {
        self.wasted.values().sum()
    }

    /// What was wasted in this way.
    pub fn wasted_by(&self, waste: Waste) -> u64 {
        self.wasted.get(&waste).copied().unwrap_or(0)
    }
}

/// A flush that its worker has not fenced yet.
#[derive(Clone, Copy)]
struct Mark {
    worker: u8,
    /// What the line held then, by number.
    version: u64,
    position: usize,
}

#[derive(Default)]
struct Line {
    /// Cached stores so far.
    version: u64,
    durable_version: u64,
    marks: Vec<Mark>,
    /// The flush that made it durable.
    flushed_at: usize,
}

#[derive(Default)]
struct Worker {
    /// Lines with a mark of this worker.
    marked: Vec<u32>,
    stored_past_caches: bool,
    operation: Option<u32>,
}

/// A wasted flush or fence at `position`, because of the one at `because_of`.
struct Found {
    waste: Waste,
    position: usize,
    because_of: Option<usize>,
    operation: Option<u32>,
}

/// Looks for performance bugs in a trace. `kind_of` names the kind of an operation from its
/// number.
pub fn performance_bugs(
    recorded: &RecordedTrace,
    kind_of: &dyn Fn(u32) -> String,
) -> PerformanceReport {
    let mut lines: HashMap<u32, Line> = HashMap::new();
    let mut workers: BTreeMap<u8, Worker> = BTreeMap::new();
    let mut tally = Tally::new(recorded, kind_of);
    for (position, event) in recorded.trace.events.iter().enumerate() {
        match *event {
            Event::Store { line, .. }
            | Event::OrderedStore { line, .. }
            | Event::Locked { line, .. } => lines.entry(line).or_default().version += 1,
            Event::NonTemporal { worker, .. } => {
                workers.entry(worker).or_default().stored_past_caches = true;
            }
            Event::Flush { worker, line: number, .. }
            | Event::StrongFlush { worker, line: number } => {
                let operation = workers.entry(worker).or_default().operation;
                tally.pass(position, operation, true);
                let line = lines.entry(number).or_default();
                let found = |waste, position, because_of| Found {
                    waste,
                    position,
                    because_of: Some(because_of),
                    operation,
                };
                if line.version == 0 {
                    let found = Found { because_of: None, ..found(Waste::Clean, position, 0) };
                    tally.add(found);
                    continue;
                }
                if line.version == line.durable_version {
                    tally.add(found(Waste::Durable, position, line.flushed_at));
                    continue;
                }
                if let Event::StrongFlush { .. } = event {
                    // Durable at once, and whoever has flushed it before need not have.
                    line.durable_version = line.version;
                    line.flushed_at = position;
                    continue;
                }
                match line.marks.iter_mut().find(|mark| mark.worker == worker) {
                    Some(mark) if mark.version == line.version => {
                        tally.add(found(Waste::InFlight, position, mark.position));
                    }
                    Some(mark) => {
                        tally.add(found(Waste::Coalescable, mark.position, position));
                        *mark = Mark { worker, version: line.version, position };
                    }
                    None => {
                        line.marks.push(Mark { worker, version: line.version, position });
                        workers.entry(worker).or_default().marked.push(number);
                    }
                }
            }
            Event::Fence { worker: number, .. } => {
                let worker = workers.entry(number).or_default();
                tally.pass(position, worker.operation, false);
                if worker.marked.is_empty() && !worker.stored_past_caches {
                    let operation = worker.operation;
                    let waste = Waste::IdleFence;
                    tally.add(Found { waste, position, because_of: None, operation });
                }
                worker.stored_past_caches = false;
                for marked in worker.marked.drain(..) {
                    let Some(line) = lines.get_mut(&marked) else { continue };
                    line.marks.retain(|mark| {
                        let fenced = mark.worker == number;
                        if fenced && mark.version > line.durable_version {
                            line.durable_version = mark.version;
                            line.flushed_at = mark.position;
                        }
                        !fenced
                    });
                }
            }
            Event::Marker { worker, marker } => match marker {
                Marker::Begin(number) => {
                    workers.entry(worker).or_default().operation = Some(number);
                    tally.begin(number);
                }
                Marker::End(_) => workers.entry(worker).or_default().operation = None,
                Marker::Note(_) => {}
            },
            // A recorded trace is in units.
            _ => {}
        }
    }
    tally.report()
}

/// Counts by place and by kind of operation.
struct Tally<'r> {
    recorded: &'r RecordedTrace,
    kind_of: &'r dyn Fn(u32) -> String,
    /// Kinds by operation, asked once.
    kinds: HashMap<u32, String>,
    report: PerformanceReport,
    /// By way, place and the place of the cause.
    findings: BTreeMap<(Waste, u32, Option<u32>), PerformanceFinding>,
    by_operation: BTreeMap<String, OperationWaste>,
    /// Passings of each place, flushes and fences apart.
    passed: HashMap<(u32, bool), u64>,
    began: BTreeSet<u32>,
}

const BETWEEN: &str = "between operations";

impl<'r> Tally<'r> {
    fn new(recorded: &'r RecordedTrace, kind_of: &'r dyn Fn(u32) -> String) -> Self {
        Self {
            recorded,
            kind_of,
            kinds: HashMap::new(),
            report: PerformanceReport::default(),
            findings: BTreeMap::new(),
            by_operation: BTreeMap::new(),
            passed: HashMap::new(),
            began: BTreeSet::new(),
        }
    }

    fn kind(&mut self, operation: Option<u32>) -> String {
        operation.map_or_else(
            || BETWEEN.to_owned(),
            |number| {
                let kind_of = self.kind_of;
                self.kinds.entry(number).or_insert_with(|| kind_of(number)).clone()
            },
        )
    }

    fn row(&mut self, operation: Option<u32>) -> &mut OperationWaste {
        let operation = self.kind(operation);
        self.by_operation.entry(operation.clone()).or_insert_with(|| OperationWaste {
            operation,
            count: 0,
            flushes: 0,
            fences: 0,
            wasted: BTreeMap::new(),
        })
    }

    fn begin(&mut self, number: u32) {
        if self.began.insert(number) {
            self.report.operations += 1;
            self.row(Some(number)).count += 1;
        }
    }

    fn pass(&mut self, position: usize, operation: Option<u32>, is_flush: bool) {
        let place = self.recorded.places[position];
        *self.passed.entry((place, is_flush)).or_insert(0) += 1;
        if is_flush {
            self.report.flushes += 1;
            self.row(operation).flushes += 1;
        } else {
            self.report.fences += 1;
            self.row(operation).fences += 1;
        }
    }

    fn add(&mut self, found: Found) {
        let Found { waste, position, because_of, operation } = found;
        *self.report.wasted.entry(waste).or_insert(0) += 1;
        *self.row(operation).wasted.entry(waste).or_insert(0) += 1;
        let kind = self.kind(operation);
        let place = self.recorded.places[position];
        let cause = because_of.map(|position| self.recorded.places[position]);
        let recorded = self.recorded;
        let name = |place| {
            recorded.location(place).map_or_else(|| "unknown".to_owned(), ToString::to_string)
        };
        let finding =
            self.findings.entry((waste, place, cause)).or_insert_with(|| PerformanceFinding {
                waste,
                location: name(place),
                because_of: cause.map(name),
                count: 0,
                passed: 0,
                by_operation: BTreeMap::new(),
                first_position: position,
                first_operation: operation,
            });
        finding.count += 1;
        *finding.by_operation.entry(kind).or_insert(0) += 1;
    }

    fn report(mut self) -> PerformanceReport {
        self.report.findings = self
            .findings
            .into_iter()
            .map(|((waste, place, _), finding)| {
                let is_flush = waste != Waste::IdleFence;
                let passed = self.passed.get(&(place, is_flush)).copied().unwrap_or(0);
                PerformanceFinding { passed, ..finding }
            })
            .collect();
        self.report
            .findings
            .sort_by(|a, b| (b.count, a.waste, &a.location).cmp(&(a.count, b.waste, &b.location)));
        self.report.by_operation = self.by_operation.into_values().collect();
        self.report
    }
}

/// Runs a subject's operations once and looks for performance bugs in what they did.
///
/// # Errors
/// What went wrong, for a person.
pub fn subject_performance<S: Subject>(
    subject: &S,
    ops: usize,
    seed: u64,
) -> Result<PerformanceReport, String> {
    let options = ExploreOptions { ops, seed, ..ExploreOptions::default() };
    let run = Run::record(subject, &options)?;
    let kinds = run.operation_kinds();
    let recorded = RecordedTrace::of_run(run.trace, &run.base.memory);
    let report = performance_bugs(&recorded, &|number| kind_of(&kinds, number));
    Ok(PerformanceReport { subject: subject.name().to_owned(), ..report })
}

/// Runs a structure's operations once, for an index with both kinds of keys, and looks for
/// performance bugs in what they did. `only` restricts it to the subject of that name.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn structure_performance(
    structure: Structure,
    only: Option<&str>,
    ops: usize,
    seed: u64,
) -> Result<Vec<PerformanceReport>, CrashError> {
    let mut reports = Vec::new();
    each_run(structure, only, ops, seed, &mut |run| {
        let report = performance_bugs(&run.recorded, &|number| kind_of(&run.kinds, number));
        reports.push(PerformanceReport { subject: run.subject.to_owned(), ..report });
    })?;
    Ok(reports)
}

fn kind_of(kinds: &[String], number: u32) -> String {
    kinds.get(number as usize).cloned().unwrap_or_else(|| "operation".to_owned())
}
