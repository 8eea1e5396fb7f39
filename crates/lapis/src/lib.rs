//! Lapis: an embedded, ordered, transactional key-value store for machines with DRAM,
//! byte-addressable persistent memory and SSD.
//!
//! A [`Store`] has named [`Table`]s, each held by an index structure of its own choice, with keys of
//! 1 to 65,535 bytes and values of up to 1 GiB. [`Transaction`]s span tables and are atomic, durable
//! and serializable; [`Snapshot`]s read one committed state. What an acknowledged write survives
//! depends on the medium; [`Store::info`] says which guarantee holds and why.
//!
//! ```
//! # fn main() -> Result<(), lapis::Error> {
//! # let directory = tempfile::tempdir().unwrap();
//! let store = lapis::Store::open(lapis::Config::new(directory.path()))?;
//! let table = store.table_or_create("main", &lapis::TableOptions::default())?;
//! table.put(b"key", b"value")?; // durable when it returns
//! assert_eq!(table.get(b"key")?.unwrap(), b"value");
//! # Ok(()) }
//! ```

mod catalog;
mod config;
mod engine;
mod entries;
mod error;
mod info;
#[doc(hidden)]
pub mod mutants;
mod record;
mod store;
mod table;
mod table_state;
mod transaction;
mod value;

pub use config::{Config, POOL_FILE, StoreOptions, TableOptions};
pub use entries::Entries;
pub use error::Error;
pub use info::{Bytes, CheckReport, Info, TableInfo, Tier};
pub use lapis_index::{Direction, IndexKind, MAX_KEY_BYTES, Statistics};
pub use lapis_pmem::{Durability, Hardware};
pub use store::Store;
pub use table::Table;
pub use transaction::{Snapshot, SnapshotEntries, Transaction, TransactionEntries};
pub use value::Value;

/// Whether bytes are a redo record of the log: for fuzzing its parser.
#[doc(hidden)]
pub fn parse_log_record(bytes: &[u8]) -> bool {
    record::parse(bytes).is_ok()
}

/// The longest value: 1 GiB.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// The longest name of a table.
pub const MAX_TABLE_NAME_BYTES: usize = 255;
