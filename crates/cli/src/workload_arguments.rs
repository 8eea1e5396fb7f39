//! The store, the table and the counts of a command that puts a store to work.

use std::path::PathBuf;

use clap::Args;
use lapis::{Store, Table};
use lapis_lab::experiment::OPTANE_100;

use crate::failure::Failure;
use crate::store_arguments::{Durability, NewTableArguments, StoreArguments};

/// Bytes that an in-memory store has before it has to grow.
const MEMORY_BYTES: usize = 64 << 20;

/// Where a workload runs, and what it is counted on.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArguments {
    /// The store's directory [default: none, in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What an acknowledged write survives (with --dir)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "dir")]
    durability: Durability,
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
                let store = StoreArguments { dir: dir.clone(), durability: self.durability };
                store.open_or_create(true)?
            }
            None => Store::in_memory(MEMORY_BYTES)?,
        };
        let table = self.table.open(&store)?;
        Ok((store, table))
    }
}
