//! Why an index does not do what it is asked.

use lapis_pmem::{AllocError, RootError};

use crate::{IndexKind, MAX_KEY_BYTES};

/// Why an index operation failed. The index is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Byte-string keys have at least one byte.
    #[error("a key has at least one byte")]
    EmptyKey,
    /// Longer than [`MAX_KEY_BYTES`].
    #[error("a key of {bytes} bytes is longer than the longest, {MAX_KEY_BYTES}")]
    KeyTooLong {
        /// The key's length.
        bytes: usize,
    },
    /// No room for a node.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The name for the root cannot be had.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The root belongs to another structure or another kind of keys.
    #[error("this is not a {expected} index with such keys (its root says kind {found})")]
    WrongKind {
        /// What was to be opened.
        expected: IndexKind,
        /// What the root says.
        found: u32,
    },
    /// Written by a newer Lapis.
    #[error("the index has format version {found}; this Lapis reads up to {supported}")]
    NewerFormat {
        /// The version found.
        found: u32,
        /// The newest version this code reads.
        supported: u32,
    },
    /// Another handle of it is open, which is to be shared: locks are in the handle.
    #[error("the index is open already: its handle is to be shared")]
    InUse,
    /// An option has a value the structure cannot have.
    #[error("{what}")]
    BadOption {
        /// What is wrong with which option.
        what: String,
    },
    /// The bytes cannot be an index.
    #[error("the index is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
}
