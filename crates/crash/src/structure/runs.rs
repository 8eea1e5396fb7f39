//! What is done with all subjects of a structure.

use lapis_device::PersistPoint;
use lapis_device::trace_file::RecordedTrace;

use super::each_subject::{SubjectVisitor, each_subject};
use super::{CrashError, Progress, Structure};
use crate::explore::explore_and_tell;
use crate::options::ExploreOptions;
use crate::persist_points::{PersistPointRow, try_points};
use crate::report::ExploreReport;
use crate::run::Run;
use crate::subject::Subject;

fn failed(subject: &impl Subject) -> impl FnOnce(String) -> CrashError {
    let structure = subject.name();
    move |what| CrashError::Failed { structure, what }
}

struct Names(Vec<&'static str>);

impl SubjectVisitor for Names {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        self.0.push(subject.name());
        Ok(())
    }
}

impl Structure {
    /// The names of the runs that exploring it consists of: for an index, one or more per kind of
    /// keys.
    pub fn subjects(self) -> Vec<&'static str> {
        let mut names = Names(Vec::new());
        // Taking a name cannot fail.
        let _ = each_subject(self, None, &mut names);
        names.0
    }
}

struct Exploration<'e> {
    options: &'e ExploreOptions,
    progress: &'e Progress<'e>,
    total: ExploreReport,
}

impl SubjectVisitor for Exploration<'_> {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        let base = self.total.images;
        if let Some(keep) = &self.options.keep {
            let planned = subject.operations(self.options.ops, self.options.seed).len();
            CrashError::check_kept(keep, planned)?;
        }
        let progress = |images| (self.progress)(base + images);
        let report = explore_and_tell(subject, self.options, &progress).map_err(failed(subject))?;
        self.total.add(report);
        Ok(())
    }
}

/// Explores a structure: for an index, with both kinds of keys. `only` restricts it to the subject
/// of that name (`wort:bytes`), as a replay must.
///
/// # Errors
/// [`CrashError::Failed`]; [`CrashError::UnknownSubject`] if there is none of that name.
pub fn explore_structure(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, CrashError> {
    let total = ExploreReport {
        structure: structure.name().to_owned(),
        seed: options.seed,
        strategy: options.strategy,
        ops: options.ops,
        ..Default::default()
    };
    let mut exploration = Exploration { options, progress, total };
    each_subject(structure, only, &mut exploration)?;
    let total = exploration.total;
    match &options.replay {
        Some(replay) if total.crash_points == 0 => {
            let position = replay.position;
            Err(CrashError::NoSuchCrash { structure: structure.name(), position })
        }
        _ => Ok(total),
    }
}

struct Points<'e> {
    options: &'e ExploreOptions,
    found: Vec<PersistPoint>,
}

impl SubjectVisitor for Points<'_> {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        self.found.extend(Run::record(subject, self.options).map_err(failed(subject))?.points);
        Ok(())
    }
}

/// Every flush and fence that a structure passes in its run, in the order of the source.
///
/// # Errors
/// [`CrashError::Failed`]; [`CrashError::UnknownSubject`] if there is none of that name.
pub fn structure_points(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
) -> Result<Vec<PersistPoint>, CrashError> {
    let mut points = Points { options, found: Vec::new() };
    each_subject(structure, only, &mut points)?;
    points.found.sort_unstable();
    points.found.dedup();
    Ok(points.found)
}

struct Suppression<'e> {
    options: ExploreOptions,
    progress: &'e Progress<'e>,
    rows: Vec<PersistPointRow>,
}

impl SubjectVisitor for Suppression<'_> {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        try_points(subject, &self.options, &mut self.rows, self.progress).map_err(failed(subject))
    }
}

/// Switches off each flush and fence of a structure in turn. A point counts as killed if the
/// structure with either kind of keys is found out without it. `only` restricts it to the subject
/// of that name.
///
/// # Errors
/// [`CrashError::Failed`]; [`CrashError::UnknownSubject`] if there is none of that name.
pub fn structure_persist_points(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, CrashError> {
    let mut suppression = Suppression { options: options.clone(), progress, rows: Vec::new() };
    // What one seed kills with any kind of keys need not be tried with the next.
    for &seed in seeds {
        suppression.options.seed = seed;
        each_subject(structure, only, &mut suppression)?;
    }
    suppression.rows.sort_by(|a, b| a.order.cmp(&b.order));
    Ok(suppression.rows)
}

/// One run of one subject of a structure.
pub(crate) struct SubjectRun {
    pub(crate) subject: &'static str,
    pub(crate) recorded: RecordedTrace,
    /// The kind of each operation by its number.
    pub(crate) kinds: Vec<String>,
}

struct Recording<'e> {
    options: ExploreOptions,
    visit: &'e mut dyn FnMut(SubjectRun),
}

impl SubjectVisitor for Recording<'_> {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        let run = Run::record(subject, &self.options).map_err(failed(subject))?;
        let kinds = run.operation_kinds();
        let recorded = RecordedTrace::of_run(run.trace, &run.base);
        (self.visit)(SubjectRun { subject: subject.name(), recorded, kinds });
        Ok(())
    }
}

/// Runs each subject of a structure once, or the one that `only` names.
pub(crate) fn each_run(
    structure: Structure,
    only: Option<&str>,
    ops: usize,
    seed: u64,
    visit: &mut dyn FnMut(SubjectRun),
) -> Result<(), CrashError> {
    let options = ExploreOptions { ops, seed, ..ExploreOptions::default() };
    each_subject(structure, only, &mut Recording { options, visit })
}
