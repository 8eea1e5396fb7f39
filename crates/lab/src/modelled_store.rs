//! A store on the modelled machine: what an operation of a workload costs, counted.
//!
//! Hardware does not count, so the reports of measured runs get their counts from a smaller run of
//! the same workload here, by one thread, the same on every machine.

use std::sync::Arc;

use lapis_compiled_indexes::ModelledKey;
use lapis_device::{Modelled, ModelledSsd, Profile, ProfileError, SsdConfig, SsdProfileError};
use lapis_engine::{Engine, EngineError, EngineOptions, Placement, Storage};
use lapis_pmem::{BLOCK_BYTES, BlockCounts, BlockDevice};

use crate::block_trace::Request;
use crate::experiment::ExperimentError;
use crate::experiment::meter::{Meter, ModelMeter};
use crate::key_value::ModelledTable;
use crate::replay::{Replay, ReplayError};
use crate::report::{PerOperation, SsdPerOperation};
use crate::ycsb::{Driver, Options, Workload, WorkloadError};

/// Most records, and most operations, of a counted run: ten seconds' worth at the very most.
pub const COUNTED_RECORDS: u64 = 10_000;

/// Persistent memory to begin with, and at most.
const INITIAL_BYTES: usize = 64 << 20;
const CAPACITY_BYTES: usize = 16 << 30;
/// The log: a ring of 16 MiB, and its headers.
const LOG_BLOCKS: u64 = (16 << 20) / BLOCK_BYTES as u64 + 2;
/// Pages in persistent memory.
const FRAMES: usize = 1024;

/// Why nothing could be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// There is no such device profile, or it is a bad one.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// There is no machine for the store.
    #[error(transparent)]
    Machine(#[from] ExperimentError),
    /// There is no such SSD.
    #[error(transparent)]
    Ssd(#[from] SsdProfileError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] EngineError),
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError<EngineError>),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError<EngineError>),
    /// The replay gave wrong answers: the store has an error.
    #[error("the replay found {mismatches} mismatches on the modelled machine: {first}")]
    Mismatches {
        /// How many.
        mismatches: u64,
        /// The first, in words.
        first: String,
    },
}

/// A store with one table on the modelled machine, and its counters: pages in DRAM over an SSD, the log on
/// another SSD; or the log and a tier of pages in persistent memory.
#[derive(Debug)]
pub struct ModelledStore {
    profile: String,
    meter: ModelMeter,
    target: ModelledTable,
    ssds: Vec<ModelledSsd>,
}

impl ModelledStore {
    /// An empty store on the machine of `profile_name` (a built-in profile or a file), with a table: on SSDs
    /// (`ssd`), or with persistent memory, whole pages at a time or lines.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn create(profile_name: &str, placement: Placement) -> Result<Self, CountError> {
        let mut options = EngineOptions { placement, ..EngineOptions::new(1) };
        options.memory.frames = FRAMES;
        Self::create_with(profile_name, options)
    }

    /// The same with an engine of these options, but for the length of its log.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn create_with(profile_name: &str, mut options: EngineOptions) -> Result<Self, CountError> {
        let profile = Profile::find(profile_name)?;
        let (meter, pool) =
            ModelMeter::with_pool(profile.machine(), INITIAL_BYTES, CAPACITY_BYTES)?;
        let machine = meter.machine();
        let ssd = |blocks| ModelledSsd::attached_to(machine, blocks, SsdConfig::default());
        let mut ssds = vec![ssd(1)?];
        let pages = Some(Arc::new(ssds[0].clone()) as Arc<dyn BlockDevice>);
        let (mut log, mut in_memory) = (None, None);
        if options.placement.has_persistent_memory() {
            in_memory = Some(Arc::new(pool));
        } else {
            let device = ssd(LOG_BLOCKS)?;
            ssds.push(device.clone());
            log = Some(Arc::new(device) as Arc<dyn BlockDevice>);
        }
        options.memory.log_blocks = LOG_BLOCKS;
        let storage = Storage { pages, log, pool: in_memory, indexes: <[u8]>::indexes() };
        let engine = Engine::create(machine.clone(), storage, &options)?;
        let table = engine.create_table("counted")?;
        let target = ModelledTable { engine, table };
        Ok(Self { profile: profile.name, meter, target, ssds })
    }

    /// The machine.
    pub fn machine(&self) -> &Modelled {
        self.meter.machine()
    }

    /// What its engine has done so far.
    pub fn statistics(&self) -> lapis_engine::Statistics {
        self.target.engine.statistics()
    }

    /// Does what a thread in the background would.
    ///
    /// # Errors
    /// [`CountError::Store`].
    pub fn maintain(&self) -> Result<bool, CountError> {
        Ok(self.target.engine.maintain()?)
    }

    /// Bytes of DRAM that hold pages now.
    pub fn resident_bytes(&self) -> u64 {
        self.target.engine.metrics().dram.used
    }

    /// Its table, as a target of workloads.
    pub fn target(&self) -> &ModelledTable {
        &self.target
    }

    /// What the SSDs have done so far.
    fn ssd_counts(&self) -> Vec<BlockCounts> {
        self.ssds.iter().map(BlockDevice::counts).collect()
    }

    /// Counts what `run` does, which returns how many operations that were, per operation. `records`
    /// is for the report. Pages that they have changed are written in the end and count too.
    ///
    /// # Errors
    /// That of `run`, or [`CountError::Store`].
    pub fn count<E: Into<CountError>>(
        &self,
        records: u64,
        run: impl FnOnce(&ModelledTable) -> Result<u64, E>,
    ) -> Result<PerOperation, CountError> {
        let engine = &self.target.engine;
        engine.checkpoint()?;
        let before = self.ssd_counts();
        let (operations, section) = self.meter.section(1, || {
            let operations = run(&self.target).map_err(Into::into)?;
            engine.checkpoint()?;
            Ok::<_, CountError>(operations)
        })?;
        let ssd = SsdPerOperation::of(before, self.ssd_counts(), operations);
        Ok(PerOperation {
            profile: Some(self.profile.clone()),
            records: Some(records),
            counts: (operations > 0).then(|| section.per_operation(operations)),
            ssd: (operations > 0).then_some(ssd),
        })
    }
}

/// Counts a workload of YCSB per operation on a store with persistent memory, with at most [`COUNTED_RECORDS`] records and operations
/// and one thread.
///
/// # Errors
/// [`CountError`].
pub fn count_ycsb(
    profile_name: &str,
    workload: Workload,
    options: &Options,
) -> Result<PerOperation, CountError> {
    let modelled = ModelledStore::create(profile_name, Placement::ThreeTier)?;
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
    modelled.count(records, |_| driver.run(workload, &|_| ()).map(|report| report.operations))
}

/// Counts the beginning of a trace per request on a store with persistent memory, at most [`COUNTED_RECORDS`] of them.
///
/// # Errors
/// [`CountError`].
pub fn count_replay(profile_name: &str, requests: &[Request]) -> Result<PerOperation, CountError> {
    let modelled = ModelledStore::create(profile_name, Placement::ThreeTier)?;
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
