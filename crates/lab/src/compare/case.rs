//! A case: one workload on one store, in a process of its own.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::READY;
use super::peer::{OpenOptions, PeerError, StoreName};
use super::records::{KEY_BYTES, VALUE_BYTES};
use super::workload::{self, Done, Workload};
use crate::experiment::ExperimentError;

/// What such a process is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The store.
    pub store: String,
    /// What is done.
    pub workload: String,
    /// By how many threads.
    pub threads: usize,
    /// Where the store is.
    pub directory: PathBuf,
    /// Where there is memory that may pose as persistent memory.
    pub memory: PathBuf,
    /// Records that it has.
    pub records: u64,
    /// For how long.
    pub measure_ms: u64,
    /// What the random numbers start from.
    pub seed: u64,
}

/// What it tells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations per second of all threads together: records, but for scans.
    pub ops_per_s: f64,
    /// Processor time per operation, of all threads of the process, in the background too.
    pub cpu_ns: f64,
    /// What 99 % of operations did not take longer than; of loads, commits.
    pub p99_ns: u64,
    /// How long opening took; after a kill, with the first read.
    pub open_ms: f64,
    /// The most memory that the process had, mapped files included.
    pub peak_memory_bytes: u64,
}

impl Case {
    fn cache_bytes(&self, workload: Workload) -> u64 {
        let data = self.records * (KEY_BYTES + VALUE_BYTES) as u64;
        match workload {
            Workload::GetBeyondCache => data / 4,
            // However they are packed.
            _ => data * 3 + (64 << 20),
        }
    }
}

/// Runs a case, in the process whose it is.
///
/// # Errors
/// [`ExperimentError`], also if a store gives a wrong answer.
pub fn run_case(case: &Case) -> Result<Measured, ExperimentError> {
    run(case).map_err(|error| ExperimentError::Store {
        what: format!("{}, {}: {error}", case.store, case.workload),
    })
}

fn run(case: &Case) -> Result<Measured, PeerError> {
    let store = StoreName::ALL.into_iter().find(|it| it.name() == case.store);
    let workload = Workload::ALL.into_iter().find(|it| it.name() == case.workload);
    let (store, workload) = store.zip(workload).ok_or("there is no such store or workload")?;
    std::fs::create_dir_all(&case.directory)?;
    let (keys, records) = (workload.keys(), case.records);
    let begun = Instant::now();
    let peer = store.open(&OpenOptions {
        directory: &case.directory,
        cache_bytes: case.cache_bytes(workload),
        durable: workload.is_durable(),
        memory: &case.memory,
    })?;
    if workload == Workload::FirstRead {
        workload::get_numbers(&*peer, keys, &mut [records / 2].into_iter())?;
    }
    let open_ms = begun.elapsed().as_secs_f64() * 1e3;
    let time = Duration::from_millis(case.measure_ms);
    let go_on = |time| workload::run(&*peer, workload, case.threads, records, time, case.seed);
    let mut cpu = processor_time();
    let Done { operations, elapsed, latencies } = match workload {
        Workload::LoadSorted | Workload::LoadRandom => workload::load(&*peer, keys, records)?,
        Workload::UntilKilled => {
            let mut output = std::io::stdout();
            writeln!(output, "{READY}").and_then(|()| output.flush())?;
            go_on(Duration::MAX)?
        }
        Workload::FirstRead => {
            // Whatever was acknowledged before is there.
            let (checked, begun) = (records.min(100_000), Instant::now());
            workload::get_numbers(&*peer, keys, &mut (0..checked))?;
            let latencies = crate::report::Latencies::new();
            Done { operations: checked, elapsed: begun.elapsed(), latencies }
        }
        _ => {
            // What is to be in memory is, and it is measured from here on.
            let warmed = match workload {
                Workload::GetBeyondCache => records / 4,
                _ => records,
            };
            workload::get_numbers(&*peer, keys, &mut (0..warmed))?;
            cpu = processor_time();
            go_on(time)?
        }
    };
    let cpu = processor_time() - cpu;
    peer.close()?;
    Ok(Measured {
        ops_per_s: operations as f64 / elapsed.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / operations as f64,
        p99_ns: latencies.quantiles().p99,
        open_ms,
        peak_memory_bytes: peak_memory_bytes()?,
    })
}

/// What this process has used so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The high water mark of this process.
fn peak_memory_bytes() -> Result<u64, PeerError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("the kernel does not say how much memory was used")?.trim().parse::<u64>()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_on_lapis() {
        let directory = tempfile::tempdir().unwrap();
        for workload in Workload::rows() {
            for &threads in workload.threads() {
                let case = Case {
                    store: StoreName::Lapis.name().to_owned(),
                    workload: workload.name().to_owned(),
                    threads,
                    directory: match workload {
                        Workload::LoadSorted => directory.path().join("sorted"),
                        _ => directory.path().join("random"),
                    },
                    memory: directory.path().to_owned(),
                    records: 3000,
                    measure_ms: 5,
                    seed: 1,
                };
                let measured = run_case(&case).unwrap();
                assert!(measured.ops_per_s > 0.0 && measured.peak_memory_bytes > 0, "{workload}");
            }
        }
    }
}
