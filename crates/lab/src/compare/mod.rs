//! `lab compare`: Lapis beside other embedded stores, in one run, on one file system.
//!
//! Every store gets the same records, the same bytes of cache, and the same promise: a *durable* commit survives a
//! power cut when it returns; an *eventual* one may be lost until the next sync, which a load ends with and
//! which its time includes. Every value that is read is checked. A case runs in a process of its own, so that its
//! memory is its own and it can be killed; the store it works on is what the load of random keys left behind.
//!
//! `lapis-pm` has its log in memory that poses as persistent memory, and writes lines back and fences as if it were some. It
//! is not: what it acknowledges survives the process, not the machine.
//!
//! Eventual commits are not equal in what they keep of a killed process or after a power cut: fjall, LMDB and RocksDB hand them to the
//! kernel, Lapis and redb keep them until a sync; and LMDB without syncs may be damaged by a power cut.

mod case;
mod findings;
#[cfg(feature = "peers")]
mod fjall;
mod lapis;
#[cfg(feature = "peers")]
mod lmdb;
mod peer;
mod records;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod workload;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::experiment::ExperimentError;
use crate::progress::{OnProgress, Progress};

pub use case::{Case, Measured, run_case};
pub use findings::{Comparison, Ratio, Row, Skipped};
pub use peer::StoreName;
pub use workload::Workload;

/// The line with which a process that is to be killed says that it is at work.
const READY: &str = "ready";

/// What to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The stores.
    pub stores: Vec<StoreName>,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Records to load.
    pub records: u64,
    /// How long each workload is measured, but for loads.
    pub measure_ms: u64,
    /// What the random numbers start from.
    pub seed: u64,
    /// An empty directory on the file system in question.
    pub directory: PathBuf,
    /// An empty directory of memory that may pose as persistent memory.
    pub memory: PathBuf,
    /// How to start a process that runs a case: program and arguments, to which the case is added.
    pub worker: Vec<String>,
}

/// Runs every workload on every store.
///
/// # Errors
/// [`ExperimentError`], also if a store gives a wrong answer.
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<Comparison, ExperimentError> {
    if options.records < 1000 {
        return Err(ExperimentError::bad_option("compare stores with 1,000 records or more"));
    }
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    let steps: u64 = options.workloads.iter().map(|it| it.threads().len() as u64).sum();
    let total = steps * options.stores.len() as u64;
    for &store in &options.stores {
        let loaded = options.directory.join(store.name());
        let case = |workload, threads, directory: &Path| Case {
            store: store.name().to_owned(),
            workload: Workload::name(workload).to_owned(),
            threads,
            directory: directory.to_owned(),
            memory: options.memory.clone(),
            records: options.records,
            measure_ms: options.measure_ms,
            seed: options.seed,
        };
        for &workload in Workload::ALL.iter() {
            let is_wanted = options.workloads.contains(&workload);
            if !is_wanted && workload != Workload::LoadRandom {
                continue;
            }
            if let Some(why) = store.cannot(workload) {
                skipped.push(Skipped { store, workload, why });
                continue;
            }
            let own = options.directory.join(format!("{}-sorted", store.name()));
            let directory = if workload == Workload::LoadSorted { &own } else { &loaded };
            for &threads in workload.threads() {
                if workload == Workload::FirstRead {
                    kill_one(options, &case(Workload::UntilKilled, threads, directory))?;
                }
                let measured = run_worker(options, &case(workload, threads, directory))?;
                let bytes = bytes_on_disk(directory).map_err(|why| failed(store, why))?;
                if is_wanted {
                    rows.push(Row::new(store, workload, threads, measured, bytes));
                    progress(Progress { done: rows.len() as u64, total });
                }
            }
            if workload == Workload::LoadSorted {
                std::fs::remove_dir_all(&own).map_err(|why| failed(store, why))?;
            }
        }
        std::fs::remove_dir_all(&loaded).map_err(|why| failed(store, why))?;
    }
    Ok(Comparison::new(options.records, rows, skipped))
}

fn failed(store: StoreName, why: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Store { what: format!("{store}: {why}") }
}

fn start(options: &Options, case: &Case) -> Result<Child, ExperimentError> {
    let fail = |why: &dyn std::fmt::Display| ExperimentError::Store {
        what: format!("{}: its process cannot be started: {why}", case.store),
    };
    let (program, arguments) =
        options.worker.split_first().ok_or_else(|| fail(&"there is no program"))?;
    let case = serde_json::to_string(case).map_err(|error| fail(&error))?;
    let mut command = Command::new(program);
    command.args(arguments).arg(case).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().map_err(|error| fail(&error))
}

fn run_worker(options: &Options, case: &Case) -> Result<Measured, ExperimentError> {
    let wrong = |why: String| ExperimentError::Store {
        what: format!("{}, {}: {why}", case.store, case.workload),
    };
    let output =
        start(options, case)?.wait_with_output().map_err(|error| wrong(error.to_string()))?;
    if !output.status.success() {
        return Err(wrong("it failed, as the line above says".to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.to_string()))
}

/// Has a process write, and kills it.
fn kill_one(options: &Options, case: &Case) -> Result<(), ExperimentError> {
    let wrong = |why: &dyn std::fmt::Display| ExperimentError::Store {
        what: format!("{}, a process that is to be killed: {why}", case.store),
    };
    let mut child = start(options, case)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|error| wrong(&error))?;
    }
    std::thread::sleep(Duration::from_millis(options.measure_ms));
    let ended = child.try_wait().map_err(|error| wrong(&error))?;
    child.kill().and_then(|()| child.wait()).map_err(|error| wrong(&error))?;
    match line.trim() == READY && ended.is_none() {
        true => Ok(()),
        false => Err(wrong(&"it ended by itself")),
    }
}

/// Bytes that the files of a directory take.
fn bytes_on_disk(directory: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes +=
            if metadata.is_dir() { bytes_on_disk(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
