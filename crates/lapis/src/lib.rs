//! Lapis: an embedded, ordered, transactional key-value store for machines with DRAM,
//! byte-addressable persistent memory and SSD.
//!
//! A [`Store`] has named [`Table`]s of keys and values, both any bytes, in the order of their keys.
//! [`Transaction`]s span tables and threads and are atomic, durable and serializable; nobody waits for a
//! [`Snapshot`], and a snapshot for nobody. An acknowledged commit survives a power cut wherever the
//! medium keeps what it was told to keep; [`Store::info`] says which guarantee holds and why.
//!
//! ```
//! # fn main() -> Result<(), lapis::Error> {
//! # let directory = tempfile::tempdir().unwrap();
//! let store = lapis::Store::open(lapis::Config::new(directory.path()))?;
//! let table = store.table_or_create("main")?;
//! table.put(b"key", b"value")?; // durable when it returns
//! assert_eq!(table.get(b"key")?.unwrap(), b"value");
//! # Ok(()) }
//! ```
//!
//! # What to know
//!
//! * A commit that waits for the disk takes as long as the disk does, whatever it holds: put more into
//!   a transaction, commit from several threads (they share the disk's syncs), or wait less
//!   ([`Durability`]).
//! * Keys have 1 to [`Table::largest_key_bytes`] bytes: 1,970 with pages of 16 KiB. Values have up to 1 GiB;
//!   [`Table::reader`] and [`Table::writer`] do not have them in memory.
//! * A transaction's writes have up to a quarter of what the log may grow to ([`Config::log_bytes`]); long values, which
//!   are written before it commits, count little.
//! * One process has a store open to write, and nobody else beside it; or any number have it open to read
//!   ([`Config::read_only`]). Who is refused is told by whom.

// Compiled already.
#[cfg(test)]
use lapis_compiled_indexes as _;

mod background;
mod backup;
mod config;
mod directory;
mod entries;
mod error;
mod info;
mod kept;
mod salvage;
mod snapshot;
mod store;
mod table;
mod transaction;
mod typed;
mod value_stream;

pub use backup::TableLoad;
pub use config::{Config, TableOptions};
pub use directory::{LOG_FILE, MEMORY_FILE, PAGES_FILE};
pub use entries::Entries;
pub use error::Error;
pub use info::{Bytes, ChanceInfo, CheckReport, Info, MemoryInfo, MigrationInfo, TableInfo, Tier};
pub use lapis_engine::{
    BackupError, BackupReport, Chance, Clock, CompactionReport, Decided, Durability, Entry,
    IndexKind, Latencies, LeafLayout, Lost, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES, Metrics,
    Migration, MigrationStatistics, Placement, RecoveryProgress, RecoveryReport, SalvageReport,
    SalvagedTable, Savepoint, TierBytes, TimeToLive, verify_backup,
};
pub use lapis_pmem::Caches;
pub use salvage::salvage;
pub use snapshot::Snapshot;
pub use store::Store;
pub use table::Table;
pub use transaction::{Commit, Transaction};
pub use typed::{Encoding, Key, TypedTable};
pub use value_stream::{ValueReader, ValueWriter};
