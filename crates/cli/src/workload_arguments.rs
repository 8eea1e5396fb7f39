//! The store, the table and the counts of a command that puts a store to work.

use std::path::PathBuf;

use clap::{Arg, Args};
use lapis::{Store, Table};
use lapis_device::Profile;
use lapis_lab::experiment::OPTANE_100;

use crate::failure::Failure;
use crate::store_arguments::{LastingTableArguments, StoreArguments, StoreOptions};

/// Where a workload runs, and what it is counted on. A store in memory has nothing to be opened with.
#[derive(Clone, Debug, Args)]
#[expect(clippy::duplicated_attributes, reason = "each is of another option")]
#[command(
    mut_arg("durability", needs_dir),
    mut_arg("cache_mib", needs_dir),
    mut_arg("pmem", needs_dir),
    mut_arg("placement", needs_dir),
    mut_arg("pmem_caches", needs_dir)
)]
pub struct WorkloadArguments {
    /// The store's directory [default: none, in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    options: StoreOptions,
    /// The device profile that the counts are modelled for
    #[arg(long, value_name = "P", default_value = OPTANE_100)]
    pub profile: String,
    /// Leave the counts out
    #[arg(long)]
    pub measured_only: bool,
    #[command(flatten)]
    table: LastingTableArguments,
}

fn needs_dir(argument: Arg) -> Arg {
    argument.requires("dir")
}

impl WorkloadArguments {
    /// Opens the store, or makes one in memory, and the table; creates what is not there. A workload that could not be
    /// counted afterwards is refused.
    pub fn open(&self) -> Result<(Store, Table), Failure> {
        if !self.measured_only {
            Profile::find(&self.profile).map_err(|error| Failure::refused(error.to_string()))?;
        }
        let store = match &self.dir {
            Some(dir) => {
                let store = StoreArguments { dir: dir.clone(), options: self.options.clone() };
                store.open_or_create(true)?
            }
            None => Store::in_memory()?,
        };
        let table = self.table.open(&store)?;
        Ok((store, table))
    }
}
