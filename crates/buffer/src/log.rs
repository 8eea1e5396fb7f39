//! What the manager asks of a write-ahead log: that it is ahead.

use core::fmt::Debug;

/// A log that could not be made durable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log could not be made durable: {reason}")]
pub struct LogError {
    /// What went wrong.
    pub reason: String,
}

/// The log of the changes to pages. A page is written only when the log is durable up to its LSN, and a
/// page is free only when the log is durable up to the change that freed it.
pub trait WriteAheadLog: Debug + Send + Sync {
    /// The log is durable up to this change. Never goes back.
    fn flushed_lsn(&self) -> u64;

    /// Makes the log durable up to this change.
    ///
    /// # Errors
    /// [`LogError`].
    fn flush_to(&self, lsn: u64) -> Result<(), LogError>;
}

/// No log: every change counts as logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl WriteAheadLog for NoLog {
    fn flushed_lsn(&self) -> u64 {
        u64::MAX
    }

    fn flush_to(&self, _lsn: u64) -> Result<(), LogError> {
        Ok(())
    }
}
