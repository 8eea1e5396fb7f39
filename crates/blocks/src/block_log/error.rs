//! Why a log on a block device could not do what it was asked.

use std::sync::Arc;

use lapis_pmem::BlockError;

use super::record::Lsn;

/// Something in a log that no crash leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no record is at {at}, which was durable as {witness} shows")]
pub struct LogDamage {
    /// Where a record should be.
    pub at: Lsn,
    /// What shows that one was there: a later record, or a position that the header names.
    pub witness: Lsn,
}

/// Why a log could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockLogError {
    /// No log can be laid out so.
    #[error("{what}; choose another")]
    Options {
        /// What is wrong.
        what: &'static str,
    },
    /// The log would not fit.
    #[error("a log with these segments needs {needed_blocks} blocks and the device has {blocks}")]
    DeviceTooSmall {
        /// What the device holds.
        blocks: u64,
        /// What is needed.
        needed_blocks: u64,
    },
    /// The record is larger than the log takes.
    #[error("a log record of {bytes} bytes is larger than {largest}; write several")]
    RecordTooLarge {
        /// Bytes of its payload.
        bytes: usize,
        /// The most that one may have.
        largest: usize,
    },
    /// There is no room until the log is truncated.
    #[error("the log is full: {bytes} bytes were to be added and {free} are free; truncate it")]
    Full {
        /// Bytes of the payload.
        bytes: usize,
        /// Bytes that are free, of which records need some for themselves.
        free: u64,
    },
    /// No record with this position was appended.
    #[error("no record was appended at {asked}: the log ends at {end}")]
    BeyondEnd {
        /// The position asked for.
        asked: Lsn,
        /// Where the log ends.
        end: Lsn,
    },
    /// The log cannot be truncated or read there yet.
    #[error("the log is durable up to {durable} only, and {asked} is behind that; commit first")]
    NotDurable {
        /// The position asked for.
        asked: Lsn,
        /// The position before which all is durable.
        durable: Lsn,
    },
    /// The records there were dropped.
    #[error("the records before {start} were dropped, and with them {asked}")]
    Truncated {
        /// The position asked for.
        asked: Lsn,
        /// The position of the oldest one that is retained.
        start: Lsn,
    },
    /// No record begins there.
    #[error("no record begins at {asked}")]
    NotARecord {
        /// The position asked for.
        asked: Lsn,
    },
    /// There is no log on the device.
    #[error("there is no log on the device")]
    NotALog,
    /// Written by a newer Lapis.
    #[error("the log has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version this code reads.
        supported: u32,
    },
    /// Both copies of the header are damaged.
    #[error("the log's header is damaged in both of its copies")]
    DamagedHeader,
    /// The log holds what no crash leaves behind.
    #[error("the log is damaged: {0}")]
    Damaged(LogDamage),
    /// The device refused before anything was changed.
    #[error(transparent)]
    Device(Arc<BlockError>),
    /// A write or a sync failed. What was appended may or may not be durable, and no more will be:
    /// open the log again.
    #[error("the log could not be written ({0}); open it again and recover")]
    Failed(Arc<BlockError>),
}

impl From<BlockError> for BlockLogError {
    fn from(error: BlockError) -> Self {
        Self::Device(Arc::new(error))
    }
}
