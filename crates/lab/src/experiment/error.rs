//! Why an experiment could not be run, or what it found to be wrong.

use lapis_blocks::fp_leaves::FpLeavesError;
use lapis_blocks::in_place::InPlaceError;
use lapis_blocks::log::LogError;
use lapis_blocks::page::PageError;
use lapis_device::ProfileError;
use lapis_index::IndexError;
use lapis_pmem::{PoolError, RegionError, RootError};

/// Why an experiment could not be run, or what it found to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// An option has a value that makes no sense.
    #[error("{what}")]
    BadOption {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// What was read is not what was written: the structure has an error.
    #[error("{what}")]
    WrongAnswers {
        /// Which structure gave how many, and to what.
        what: String,
    },
    /// A store failed, or gave a wrong answer.
    #[error("{what}")]
    Store {
        /// Which, and how.
        what: String,
    },
    /// So many keys do not fit into the memory that is free.
    #[error(
        "{keys} keys need about {} MB and {} MB are available; {}",
        needed_bytes / 1_000_000,
        available_bytes / 1_000_000,
        if *keys_that_fit == 0 { "free some memory first".to_owned() }
        else { format!("use {keys_that_fit} or fewer") }
    )]
    TooLittleMemory {
        /// Keys asked for.
        keys: usize,
        /// What they need.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
        /// How many would fit.
        keys_that_fit: usize,
    },
    /// A file of keys cannot be read.
    #[error("{}: {why}", path.display())]
    KeyFile {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// There is no such device profile, or it is a bad one.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// An index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A store of pages failed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Cells that are updated in place failed.
    #[error(transparent)]
    Cells(#[from] InPlaceError),
    /// Leaves failed.
    #[error(transparent)]
    Leaves(#[from] FpLeavesError),
    /// There is no memory for it.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// There is no pool for it.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool did not take its root.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl ExperimentError {
    /// An option that makes no sense.
    pub(crate) fn bad_option(what: impl Into<String>) -> Self {
        Self::BadOption { what: what.into() }
    }

    /// Answers that are wrong.
    pub(crate) fn wrong(what: impl Into<String>) -> Self {
        Self::WrongAnswers { what: what.into() }
    }
}
