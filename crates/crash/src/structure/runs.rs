//! What is done with all subjects of a structure.

use lapis_device::PersistPoint;
use lapis_device::trace_file::RecordedTrace;

use super::each_subject::{all_subjects, subjects_of};
use super::{CrashError, Progress, Structure};
use crate::coverage::known_persist_points;
use crate::erased::AnySubject;
use crate::explore::explore_and_tell;
use crate::options::ExploreOptions;
use crate::persist_points::persist_points_of;
use crate::report::{ExploreReport, PersistPointRow};
use crate::run::Run;

pub(super) fn failed<E: Into<String>>(subject: &dyn AnySubject) -> impl FnOnce(E) -> CrashError {
    let structure = subject.name();
    move |what| CrashError::Failed { structure, what: what.into() }
}

impl Structure {
    /// The names of the runs that exploring it consists of: for an index, one or more per kind of
    /// keys.
    pub fn subjects(self) -> Vec<&'static str> {
        self.named(|subject| subject.first_operation() == 0)
    }

    /// The names of runs that begin with much, and are explored where there is time.
    pub fn long_runs(self) -> Vec<&'static str> {
        self.named(|subject| subject.first_operation() > 0)
    }

    fn named(self, is_meant: impl Fn(&dyn AnySubject) -> bool) -> Vec<&'static str> {
        let subjects = all_subjects(self, &ExploreOptions::default());
        let meant = subjects.iter().filter(|subject| is_meant(&***subject));
        meant.map(|subject| subject.name()).collect()
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
    let mut total = ExploreReport {
        structure: structure.name().to_owned(),
        seed: options.seed,
        strategy: options.strategy,
        ops: options.ops,
        ..Default::default()
    };
    for subject in subjects_of(structure, only, options)? {
        if total.stopped {
            break;
        }
        let cut_in = (options.cut_in > 0).then_some(options.cut_in);
        let named: Vec<_> = options.keep.iter().flatten().copied().chain(cut_in).collect();
        if !named.is_empty() {
            let planned = subject.operations(options.ops, options.seed).len();
            CrashError::check_kept(&named, planned)?;
        }
        let base = total.images;
        let progress = |images| progress(base + images);
        total.add(explore_and_tell(&*subject, options, &progress).map_err(failed(&*subject))?);
    }
    match &options.replay {
        Some(replay) if total.crash_points == 0 => {
            let position = replay.position;
            Err(CrashError::NoSuchCrash { structure: structure.name(), position })
        }
        _ => Ok(total),
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
    let mut found = Vec::new();
    for subject in subjects_of(structure, only, options)? {
        found.extend(Run::record(&*subject, options).map_err(failed(&*subject))?.points);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The flush or fence of a structure that is called `name`: one that it passes in its run, or one of its sources, which
/// perhaps only recoveries pass.
///
/// # Errors
/// As for [`structure_points`].
pub fn persist_point_called(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    name: &str,
) -> Result<Option<PersistPoint>, CrashError> {
    let passed = structure_points(structure, only, options)?;
    let known = points_of_sources(structure, only, options)?;
    Ok(passed.into_iter().chain(known).find(|point| point.to_string() == name))
}

/// Every flush and fence in the sources of a structure, whether it is ever passed or not, in the order of the source.
///
/// # Errors
/// As for [`structure_points`].
pub fn points_of_sources(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
) -> Result<Vec<PersistPoint>, CrashError> {
    let subjects = subjects_of(structure, only, options)?;
    let is_own = |point: &PersistPoint| subjects.iter().any(|it| it.owns_source(point.file));
    Ok(known_persist_points().iter().copied().filter(is_own).collect())
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
    let subjects = subjects_of(structure, only, options)?;
    let all: Vec<&dyn AnySubject> = subjects.iter().map(|subject| &**subject).collect();
    persist_points_of(&all, options, seeds, progress)
        .map_err(|(subject, what)| failed(all[subject])(what))
}

/// One run of one subject of a structure.
pub(crate) struct SubjectRun {
    pub(crate) subject: &'static str,
    pub(crate) recorded: RecordedTrace,
    /// The kind of each operation by its number.
    pub(crate) kinds: Vec<String>,
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
    for subject in subjects_of(structure, only, &options)? {
        let run = Run::record(&*subject, &options).map_err(failed(&*subject))?;
        let kinds = run.operation_kinds();
        let recorded = RecordedTrace::of_run(run.trace, &run.base.memory);
        visit(SubjectRun { subject: subject.name(), recorded, kinds });
    }
    Ok(())
}
