//! One session: an index is loaded and the operations are run on it, in an order that leaves each
//! the index it expects.

use std::ops::ControlFlow;

use lapis_device::{Modelled as ModelledMachine, Profile};
use lapis_index::{Index, IndexFamily, IndexKind, IndexOf, IndexOptions, with_index};
use lapis_pmem::{Domain, Hardware, Pool, Region};

use super::engine::{create, measure, perform, perform_all};
use super::plan::{Fresh, Step, fresh_keys, plan};
use super::{Case, IndexResults, Measured, Modelled, Operation, Options, Row};
use crate::experiment::meter::{Meter, ModelMeter};
use crate::experiment::{ExperimentError, Found, OnModel};
use crate::keys::{Distribution, KeySet, scatter};
use crate::report::OnProgress;

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

/// One index, loaded with keys of one distribution, and what is done with it.
struct Session {
    index: IndexKind,
    distribution: Distribution,
    operations: Vec<Operation>,
}

pub(super) fn run(
    options: &Options,
    profile: &Profile,
    progress: OnProgress<'_>,
) -> Result<IndexResults, ExperimentError> {
    let (mut sessions, mut left_out) = (Vec::new(), None);
    for &index in &options.indexes {
        let operations = operations_of(index, options, &mut left_out)?;
        if !operations.is_empty() {
            sessions.extend(options.distributions.iter().map(|&distribution| {
                let operations = operations.clone();
                Session { index, distribution, operations }
            }));
        }
    }
    if let (true, Some((index, operation))) = (sessions.is_empty(), left_out) {
        return Err(ExperimentError::bad_option(format!(
            "{index} keeps no order, so it has no {operation}; name an ordered index"
        )));
    }
    let found = options.sides.run(
        &sessions,
        progress,
        |session| measured_session(session, options),
        |session| modelled_session(session, options, profile),
    )?;
    let rows =
        sessions.iter().zip(found).flat_map(|(session, found)| join(session, options, found));
    Ok(IndexResults { rows: rows.collect() })
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
    &Session { index, distribution, ref operations }: &Session,
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
    &Session { index, distribution, ref operations }: &Session,
    options: &Options,
    profile: &Profile,
) -> Result<Findings<OnModel<Modelled>>, ExperimentError> {
    let size = Size {
        keys: options.keys.min(options.modelled_keys),
        repetitions: options.repetitions.min(options.modelled_repetitions),
        threads: options.threads,
        seed: options.seed,
        presized: options.presized,
    };
    let (meter, pool) =
        ModelMeter::with_pool(profile.machine(), INITIAL_BYTES, room_bytes(size.keys))?;
    let operation_ns = profile.core.operation_ns.value.round() as u64;
    with_index!(index, |F| {
        session::<ModelledMachine, F, _>(pool, distribution, operations, size, |index, plans| {
            let mut done = vec![0; plans.len()];
            let (wrong, section) = meter.section(plans.len(), || {
                let mut wrong = 0;
                meter.interleave(plans.len(), |worker| {
                    let at = usize::from(worker);
                    let Some(&step) = plans[at].get(done[at]) else {
                        return Ok(ControlFlow::Break(()));
                    };
                    done[at] += 1;
                    meter.machine().spend_ns(worker, operation_ns);
                    wrong += u64::from(!perform::<ModelledMachine, F>(index, step)?);
                    Ok::<_, ExperimentError>(ControlFlow::Continue(()))
                })?;
                Ok::<_, ExperimentError>(wrong)
            })?;
            let operations = done.iter().sum::<usize>();
            let picoseconds = section.picoseconds();
            let modelled = Modelled {
                mops: (picoseconds > 0).then(|| operations as f64 * 1e6 / picoseconds as f64),
                keys: size.keys,
                operations: operations as u64,
            };
            Ok((OnModel::new(profile, modelled, &section, operations), wrong))
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
        _ => Err(wrong_answers(F::KIND, operation, wrong)),
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
                return Err(wrong_answers(F::KIND, operation, wrong));
            }
        }
    }
    Ok(findings)
}

/// An index that gave wrong answers.
pub(crate) fn wrong_answers(index: IndexKind, operation: Operation, wrong: u64) -> ExperimentError {
    ExperimentError::wrong(format!("{index} gave {wrong} wrong answers in {operation}"))
}

/// Makes rows of what was measured and what was modelled.
fn join(
    session: &Session,
    options: &Options,
    (measured, modelled): Found<Findings<Measured>, Findings<OnModel<Modelled>>>,
) -> Vec<Row> {
    let shape = measured.as_ref().map(|found| (found.depth, found.bytes_per_key));
    let shape = shape.or(modelled.as_ref().map(|found| (found.depth, found.bytes_per_key)));
    let Some((depth, bytes_per_key)) = shape else { return Vec::new() };
    let row = |&operation: &Operation| Row {
        case: Case {
            index: session.index,
            operation,
            distribution: session.distribution,
            keys: options.keys,
            threads: options.threads,
            depth,
            bytes_per_key,
        },
        measured: measured.as_ref().and_then(|found| found.of(operation)).copied(),
        modelled: modelled.as_ref().and_then(|found| found.of(operation)).cloned(),
    };
    session.operations.iter().map(row).collect()
}

impl<F> Findings<F> {
    fn of(&self, operation: Operation) -> Option<&F> {
        let found = self.operations.iter().find(|finding| finding.operation == operation);
        found.map(|finding| &finding.figures)
    }
}
