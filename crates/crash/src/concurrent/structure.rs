//! Structures with several workers, by the names they have on the command line.

use lapis_blocks::log::Placement as EntryPlacement;
use lapis_blocks::{CellKind, LogKind};
use lapis_engine::Placement;
use lapis_index::IndexKind;

use super::explore::explore_any;
use super::options::ConcurrentOptions;
use super::report::ConcurrentReport;
use super::subjects::{
    ConcurrentAllocator, ConcurrentBlockLog, ConcurrentCells, ConcurrentIndex, ConcurrentPopLog,
    ConcurrentStore, planned,
};
use crate::erased::AnyConcurrentSubject;
use crate::structure::{CrashError, Progress, Structure, log_subject};
use crate::subjects::{KeySpace, SPITFIRE};

/// Keys that the structure has before a history begins, at most.
const KEYS: u64 = 64;

/// Workers of each history that is made for one error.
pub const PLANNED_WORKERS: usize = 2;
/// More than any history that is made for one error has with one deviation.
pub const MOST_PLANNED_SCHEDULES: u64 = 2000;

/// Explores a structure with several workers: for an index, with both kinds of keys. `only`
/// restricts it to the subject of that name.
///
/// # Errors
/// [`CrashError::Failed`]; [`CrashError::UnknownSubject`] if there is none of that name;
/// [`CrashError::OneWorkerOnly`].
pub fn explore_structure_concurrently(
    structure: Structure,
    only: Option<&str>,
    options: &ConcurrentOptions,
    progress: &Progress<'_>,
) -> Result<ConcurrentReport, CrashError> {
    let mut total = ConcurrentReport {
        structure: structure.name().to_owned(),
        workers: options.workers,
        seed: options.seed,
        ops: options.ops,
        complete: options.most_deviations.map(|_| true),
        ..ConcurrentReport::default()
    };
    let (passed_over, explored) = (Vec::new(), false);
    let mut explorer =
        Explorer { structure, only, options, progress, total: &mut total, passed_over, explored };
    match structure {
        Structure::Index(kind) => explorer.explore_index(kind)?,
        Structure::Log(LogKind::PopLog) => {
            for run in LogKind::PopLog.declaration().runs {
                // Dense entries are left to one worker.
                if run.placement != EntryPlacement::Dense {
                    let alone = log_subject(LogKind::PopLog, run);
                    explorer.explore(&ConcurrentPopLog { alone })?;
                }
            }
        }
        Structure::Cell(CellKind::Log) => {
            for run in CellKind::Log.declaration().runs {
                explorer.explore(&ConcurrentCells::new(run))?;
            }
        }
        Structure::BlockLog => {
            explorer.explore(&ConcurrentBlockLog::default())?;
            explorer.explore(&ConcurrentBlockLog::in_pool())?;
        }
        Structure::Store => {
            explorer.explore(&ConcurrentStore::on_ssd("store:ssd"))?;
            let three_tier = ConcurrentStore::in_pool("store:three-tier", Placement::ThreeTier);
            explorer.explore(&three_tier)?;
            explorer.explore(&ConcurrentStore::in_pool("store:spitfire", SPITFIRE))?;
            explorer.explore(&ConcurrentStore::nvm_direct("store:nvm-direct"))?;
            explorer.explore(&ConcurrentStore::in_parts())?;
            for history in ConcurrentStore::histories() {
                explorer.explore_planned(&history)?;
            }
        }
        Structure::Allocator => explorer.explore(&ConcurrentAllocator::default())?,
        _ => return Err(CrashError::OneWorkerOnly { structure: structure.name() }),
    }
    match (only, options.replay.position) {
        (Some(name), _) if !explorer.explored => {
            Err(CrashError::no_subject(structure, name, explorer.passed_over))
        }
        (_, Some(position)) if total.crash_points == 0 && total.violations.is_empty() => {
            Err(CrashError::NoSuchCrash { structure: structure.name(), position })
        }
        _ => Ok(total),
    }
}

struct Explorer<'e> {
    structure: Structure,
    only: Option<&'e str>,
    options: &'e ConcurrentOptions,
    progress: &'e Progress<'e>,
    total: &'e mut ConcurrentReport,
    /// The names of what was not asked for.
    passed_over: Vec<&'static str>,
    explored: bool,
}

impl Explorer<'_> {
    /// An index with each kind of keys, and the histories that are made for one error each, if they are asked for.
    fn explore_index(&mut self, kind: IndexKind) -> Result<(), CrashError> {
        let exploration = &kind.declaration().exploration;
        for run in exploration.runs.iter().filter(|run| !run.drains && !run.descends) {
            if run.byte_strings {
                self.explore(&with_keys::<[u8]>(kind, run.name))?;
            } else {
                self.explore(&with_keys::<u64>(kind, run.name))?;
            }
        }
        for &(name, history) in exploration.histories {
            let subject = with_keys::<u64>(kind, name).planned(planned(history));
            self.explore_planned(&subject)?;
        }
        Ok(())
    }

    /// A history that is made for one error, if it is asked for.
    fn explore_planned(&mut self, subject: &dyn AnyConcurrentSubject) -> Result<(), CrashError> {
        let name = subject.name();
        if self.only == Some(name) {
            return self.explore(subject);
        }
        if self.options.planned && self.only.is_none_or(|only| only == self.structure.name()) {
            let options = ConcurrentOptions {
                workers: PLANNED_WORKERS,
                most_deviations: Some(1),
                schedules: MOST_PLANNED_SCHEDULES,
                ..self.options.clone()
            };
            return self.explore_with(subject, &options);
        }
        self.passed_over.push(name);
        Ok(())
    }

    fn explore(&mut self, subject: &dyn AnyConcurrentSubject) -> Result<(), CrashError> {
        self.explore_with(subject, self.options)
    }

    fn explore_with(
        &mut self,
        subject: &dyn AnyConcurrentSubject,
        options: &ConcurrentOptions,
    ) -> Result<(), CrashError> {
        let name = subject.name();
        if self.only.is_some_and(|only| only != name && only != self.structure.name()) {
            self.passed_over.push(name);
            return Ok(());
        }
        if self.total.stopped || self.total.violations.len() >= options.violation_limit {
            self.explored = true;
            return Ok(());
        }
        let plan = subject.plan(options.workers, options.ops, options.seed);
        let calls = plan.workers.iter().map(Vec::len).sum();
        let check = |numbers: &Option<Vec<u32>>, count| {
            let numbers = numbers.iter().flatten().map(|&number| number as usize);
            CrashError::check_kept(&numbers.collect::<Vec<_>>(), count)
        };
        check(&options.keep, calls)?;
        check(&options.keep_before, plan.before.len())?;
        self.explored = true;
        let base = self.total.images;
        let report = explore_any(subject, options, &|images| {
            (self.progress)(base + images);
        })
        .map_err(|what| CrashError::Failed { structure: name, what })?;
        let total = &mut *self.total;
        total.schedules += report.schedules;
        total.after_a_cut += report.after_a_cut;
        total.events += report.events;
        total.crash_points += report.crash_points;
        total.images += report.images;
        total.distinct_states += report.distinct_states;
        total.seconds += report.seconds;
        total.images_per_s = total.images as f64 / total.seconds.max(1e-9);
        total.complete = total.complete.map(|all| all && report.complete == Some(true));
        total.stopped |= report.stopped;
        total.violations.extend(report.violations);
        total.persist_points.extend(report.persist_points);
        total.coverage.add(report.coverage);
        total.interrupted.extend(report.interrupted);
        total.flush_pairs.add(report.flush_pairs);
        Ok(())
    }
}

fn with_keys<K: KeySpace + ?Sized>(kind: IndexKind, name: &'static str) -> ConcurrentIndex<K> {
    let exploration = &kind.declaration().exploration;
    ConcurrentIndex::new(kind, name, exploration.sources, exploration.options.clone(), KEYS)
}
