//! Backups: one state of all tables as a stream of bytes, which is written while others go on, and read into
//! a new engine.
//!
//! # Layout
//!
//! ```text
//!  stream   header │ block │ block │ … │ last block          nothing comes behind it
//!  header    0  8  magic "LAPISBAK"
//!            8  4  version, 1
//!           12  4  zero
//!           16  8  identity of the log
//!           24  8  state: LSN of its last transaction
//!           32  4  CRC-32C of the bytes before
//!           36  4  zero
//!  block     0  4  CRC-32C of identity (8), state (8), number of the block (8), and all that follows here
//!            4  4  bytes of the payload; bit 31: it is the last block
//!            8  …  payload
//!
//!  payloads, end to end
//!           table  1 (1) │ number of its index's kind (4) │ bytes of the name (4) │ name
//!                  0: a tree, 2³¹: one with hashed leaves
//!                  or 4 (1) │ time to live of its entries in milliseconds (8) │ the same behind the 1
//!           entry  2 (1) │ bytes of the key (4) │ of the value (8) │ key │ value         in order of the keys
//!                  or 5 (1) │ since when it counts no more, in milliseconds since 1970 (8) │ the same behind the 2
//!           end    3 (1) │ tables (8) │ entries (8)
//! ```
//!
//! All numbers are little-endian. Records and blocks do not know of each other, so an entry may be of any length.
//!
//! # Invariants
//!
//! * K1. What is read is what was written: a block's checksum is over its place in its own backup, so one that is
//!   rotten, missing, from another backup or in another place is refused.
//! * K2. Only the last block says that it is, and only `end` ends it: a stream that was cut off is refused.
//! * K3. A store that a restore did not fill to the end is refused by every opening (`RESTORING_KEY`).

mod blocks;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::Arc;

use lapis_index::{IndexKind, MAX_KEY_BYTES};
use lapis_pmem::{Domain, host_lock};
use lapis_tree::LeafLayout;

use blocks::{BlockReader, BlockWriter, Header};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::mutants::BACKUP_NOT_DURABLE;
use crate::scan::Scan;
use crate::snapshot::Reader;
use crate::tables::{MAX_TABLE_NAME_BYTES, Table, is_name};
use crate::value::{self, MAX_VALUE_BYTES};

const TABLE: u8 = 1;
const ENTRY: u8 = 2;
const END: u8 = 3;
const TABLE_THAT_EXPIRES: u8 = 4;
const ENTRY_THAT_EXPIRES: u8 = 5;
const HASHED_TREE: u32 = 1 << 31;

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Tables.
    pub tables: u64,
    /// Entries of them all.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The state: the LSN of its last transaction.
    pub state: u64,
}

/// Why there is no backup, or none that can be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The stream failed.
    #[error("the backup cannot be written or read: {0}")]
    Stream(#[from] io::Error),
    /// The stream is something else.
    #[error("this is no backup of a store")]
    NotABackup,
    /// A newer Lapis wrote it.
    #[error("the backup has format {found}; this build knows formats up to {supported}")]
    NewerVersion {
        /// Its version.
        found: u32,
        /// The newest that this build reads.
        supported: u32,
    },
    /// The stream ends before the backup does.
    #[error("the backup was cut off in block {block}")]
    CutOff {
        /// The block, from 0 on.
        block: u64,
    },
    /// A block is not what was written.
    #[error("block {block} of the backup {what}")]
    Damaged {
        /// The block, from 0 on.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The store has tables already.
    #[error("a backup is restored into a new store; this one has tables")]
    NotEmpty,
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What a table was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldBy {
    Tree(LeafLayout),
    Index(IndexKind),
}

impl HeldBy {
    fn number(self) -> u32 {
        match self {
            Self::Tree(LeafLayout::Hashed) => HASHED_TREE,
            Self::Tree(_) => 0,
            Self::Index(kind) => kind as u32,
        }
    }

    fn of(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Tree(LeafLayout::Sorted)),
            HASHED_TREE => Some(Self::Tree(LeafLayout::Hashed)),
            number => IndexKind::from_number(number).map(Self::Index),
        }
    }
}

/// What a backup consists of.
#[derive(Debug, PartialEq, Eq)]
enum Record {
    Table { name: String, held_by: HeldBy, time_to_live_ms: Option<u64> },
    Entry(Vec<u8>, Vec<u8>, Option<u64>),
}

impl<D: Domain> Engine<D> {
    /// Writes one durable state of all tables, that of the moment of this call. It keeps nobody waiting, and nobody who
    /// writes or drops tables meanwhile changes it. Flushing `into` is the caller's.
    ///
    /// # Errors
    /// [`BackupError::Stream`], [`BackupError::Engine`]; what was written is then no backup.
    pub fn backup(&self, into: impl Write) -> Result<BackupReport, BackupError> {
        let shared = self.shared();
        // Tables are made and dropped before the state begins, or behind it.
        let making = host_lock::lock(&shared.domain, &shared.making);
        let tables = self.tables();
        let reader = Arc::new(Reader::new(self, false)?);
        drop(making);
        // E4.
        if !shared.domain.commits(BACKUP_NOT_DURABLE) {
            shared.log.wait_for(reader.since()).map_err(EngineError::from)?;
        }
        let header = Header { identity: shared.log.identity(), state: reader.since() };
        let mut blocks = BlockWriter::begin(into, header)?;
        let mut report = BackupReport { state: header.state, ..BackupReport::default() };
        for table in tables {
            let name = table.name().as_bytes();
            let in_tree = HeldBy::Tree(table.properties().leaves);
            let held_by = table.index_kind().map_or(in_tree, HeldBy::Index);
            match table.properties().time_to_live_ms {
                None => blocks.write_all(&[TABLE])?,
                Some(time) => blocks.write_tagged(TABLE_THAT_EXPIRES, time)?,
            }
            blocks.write_all(&held_by.number().to_le_bytes())?;
            blocks.write_all(&(name.len() as u32).to_le_bytes())?;
            blocks.write_all(name)?;
            report.tables += 1;
            // Of a table that was dropped since, pages stay as long as somebody reads an older state.
            let mut write = |key: &[u8], value: &[u8], expires: Option<u64>| {
                report.entries += 1;
                report.bytes += (key.len() + value.len()) as u64;
                match expires {
                    None => blocks.write_all(&[ENTRY])?,
                    Some(at) => blocks.write_tagged(ENTRY_THAT_EXPIRES, at)?,
                }
                blocks.write_all(&(key.len() as u32).to_le_bytes())?;
                blocks.write_all(&(value.len() as u64).to_le_bytes())?;
                blocks.write_all(key)?;
                blocks.write_all(value)
            };
            if table.is_ordered() {
                let mut scan = Scan::new(Arc::clone(&reader), table, None, KeyRange::all());
                while let Some(((key, value), expires)) = scan.next_with_expiry()? {
                    write(key, value, expires)?;
                }
                continue;
            }
            for key in keys_of(&table, &reader)? {
                let Some(record) = reader.get_record(&table, &key)? else { continue };
                let expires = value::expiry_of(&record);
                if let Some(value) = reader.value_of(&table, &key, record)? {
                    write(&key, &value, expires)?;
                }
            }
        }
        blocks.write_all(&[END])?;
        blocks.write_all(&report.tables.to_le_bytes())?;
        blocks.write_all(&report.entries.to_le_bytes())?;
        blocks.finish()?;
        Ok(report)
    }
}

/// The keys that a table without order has, or had when the reader began, in order.
fn keys_of<D: Domain>(
    table: &Table<D>,
    reader: &Reader<D>,
) -> Result<BTreeSet<Box<[u8]>>, EngineError> {
    // Where zeroes are read, there are no keys.
    let mut keys = reader.engine().shared().guarded(|| {
        let mut keys = BTreeSet::new();
        table.contents().visit_all(|key, _| _ = keys.insert(Box::from(key)))?;
        Ok(keys)
    })?;
    // Only now: what was there and is not visited has been replaced meanwhile (E3).
    let replaced = table.versions().find_range(reader.domain(), &KeyRange::all(), reader.since());
    keys.extend(replaced.into_iter().map(|(key, _)| key));
    Ok(keys)
}

/// Reads a backup to its end and says what it holds, or what is wrong with it.
///
/// # Errors
/// [`BackupError`].
pub fn verify_backup(from: impl Read) -> Result<BackupReport, BackupError> {
    let mut records = Records::begin(from)?;
    while records.next_record()?.is_some() {}
    Ok(records.report)
}

/// The records of a backup, one after the other: those that no store has are refused here, for all who read them.
struct Records<R> {
    blocks: BlockReader<R>,
    report: BackupReport,
    names: BTreeSet<String>,
    /// The index that the last table was in, if it was in one.
    kind: Option<IndexKind>,
    /// The last key of that table; none before its first.
    last_key: Option<Vec<u8>>,
    ended: bool,
}

impl<R: Read> Records<R> {
    fn begin(from: R) -> Result<Self, BackupError> {
        let blocks = BlockReader::begin(from)?;
        let report = BackupReport { state: blocks.header().state, ..BackupReport::default() };
        let names = BTreeSet::new();
        Ok(Self { blocks, report, names, kind: None, last_key: None, ended: false })
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.blocks.read_into(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self, length: u64, most: usize) -> Result<Vec<u8>, BackupError> {
        match usize::try_from(length).ok().filter(|&length| length <= most) {
            Some(length) => self.blocks.read_bytes(length),
            None => Err(self.blocks.damaged("has a record that is longer than any")),
        }
    }

    /// Refuses a key that its table cannot have.
    fn check_key(&mut self, key: &[u8]) -> Result<(), BackupError> {
        if self.report.tables == 0 {
            return Err(self.blocks.damaged("has entries before a table"));
        }
        // A tree may have it.
        if key.is_empty() && self.kind.is_some() {
            return Err(self.blocks.damaged("has a key without bytes in an index"));
        }
        match &mut self.last_key {
            Some(last) if last.as_slice() >= key => {
                return Err(self.blocks.damaged("has a key that does not come behind the last"));
            }
            Some(last) => key.clone_into(last),
            None => self.last_key = Some(key.to_vec()),
        }
        Ok(())
    }

    /// The next one; none at the end, after which there is nothing (K2).
    fn next_record(&mut self) -> Result<Option<Record>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let [tag] = self.number()?;
        let time = match tag {
            TABLE_THAT_EXPIRES | ENTRY_THAT_EXPIRES => Some(u64::from_le_bytes(self.number()?)),
            _ => None,
        };
        match tag {
            TABLE | TABLE_THAT_EXPIRES => {
                let held_by = HeldBy::of(u32::from_le_bytes(self.number()?));
                let held_by = held_by.ok_or_else(|| {
                    self.blocks.damaged("has a table in an index of no known kind")
                })?;
                let length = u32::from_le_bytes(self.number()?);
                let name = String::from_utf8(self.bytes(length.into(), MAX_TABLE_NAME_BYTES)?);
                let name = name.ok().filter(|name| is_name(name));
                let name = name.ok_or_else(|| self.blocks.damaged("has a table without a name"))?;
                if !self.names.insert(name.clone()) {
                    return Err(self.blocks.damaged("has a table that was there before"));
                }
                self.kind = match held_by {
                    HeldBy::Index(kind) => Some(kind),
                    HeldBy::Tree(_) => None,
                };
                self.last_key = None;
                self.report.tables += 1;
                Ok(Some(Record::Table { name, held_by, time_to_live_ms: time }))
            }
            ENTRY | ENTRY_THAT_EXPIRES => {
                let key_bytes = u32::from_le_bytes(self.number()?);
                let value_bytes = u64::from_le_bytes(self.number()?);
                let key = self.bytes(key_bytes.into(), MAX_KEY_BYTES)?;
                self.check_key(&key)?;
                let value = self.bytes(value_bytes, MAX_VALUE_BYTES)?;
                self.report.entries += 1;
                self.report.bytes += (key.len() + value.len()) as u64;
                Ok(Some(Record::Entry(key, value, time)))
            }
            END => {
                let counts = [self.number()?, self.number()?].map(u64::from_le_bytes);
                if counts != [self.report.tables, self.report.entries] {
                    return Err(self.blocks.damaged("counts what is not there"));
                }
                self.blocks.end()?;
                self.ended = true;
                Ok(None)
            }
            _ => Err(self.blocks.damaged("has a record of no known kind")),
        }
    }
}
