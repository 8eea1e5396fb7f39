//! What may go wrong with a tree, and what only has to be tried again.

use lapis_buffer::{
    BufferError, Interruption, LogError, PageNumber, Restart, SpaceError, TierError,
};

/// Why a tree cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A page cannot be had.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A change of the tree's structure could not be logged; nothing was changed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A page holds what no tree has written: its checksum is right and its contents are not.
    #[error("page {page} is damaged: {what}")]
    Damaged {
        /// The page.
        page: PageNumber,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Key and value are too long for a page.
    #[error("a record of {bytes} bytes is longer than the longest, {most}")]
    RecordTooLong {
        /// Bytes of key and value.
        bytes: usize,
        /// As many may be.
        most: usize,
    },
    /// A record of the log says nothing that a tree has done.
    #[error("a record of a tree's structure makes no sense: {what}")]
    BadRecord {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A tree that is to be loaded has something in it.
    #[error("only an empty tree can be loaded in bulk")]
    NotEmpty,
    /// Keys that are to be loaded do not ascend.
    #[error("the keys to load do not ascend")]
    NotAscending,
}

impl TreeError {
    /// Whether there is a page, and what it holds is not to be trusted.
    pub fn is_of_damaged_page(&self) -> bool {
        matches!(
            self,
            Self::Buffer(
                BufferError::Space(SpaceError::Page { .. })
                    | BufferError::Tier(TierError::Page { .. })
            )
        )
    }
}

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Somebody was faster.
    Restart,
    /// It failed.
    Failed(TreeError),
}

impl From<Restart> for Stop {
    fn from(_: Restart) -> Self {
        Self::Restart
    }
}

impl From<Interruption> for Stop {
    fn from(interruption: Interruption) -> Self {
        match interruption {
            Interruption::Restart(Restart) => Self::Restart,
            Interruption::Failed(error) => Self::Failed(error.into()),
        }
    }
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Self {
        Self::Failed(error)
    }
}

impl From<BufferError> for Stop {
    fn from(error: BufferError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Failed(error.into())
    }
}
