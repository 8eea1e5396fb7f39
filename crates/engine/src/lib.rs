//! The engine: serializable transactions over trees on pages, with one log.
//!
//! It lies on what its [`Storage`] says: an SSD, persistent memory, DRAM, with the same code. Pages are kept by [`lapis_buffer`], trees by [`lapis_tree`], the log by [`lapis_blocks::block_log`]. What is here
//! makes transactions of them.
//!
//! # Protocol
//!
//! Optimistic, after H. T. Kung, J. T. Robinson, *On optimistic methods for concurrency control*, TODS 1981, with
//! backward validation; versions for readers after T. Neumann, T. Mühlbauer, A. Kemper, *Fast serializable
//! multi-version concurrency control for main-memory database systems*, SIGMOD 2015: the newest value is in the
//! tree, what is older and somebody may still read is beside it, in DRAM.
//!
//! * A transaction reads the state of its beginning and keeps its writes to itself. So there are no
//!   locks to wait for while it runs, and no deadlocks. Nobody waits for a reader, and a reader for nobody.
//! * To commit, it takes the *stripes* of the keys it writes, in order; then the *turn*, in which it is validated
//!   (nothing it read was written since it began), its one redo record is appended to the log, and its place in
//!   the order is the record's LSN. Then it gives the turn to the next one, changes the trees, and gives back the
//!   stripes. Transactions that write different keys change trees side by side; those that write the same key
//!   do so in the order of the log.
//! * Then it waits for the log, as long as its [`Durability`] says.
//!
//! What that costs in writes: one record of the log for each transaction, with the new values alone, and nothing
//! on abort. Locking (2PL) would write as much, and wait; writing to pages before commit would log
//! every old value too, and undo.
//!
//! # Invariants
//!
//! * E1. *Pages hold nothing that is uncommitted.* A tree is changed only by a transaction whose record is in the log,
//!   whole, and with the record's LSN. So a page that is written (the log durable up to its LSN) holds
//!   nothing that a power cut takes back, and recovery undoes nothing.
//! * E2. *One order.* The order of commit records in the log is the order in which transactions took effect: who writes
//!   a key holds its stripe from before the record is appended until the tree has the change.
//! * E3. *A reader's state is whole.* Who begins at LSN `s` waits until every transaction up to `s` has changed its
//!   trees; and every transaction that is ordered while a reader is registered puts what it replaces into
//!   the versions before it changes the tree. A reader looks in the tree first, then among the versions.
//! * E4. *What was read is durable when it matters.* A snapshot begins at a durable state. A transaction's record comes
//!   after those of all that it has read. A read on its own waits until the last transaction that wrote to
//!   the key's stripe, and is to be durable, is so, and has changed all of its trees: who has read one of its keys finds
//!   the others. Of transactions that are not to be durable it may see one key and not yet another.
//! * E5. *The log goes back far enough.* Its start is not behind the first record of any transaction that has not changed
//!   all of its trees, nor behind any change that a page on the device lacks.
//! * E6. *Redo ends in the state of the end of the log*, wherever it begins before all that is missing: structure
//!   records bring the trees to the shape they had (`lapis_tree`), then all logical records from the start on
//!   are applied in order, whatever a page has of them already; a key's last one wins.
//!   Records of tables that are gone at the end of the log are left out: their pages may be others by now. Not of
//!   one that was dropped and whose long values are still to be listed: it has all of its pages (`drop.rs`).
//!
//! Tables in persistent indexes have invariants of their own, X1 to X5 in `index_table.rs`.
//!
//! # Order of writes
//!
//! * Commit: room in the log, behind whoever it is kept for; pages promised for what the trees may take; all parts of the
//!   record, its last one in the turn (E2); trees (E1); flush of the log; acknowledge.
//! * Checkpoint: note where the log must be kept from (E5); write pages (the log first, the buffer's B3); make
//!   the freed pages durable; cut the log.

mod backup;
mod catalog;
mod check;
mod checkpoint;
mod commit;
mod compact;
mod contents;
mod drop;
mod end_to_end;
mod engine;
mod error;
mod expiry;
mod index_table;
mod key_range;
mod load;
mod log;
mod metrics;
pub mod mutants;
mod operations;
mod order;
mod persistent_memory;
mod pieces;
mod reads;
mod record;
mod recovery;
mod redo_time;
mod room;
mod salvage;
mod scan;
mod snapshot;
mod storage;
mod stripes;
mod tables;
mod transaction;
mod value;
mod value_reader;
mod value_writer;
mod versions;
mod write_set;

pub use backup::{BackupError, BackupReport, verify_backup};
pub use catalog::TableStructure;
pub use compact::CompactionReport;
pub use engine::{Engine, EngineOptions, Statistics};
pub use error::EngineError;
pub use expiry::{Clock, TimeToLive};
pub use key_range::KeyRange;
pub use lapis_blocks::block_log::Durability;
pub use lapis_buffer::{
    Chance, Decided, Migration, MigrationStatistics, Placement, UnknownPlacement,
};
pub use lapis_index::{IndexKind, IndexOptions};
pub use lapis_tree::LeafLayout;
pub use load::TableLoad;
pub use metrics::{Latencies, Metrics, TierBytes};
pub use operations::Retries;
#[doc(hidden)]
pub use record::is_record;
pub use recovery::{RecoveryProgress, RecoveryReport};
pub use salvage::{Lost, SalvageReport, SalvagedTable, TellEntry, salvage};
pub use scan::{Direction, Entry, Scan};
pub use snapshot::Snapshot;
pub use storage::{PersistentMemoryOptions, Storage};
pub use tables::{MAX_TABLE_NAME_BYTES, Table};
pub use transaction::{Savepoint, Transaction};
pub use value::MAX_VALUE_BYTES;
pub use value_reader::ValueReader;
pub use value_writer::ValueWriter;
