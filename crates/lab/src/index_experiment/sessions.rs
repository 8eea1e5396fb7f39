//! One session: an index is loaded and the operations are run on it, in an order that leaves each
//! the index it expects.

use std::path::Path;

use lapis_device::Profile;
use lapis_index::IndexOptions;
use lapis_pmem::{Hardware, Pool, Region};

use super::contender::Contender;
use super::engine::{AnyContender, count, measure, with_smaller_caches};
use super::pages::WithPages;
use super::plan::{Fresh, Step, each_once, fresh_keys, plan};
use super::{Case, IndexResults, Measured, Modelled, Operation, Options, Row};
use crate::experiment::memory::{available_bytes, region_at};
use crate::experiment::meter::ModelMeter;
use crate::experiment::{ExperimentError, Found, OnModel};
use crate::keys::{Distribution, KeySet, scatter};
use crate::progress::OnProgress;

/// Address space for a key, generously: regions grow to what they use.
const ROOM_BYTES_PER_KEY: usize = 1024;
const LEAST_ROOM_BYTES: usize = 1 << 28;
/// Memory that is made ready for a measured load: a P-CLHT that grows touches some 90 bytes for a key, more than any other.
const READY_BYTES_PER_KEY: u64 = 128;
/// What a region starts with; it grows by itself.
pub(crate) const INITIAL_BYTES: usize = 16 << 20;

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
    index: Contender,
    distribution: Distribution,
    operations: Vec<Operation>,
}

pub(super) fn run(
    options: &Options,
    profile: &Profile,
    progress: OnProgress<'_>,
) -> Result<IndexResults, ExperimentError> {
    let (mut sessions, mut left_out) = (Vec::new(), None);
    let of_lapis = options.indexes.iter().map(|&kind| kind.into());
    for index in of_lapis.chain(options.own.iter().copied()) {
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
            "{} keeps no order, so it has no {operation}; name an ordered index",
            index.name()
        )));
    }
    let found = options.sides.run_side_by_side(
        &sessions,
        progress,
        |session| {
            let _pages = WithPages::set(options.pages)?;
            let runs = (0..options.runs).map(|_| measured_session(session, options));
            Ok(median(runs.collect::<Result<_, _>>()?))
        },
        |session| modelled_session(session, options, profile),
    )?;
    let rows =
        sessions.iter().zip(found).flat_map(|(session, found)| join(session, options, found));
    Ok(IndexResults { pages: options.pages, rows: rows.collect() })
}

/// The operations that an index can do, in the order of [`Operation::ALL`].
fn operations_of(
    index: Contender,
    options: &Options,
    left_out: &mut Option<(Contender, Operation)>,
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
    session: &Session,
    options: &Options,
) -> Result<Findings<Measured>, ExperimentError> {
    let room_bytes = room_bytes(options.keys);
    let (region, hardware) = match &options.memory {
        None => {
            make_memory_ready(options.keys);
            (Region::anonymous(INITIAL_BYTES, room_bytes)?, Hardware::detect())
        }
        Some(path) => {
            let region = region_at(path, INITIAL_BYTES, room_bytes)?;
            let hardware = region.domain();
            (region, hardware)
        }
    };
    let pool = Pool::create(region, hardware)?;
    let index = (session.index.on_hardware)(pool, &index_options(options))?;
    session.run(&*index, options, |plans, at_once| Ok(measure(&*index, plans, at_once)?))
}

/// Uses memory and gives it back, half of what is available at most. A virtual machine's host takes back what was free
/// for long, and gives it again page by page when it is written: which the structure that happens to come next would
/// pay for, up to half of a load.
fn make_memory_ready(keys: usize) {
    let most_bytes = available_bytes().unwrap_or(0) / 2;
    let bytes = (keys as u64).saturating_mul(READY_BYTES_PER_KEY).min(most_bytes);
    drop(std::hint::black_box(vec![1u8; bytes as usize]));
}

/// Of each operation the figures of the run with the median throughput.
fn median(mut runs: Vec<Findings<Measured>>) -> Findings<Measured> {
    let mut found = runs.swap_remove(0);
    for finding in &mut found.operations {
        let others = runs.iter().filter_map(|run| run.of(finding.operation));
        let mut all: Vec<Measured> = others.chain([&finding.figures]).copied().collect();
        all.sort_by(|one, other| one.mops.total_cmp(&other.mops));
        let (mops_min, mops_max) = (all[0].mops, all[all.len() - 1].mops);
        let median = all[(all.len() - 1) / 2];
        finding.figures = Measured { repetitions: all.len(), mops_min, mops_max, ..median };
    }
    found
}

fn modelled_session(
    session: &Session,
    options: &Options,
    profile: &Profile,
) -> Result<Findings<OnModel<Modelled>>, ExperimentError> {
    let options = &Options {
        keys: options.keys.min(options.modelled_keys),
        repetitions: options.repetitions.min(options.modelled_repetitions),
        ..options.clone()
    };
    let machine = match options.caches_for_keys {
        Some(keys) => with_smaller_caches(profile.machine(), options.keys as f64 / keys as f64),
        None => profile.machine(),
    };
    let caches = machine.caches;
    let cache_bytes = caches.l3.capacity_bytes + options.threads * caches.l2.capacity_bytes;
    let (meter, pool) = ModelMeter::with_pool(machine, INITIAL_BYTES, room_bytes(options.keys))?;
    let operation_ns = profile.core.operation_ns.value.round() as u64;
    let index = (session.index.on_model)(pool, &index_options(options))?;
    session.run(&*index, options, |plans, at_once| {
        let (wrong, section) = count(&meter, &*index, plans, at_once, operation_ns)?;
        let operations = plans.iter().map(Vec::len).sum::<usize>();
        let picoseconds = section.picoseconds();
        let counts = section.counts();
        let wpq_inserts = counts.wpq_inserts();
        let modelled = Modelled {
            mops: (picoseconds > 0).then(|| operations as f64 * 1e6 / picoseconds as f64),
            keys: options.keys,
            operations: operations as u64,
            media_per_wpq: (wpq_inserts > 0)
                .then(|| counts.media_writes as f64 / wpq_inserts as f64),
            cached_share: cache_bytes as f64 / index.statistics().bytes.max(1) as f64,
        };
        Ok((OnModel::new(profile, modelled, &section, operations), wrong))
    })
}

/// Bytes of ordinary memory for a key: itself, the step that loads it, and what an index has of it, which lies in `memory` if
/// that was chosen.
pub(super) fn bytes_per_key(memory: Option<&Path>) -> u64 {
    let of_index = if memory.is_some() { 0 } else { READY_BYTES_PER_KEY };
    (size_of::<u64>() + size_of::<Step>()) as u64 + of_index
}

/// Address space for an index of so many keys.
pub(crate) fn room_bytes(keys: usize) -> usize {
    LEAST_ROOM_BYTES.max(keys.saturating_mul(ROOM_BYTES_PER_KEY))
}

fn index_options(options: &Options) -> IndexOptions {
    let expected_entries = if options.presized { options.keys } else { 0 };
    IndexOptions { expected_entries, ..IndexOptions::default() }
}

impl Session {
    /// Loads the index and runs the operations. `run` does the steps, so many in one call of the index, and returns its
    /// figures and the number of wrong answers.
    fn run<R>(
        &self,
        index: &dyn AnyContender,
        options: &Options,
        run: impl Fn(&[Vec<Step>], usize) -> Result<(R, u64), ExperimentError>,
    ) -> Result<Findings<R>, ExperimentError> {
        let &Options { keys: size, threads, seed, .. } = options;
        let repetitions = options.repetitions.min(size);
        let fresh = fresh_keys(&self.operations, repetitions);
        let keys = KeySet::generate(self.distribution, size, fresh, seed);
        let mut fresh = Fresh::new(&keys);
        let checked = |operation, wrong| match wrong {
            0 => Ok(()),
            _ => Err(wrong_answers(self.index.name(), operation, wrong)),
        };
        let mut done = |operation: Operation| {
            // Each operation asks for other keys.
            let number = Operation::ALL.iter().position(|&other| other == operation).unwrap_or(0);
            let seed = scatter(seed ^ scatter(number as u64));
            let steps = match operation {
                Operation::Get | Operation::GetMany if options.each_key_once => {
                    each_once(&keys, repetitions, threads, seed)
                }
                _ => plan(operation, &keys, &mut fresh, repetitions, threads, seed),
            };
            let (figures, wrong) = run(&steps, operation.at_once())?;
            checked(operation, wrong)?;
            Ok::<_, ExperimentError>(Finding { operation, figures })
        };
        let load = done(Operation::Load)?;
        let statistics = index.statistics();
        let mut findings = Findings {
            operations: Vec::with_capacity(self.operations.len()),
            depth: statistics.mean_depth,
            bytes_per_key: statistics.bytes as f64 / size as f64,
        };
        if self.operations.contains(&Operation::Load) {
            findings.operations.push(load);
        }
        for &operation in self.operations.iter().filter(|&&one| one != Operation::Load) {
            findings.operations.push(done(operation)?);
            if operation == Operation::Delete {
                // The next one finds what it expects. Nobody counts this.
                let mut wrong = 0;
                for &key in &keys.loaded()[..repetitions] {
                    wrong += u64::from(!index.perform(Step::Insert { key })?);
                }
                checked(operation, wrong)?;
            }
        }
        Ok(findings)
    }
}

/// An index that gave wrong answers.
pub(crate) fn wrong_answers(index: &str, operation: Operation, wrong: u64) -> ExperimentError {
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
            index: session.index.name(),
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
