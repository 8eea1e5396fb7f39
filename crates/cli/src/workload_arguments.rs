//! The store, the table and the counts of a command that puts a store to work.

use std::path::PathBuf;

use clap::Args;
use lapis::{Store, Table};
use lapis_lab::experiment::OPTANE_100;

use crate::failure::Failure;
use crate::store_arguments::{NewTableArguments, StoreArguments, StoreOptions};

/// Where a workload runs, and what it is counted on.
#[derive(Clone, Debug, Args)]
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
    pub table: NewTableArguments,
}

impl WorkloadArguments {
    /// Opens the store, or makes one in memory, and the table; creates what is not there.
    pub fn open(&self) -> Result<(Store, Table), Failure> {
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
