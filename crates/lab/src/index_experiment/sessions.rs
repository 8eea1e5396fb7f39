//! One session: an index is loaded and the operations are run on it, in an order that leaves each
//! the index it expects.

use std::ops::ControlFlow;

use lapis_device::{Config, Counts, Modelled as ModelledMachine, Profile, interleave};
use lapis_index::{Index, IndexFamily, IndexKind, IndexOf, IndexOptions, with_index};
use lapis_pmem::{Domain, Hardware, Pool, Region};

use super::engine::{create, measure, perform, perform_all};
use super::plan::{Fresh, Step, fresh_keys, plan};
use super::{ExperimentError, IndexResults, Measured, Modelled, Operation, Options, Row};
use crate::keys::{Distribution, KeySet, scatter};
use crate::report::{OnProgress, Progress};

/// Address space for a key, generously: regions grow to what they use.
const ROOM_BYTES_PER_KEY: usize = 1024;
const LEAST_ROOM_BYTES: usize = 1 << 28;
/// What a region starts with; it grows by itself.
const INITIAL_BYTES: usize = 16 << 20;

/// What a session found about one operation.
struct Finding<F> {
    operation: Operation,
    figures: F,
}

/// What a session found.
struct Findings<F> {
    operations: Vec<Finding<F>>,
    depth: f64,
    bytes_per_key: f64,
}

pub(super) fn run(
    options: &Options,
    profile: &Profile,
    progress: OnProgress<'_>,
) -> Result<IndexResults, ExperimentError> {
    let total = (options.indexes.len() * options.distributions.len()) as u64
        * (u64::from(options.measure) + u64::from(options.model));
    let mut done = 0;
    let mut advance = || {
        done += 1;
        progress(Progress { done, total });
    };
    let mut rows = Vec::new();
    let mut left_out = None;
    for &index in &options.indexes {
        let operations = operations_of(index, options, &mut left_out)?;
        for &distribution in &options.distributions {
            let measured = if options.measure && !operations.is_empty() {
                Some(measured_session(index, distribution, &operations, options)?)
            } else {
                None
            };
            (options.measure).then(&mut advance);
            let modelled = if options.model && !operations.is_empty() {
                Some(modelled_session(index, distribution, &operations, options, profile)?)
            } else {
                None
            };
            (options.model).then(&mut advance);
            rows.extend(join(index, distribution, options, &operations, measured, modelled));
        }
    }
    match (rows.is_empty(), left_out) {
        (true, Some((index, operation))) => Err(ExperimentError::Unordered { index, operation }),
        _ => Ok(IndexResults { rows }),
    }
}

/// The operations that an index can do, in the order of [`Operation::ALL`].
fn operations_of(
    index: IndexKind,
    options: &Options,
    left_out: &mut Option<(IndexKind, Operation)>,
) -> Result<Vec<Operation>, ExperimentError> {
    let mut operations = Vec::new();
    for operation in Operation::ALL {
        if !options.operations.contains(&operation) {
            continue;
        }
        if operation.needs_order() && !index.is_ordered() {
            left_out.get_or_insert((index, operation));
        } else {
            operations.push(operation);
        }
    }
    Ok(operations)
}

fn measured_session(
    index: IndexKind,
    distribution: Distribution,
    operations: &[Operation],
    options: &Options,
) -> Result<Findings<Measured>, ExperimentError> {
    let size = Size {
        keys: options.keys,
        repetitions: options.repetitions,
        threads: options.threads,
        seed: options.seed,
        presized: options.presized,
    };
    let region = Region::anonymous(INITIAL_BYTES, room_bytes(size.keys))?;
    let pool = Pool::create(region, Hardware::detect())?;
    with_index!(index, |F| {
        session::<Hardware, F, _>(pool, distribution, operations, size, |index, plans| {
            Ok(measure::<Hardware, F>(index, plans)?)
        })
    })
}

fn modelled_session(
    index: IndexKind,
    distribution: Distribution,
    operations: &[Operation],
    options: &Options,
    profile: &Profile,
) -> Result<Findings<Modelled>, ExperimentError> {
    let size = Size {
        keys: options.keys.min(options.modelled_keys),
        repetitions: options.repetitions.min(options.modelled_repetitions),
        threads: options.threads,
        seed: options.seed,
        presized: options.presized,
    };
    let region = Region::anonymous(INITIAL_BYTES, room_bytes(size.keys))?;
    let config = Config { counting: Some(profile.machine()), ..Config::default() };
    let machine = ModelledMachine::over(&region, config);
    let pool = Pool::create(region, machine.clone())?;
    let operation_ns = profile.core.operation_ns.value.round() as u64;
    let count = |operations: u64, counts: Counts, picoseconds: u64| {
        let each = |count: u64| if operations > 0 { count as f64 / operations as f64 } else { 0.0 };
        Modelled {
            profile: options.profile.clone(),
            mops: (picoseconds > 0).then(|| operations as f64 * 1e6 / picoseconds as f64),
            flushes: each(counts.flushes),
            fences: each(counts.fences),
            wpq_inserts: each(counts.wpq_inserts()),
            media_writes: each(counts.media_writes),
            media_reads: each(counts.media_reads),
            llc_misses: each(counts.llc_misses),
            keys: size.keys,
            operations,
        }
    };
    with_index!(index, |F| {
        session::<ModelledMachine, F, _>(pool, distribution, operations, size, |index, plans| {
            let (before, begin) = (machine.counts(), machine.align_clocks(plans.len()));
            let (mut wrong, mut failure) = (0, None);
            let mut done = vec![0; plans.len()];
            interleave(&machine, plans.len(), |worker| {
                let at = usize::from(worker);
                let Some(&step) = plans[at].get(done[at]) else { return ControlFlow::Break(()) };
                done[at] += 1;
                machine.spend_ns(worker, operation_ns);
                match perform::<ModelledMachine, F>(index, step) {
                    Ok(right) => wrong += u64::from(!right),
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            });
            if let Some(error) = failure {
                return Err(error.into());
            }
            let end = machine.align_clocks(plans.len());
            // What the operation has written belongs to it, wherever it is.
            machine.drain();
            let operations = done.iter().sum::<usize>() as u64;
            Ok((count(operations, machine.counts() - before, end.0 - begin.0), wrong))
        })
    })
}

fn room_bytes(keys: usize) -> usize {
    LEAST_ROOM_BYTES.max(keys.saturating_mul(ROOM_BYTES_PER_KEY))
}

/// How large a session is.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) keys: usize,
    pub(super) repetitions: usize,
    pub(super) threads: usize,
    pub(super) seed: u64,
    pub(super) presized: bool,
}

/// Loads an index and runs the operations. `run` does the steps and returns its figures and the
/// number of wrong answers.
fn session<D: Domain, F: IndexFamily, R>(
    pool: Pool<D>,
    distribution: Distribution,
    operations: &[Operation],
    size: Size,
    run: impl Fn(&IndexOf<F, D, u64>, &[Vec<Step>]) -> Result<(R, u64), ExperimentError>,
) -> Result<Findings<R>, ExperimentError> {
    let repetitions = size.repetitions.min(size.keys);
    let fresh = fresh_keys(operations, repetitions);
    let keys = KeySet::generate(distribution, size.keys, fresh, size.seed);
    let mut fresh = Fresh::new(&keys);
    let expected_entries = if size.presized { size.keys } else { 0 };
    let options = IndexOptions { expected_entries, ..IndexOptions::default() };
    let index: IndexOf<F, D, u64> = create(pool, &options)?;
    let checked = |operation, (figures, wrong): (R, u64)| match wrong {
        0 => Ok(figures),
        _ => Err(ExperimentError::WrongAnswers { index: F::KIND, operation, wrong }),
    };
    let mut plan_of = |operation: Operation| {
        // Each operation asks for other keys.
        let number = Operation::ALL.iter().position(|&other| other == operation).unwrap_or(0);
        let seed = scatter(size.seed ^ scatter(number as u64));
        plan(operation, &keys, &mut fresh, repetitions, size.threads, seed)
    };
    let load = checked(Operation::Load, run(&index, &plan_of(Operation::Load))?)?;
    let statistics = index.statistics();
    let mut findings = Findings {
        operations: Vec::with_capacity(operations.len()),
        depth: statistics.mean_depth,
        bytes_per_key: statistics.bytes as f64 / size.keys as f64,
    };
    if operations.contains(&Operation::Load) {
        findings.operations.push(Finding { operation: Operation::Load, figures: load });
    }
    for &operation in operations.iter().filter(|&&operation| operation != Operation::Load) {
        let figures = checked(operation, run(&index, &plan_of(operation))?)?;
        findings.operations.push(Finding { operation, figures });
        if operation == Operation::Delete {
            // The next one finds what it expects. Nobody counts this.
            let removed = &keys.loaded()[..repetitions];
            let again: Vec<Step> = removed.iter().map(|&key| Step::Insert { key }).collect();
            let wrong = perform_all::<D, F>(&index, &again)?;
            if wrong > 0 {
                return Err(ExperimentError::WrongAnswers { index: F::KIND, operation, wrong });
            }
        }
    }
    Ok(findings)
}

/// Makes rows of what was measured and what was modelled.
fn join(
    index: IndexKind,
    distribution: Distribution,
    options: &Options,
    operations: &[Operation],
    measured: Option<Findings<Measured>>,
    modelled: Option<Findings<Modelled>>,
) -> Vec<Row> {
    let (depth, bytes_per_key) = match (&measured, &modelled) {
        (Some(found), _) => (found.depth, found.bytes_per_key),
        (None, Some(found)) => (found.depth, found.bytes_per_key),
        (None, None) => return Vec::new(),
    };
    let row = |&operation: &Operation| Row {
        index,
        operation,
        distribution,
        keys: options.keys,
        threads: options.threads,
        measured: measured.as_ref().and_then(|found| found.of(operation)).copied(),
        modelled: modelled.as_ref().and_then(|found| found.of(operation)).cloned(),
        depth,
        bytes_per_key,
    };
    operations.iter().map(row).collect()
}

impl<F> Findings<F> {
    fn of(&self, operation: Operation) -> Option<&F> {
        let found = self.operations.iter().find(|finding| finding.operation == operation);
        found.map(|finding| &finding.figures)
    }
}
