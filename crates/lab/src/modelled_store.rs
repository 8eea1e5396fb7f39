//! A store on the modelled machine: what an operation of a workload costs, counted.
//!
//! Hardware does not count, so the reports of measured runs get their counts from a smaller run of
//! the same workload here, by one thread, the same on every machine.

use lapis::{Error, Store, StoreOptions, TableOptions};
use lapis_device::{Modelled, Profile, ProfileError};

use crate::block_trace::Request;
use crate::experiment::ExperimentError;
use crate::experiment::meter::{Meter, ModelMeter};
use crate::key_value::TableTarget;
use crate::replay::{Replay, ReplayError};
use crate::report::PerOperation;
use crate::ycsb::{Driver, Options, Workload, WorkloadError};

/// Most records, and most operations, of a counted run: ten seconds' worth at the very most.
pub const COUNTED_RECORDS: u64 = 10_000;

/// What the region starts with, and what it may grow to.
const INITIAL_BYTES: usize = 64 << 20;
const CAPACITY_BYTES: usize = 16 << 30;

/// Why nothing could be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// There is no such device profile, or it is a bad one.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// There is no pool for the store.
    #[error(transparent)]
    Pool(#[from] ExperimentError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError<Error>),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError<Error>),
    /// The replay gave wrong answers: the store has an error.
    #[error("the replay found {mismatches} mismatches on the modelled machine: {first}")]
    Mismatches {
        /// How many.
        mismatches: u64,
        /// The first, in words.
        first: String,
    },
}

/// A store with one table on the modelled machine, and its counters.
#[derive(Debug)]
pub struct ModelledStore {
    profile: String,
    meter: ModelMeter,
    store: Store<Modelled>,
    target: TableTarget<Modelled>,
}

impl ModelledStore {
    /// An empty store on the machine of `profile_name` (a built-in profile or a file), with a table made by `options`.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn create(profile_name: &str, options: &TableOptions) -> Result<Self, CountError> {
        let profile = Profile::find(profile_name)?;
        let (meter, pool) =
            ModelMeter::with_pool(profile.machine(), INITIAL_BYTES, CAPACITY_BYTES)?;
        let store = Store::create_on(pool, &StoreOptions::default())?;
        let table = store.create_table("counted", options)?;
        let target = TableTarget::new(&store, &table);
        Ok(Self { profile: profile.name, meter, store, target })
    }

    /// The store.
    pub fn store(&self) -> &Store<Modelled> {
        &self.store
    }

    /// Its table, as a target of workloads.
    pub fn target(&self) -> &TableTarget<Modelled> {
        &self.target
    }

    /// Counts what `run` does, which returns how many operations that were, per operation. `records`
    /// is for the report.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn count<E>(
        &self,
        records: u64,
        run: impl FnOnce(&TableTarget<Modelled>) -> Result<u64, E>,
    ) -> Result<PerOperation, E> {
        let (operations, section) = self.meter.section(1, || run(&self.target))?;
        Ok(PerOperation {
            profile: Some(self.profile.clone()),
            records: Some(records),
            counts: (operations > 0).then(|| section.per_operation(operations)),
        })
    }
}

/// Counts a workload of YCSB per operation, with at most [`COUNTED_RECORDS`] records and operations
/// and one thread.
///
/// # Errors
/// [`CountError`].
pub fn count_ycsb(
    profile_name: &str,
    table: &TableOptions,
    workload: Workload,
    options: &Options,
) -> Result<PerOperation, CountError> {
    let modelled = ModelledStore::create(profile_name, table)?;
    let options = Options {
        records: options.records.min(COUNTED_RECORDS),
        operations: options.operations.min(COUNTED_RECORDS),
        threads: 1,
        ..options.clone()
    };
    let records = options.records;
    let mut driver = Driver::new(modelled.target(), options)?;
    let load = modelled
        .count(records, |_| driver.run(Workload::Load, &|_| ()).map(|report| report.operations))?;
    if workload == Workload::Load {
        return Ok(load);
    }
    Ok(modelled
        .count(records, |_| driver.run(workload, &|_| ()).map(|report| report.operations))?)
}

/// Counts the beginning of a trace per request, at most [`COUNTED_RECORDS`] of them.
///
/// # Errors
/// [`CountError`].
pub fn count_replay(
    profile_name: &str,
    table: &TableOptions,
    requests: &[Request],
) -> Result<PerOperation, CountError> {
    let modelled = ModelledStore::create(profile_name, table)?;
    let beginning = &requests[..requests.len().min(COUNTED_RECORDS as usize)];
    let mut replay = Replay::new(modelled.target())?;
    // The comparison in the end is no part of the workload.
    let per_op = modelled.count(beginning.len() as u64, |_| {
        replay.run(beginning, &|_| ()).map(|()| beginning.len() as u64)
    })?;
    let report = replay.finish()?;
    match report.first_mismatches.into_iter().next() {
        None => Ok(per_op),
        Some(first) => Err(CountError::Mismatches { mismatches: report.mismatches, first }),
    }
}
