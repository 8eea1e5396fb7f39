//! `lapis lab compare`: Lapis beside other embedded stores.

use std::path::{Path, PathBuf};

use clap::Args;
use lapis_lab::compare::{Case, Options, StoreName, Workload, run as compare, run_case};

use super::frame::{Destinations, Seed, named, or_default, refused};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Compare Lapis with LMDB, redb, fjall and RocksDB on this machine and file system
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo run --release --features rocksdb -- lab compare    (needs librocksdb-dev)
  cargo run --release --features peers -- lab compare --only get,scan-100 --stores lapis,lmdb
  cargo run --release --features peers -- lab compare --directory /mnt/disk --write docs/compare.md

lapis-pm has its log in memory that poses as persistent memory: caches are written back and fenced
as for it, and what it acknowledges does not survive a power cut.

Every case runs in a process of its own. Commits of put and put-1000 survive a power cut when they
return; those of the other workloads may be lost until a sync, which the time of a load includes.
Every value that is read is checked. Durable figures are the disk's as well: they count only
beside each other.")]
pub struct Arguments {
    /// Records to load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// The workloads [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(Workload::rows(), Workload::name))]
    only: Vec<Workload>,
    /// The stores [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(StoreName::ALL.to_vec(), StoreName::name))]
    stores: Vec<StoreName>,
    /// How long each workload is measured, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    measure_ms: u64,
    /// Where to put the stores [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Where there is memory that poses as persistent memory
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// Run one case, as the process for it
    #[arg(long, value_name = "CASE", hide = true)]
    case: Option<String>,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    destinations: Destinations,
}

/// Runs `lapis lab compare`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    if let Some(case) = &arguments.case {
        let case: Case = serde_json::from_str(case).map_err(refused)?;
        output.json(&run_case(&case).map_err(refused)?)?;
        return Ok(Verdict::Good);
    }
    let built: Vec<_> = StoreName::ALL.into_iter().filter(|store| store.is_built()).collect();
    if !StoreName::Redb.is_built() {
        return Err(Failure::refused(
            "this build has no other stores; use cargo run --release --features peers -- lab compare",
        ));
    }
    arguments.destinations.check_without_figure()?;
    let directory = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let scratch_in = |directory: &Path| {
        let scratch = tempfile::Builder::new().prefix("lapis-compare").tempdir_in(directory);
        scratch.map_err(|error| Failure::file("write to", directory, &error))
    };
    let (scratch, memory) = (scratch_in(&directory)?, scratch_in(&arguments.memory)?);
    let program = std::env::current_exe().map_err(refused)?;
    let worker = [&program.to_string_lossy(), "--json", "lab", "compare", "--case"];
    let seed = arguments.seed.seed;
    let options = Options {
        stores: or_default(&arguments.stores, built),
        workloads: or_default(&arguments.only, Workload::rows()),
        records: arguments.records,
        measure_ms: arguments.measure_ms,
        seed,
        directory: scratch.path().to_owned(),
        memory: memory.path().to_owned(),
        worker: worker.map(str::to_owned).to_vec(),
    };
    arguments.destinations.run("cases", Some(seed), output, |progress| compare(&options, progress))
}
