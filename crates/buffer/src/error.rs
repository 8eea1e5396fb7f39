//! What may go wrong with a page, and what only has to be tried again.

use crate::latch::Restart;
use crate::log::LogError;
use crate::page::PageNumber;
use crate::placement::Placement;
use crate::space::SpaceError;
use crate::tier::TierError;

/// Why a page cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The SSD, or a page on it.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The tier of persistent memory, or a page in it.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The SSD has pages of which persistent memory may have later versions.
    #[error(
        "pages on this SSD may have later versions in persistent memory (tier {identity:#x}); open it \
         with that"
    )]
    TierMissing {
        /// The identity of the tier.
        identity: u64,
    },
    /// A placement without persistent memory, and a tier of it.
    #[error(
        "{placement} has no pages in persistent memory; choose basic-nvm, three-tier or spitfire"
    )]
    NoTier {
        /// What was asked for.
        placement: Placement,
    },
    /// The log could not be made durable, so pages with its changes cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No frame can be had: all hold pages that are latched, changed, or referred to.
    #[error("all {frames} frames are in use; give the pool more memory")]
    NoFrame {
        /// Frames there are.
        frames: usize,
    },
    /// So few frames are no pool.
    #[error("a pool of {frames} frames is too small; it needs {fewest}")]
    TooFewFrames {
        /// What was asked for.
        frames: usize,
        /// What is needed.
        fewest: usize,
    },
    /// There is no such page in memory, and nothing but memory; or it was freed, and what PM has of it is nobody's.
    #[error("page {number} is not in use")]
    NotInUse {
        /// The page.
        number: PageNumber,
    },
    /// A reference leads to no page.
    #[error("a page refers to {word:#x}, which is no page")]
    BadReference {
        /// What was found.
        word: u64,
    },
    /// A page is to be freed to which its parent still refers.
    #[error("page {number} is to be freed while its parent refers to it")]
    StillReferredTo {
        /// The page.
        number: PageNumber,
    },
}

impl BufferError {
    /// Whether there is no page of the number: it was freed, or never given out.
    pub fn is_not_in_use(&self) -> bool {
        matches!(self, Self::NotInUse { .. } | Self::Space(SpaceError::NotInUse { .. }))
    }
}

/// Why an attempt came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Interruption {
    /// Somebody was faster: [`BufferManager::retry`](crate::BufferManager::retry) begins again.
    #[error(transparent)]
    Restart(#[from] Restart),
    /// It failed.
    #[error(transparent)]
    Failed(#[from] BufferError),
}

impl From<SpaceError> for Interruption {
    fn from(error: SpaceError) -> Self {
        Self::Failed(error.into())
    }
}
