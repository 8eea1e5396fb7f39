//! The one log, as its three users see it: transactions, trees, and the buffer manager.

use std::sync::Arc;

use lapis_blocks::block_log::{BlockLog, BlockLogError, Durability, Lsn};
use lapis_buffer::{LogError, WriteAheadLog};
use lapis_pmem::Domain;
use lapis_tree::StructureLog;

/// What a record of the log is.
pub(crate) mod kind {
    /// A change to the structure of a tree.
    pub(crate) const STRUCTURE: u8 = 1;
    /// Writes of a transaction that are not all.
    pub(crate) const PART: u8 = 2;
    /// The last writes of a transaction, which commit it.
    pub(crate) const COMMIT: u8 = 3;
}

/// The log of an engine.
#[derive(Debug)]
pub(crate) struct EngineLog<D: Domain>(BlockLog<D>);

impl<D: Domain> EngineLog<D> {
    pub(crate) fn new(log: BlockLog<D>) -> Arc<Self> {
        Arc::new(Self(log))
    }

    pub(crate) fn block_log(&self) -> &BlockLog<D> {
        &self.0
    }

    /// The number that no other log has.
    pub(crate) fn identity(&self) -> u64 {
        self.0.identity()
    }

    /// Whether there is a transaction in it, or was.
    pub(crate) fn has_transactions(&self) -> Result<bool, BlockLogError> {
        let start = self.0.start();
        if start.number() > 0 {
            return Ok(true);
        }
        let mut reader = self.0.read_from(start)?;
        while let Some(record) = reader.next_record()? {
            if record.kind == kind::COMMIT {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes that can be appended before the log has to be cut.
    pub(crate) fn free_bytes(&self) -> u64 {
        let used = self.0.end().number().saturating_sub(self.0.start().number());
        self.0.capacity_bytes().saturating_sub(used)
    }

    /// Whether the record at `lsn` is durable.
    pub(crate) fn is_durable(&self, lsn: u64) -> bool {
        self.0.durable().number() > lsn
    }

    /// Waits until the record at `lsn` is durable; 0 is none.
    pub(crate) fn wait_for(&self, lsn: u64) -> Result<(), BlockLogError> {
        if lsn > 0 && !self.is_durable(lsn) {
            self.0.commit(Lsn::from_number(lsn), Durability::Immediate)?;
        }
        Ok(())
    }
}

impl<D: Domain> WriteAheadLog for EngineLog<D> {
    fn flushed_lsn(&self) -> u64 {
        // Batches end with records, so what begins before the end of the durable ones is durable whole.
        self.0.durable().number().saturating_sub(1)
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        self.wait_for(lsn).map_err(|error| LogError { reason: error.to_string() })
    }
}

impl<D: Domain> StructureLog for EngineLog<D> {
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError> {
        let appended = self.0.append(kind::STRUCTURE, parts);
        appended.map(Lsn::number).map_err(|error| LogError { reason: error.to_string() })
    }
}
