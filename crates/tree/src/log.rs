//! What a tree asks of the log.

use core::fmt::Debug;
use std::sync::Arc;

use lapis_buffer::LogError;

/// The log of changes to the structure of trees. See the [crate](crate) for what they hold.
pub trait StructureLog: Debug + Send + Sync {
    /// Appends a record whose contents are `parts` end to end, and tells its LSN, which is higher than
    /// those of all records that were appended before. The pages that it names are latched meanwhile, so
    /// this waits for no one who waits for pages.
    ///
    /// # Errors
    /// [`LogError`]: nothing was appended, and the tree stays as it is.
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError>;
}

impl<L: StructureLog + ?Sized> StructureLog for Arc<L> {
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError> {
        (**self).append(parts)
    }
}

/// No log: for trees in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStructureLog;

impl StructureLog for NoStructureLog {
    fn append(&self, _parts: &[&[u8]]) -> Result<u64, LogError> {
        Ok(0)
    }
}
