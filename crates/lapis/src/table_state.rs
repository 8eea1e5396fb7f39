//! An open table, as catalogue and engine share it.

use std::sync::atomic::{AtomicBool, Ordering};

use lapis_index::{AnyIndex, IndexKind};
use lapis_pmem::Domain;

use crate::error::Error;

/// An open table.
#[derive(Debug)]
pub(crate) struct TableState<D: Domain> {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) index: AnyIndex<D, [u8]>,
    pub(crate) dropped: AtomicBool,
}

impl<D: Domain> TableState<D> {
    pub(crate) fn kind(&self) -> IndexKind {
        self.index.kind().0
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.kind().is_ordered()
    }

    /// Refuses if the table has been dropped.
    pub(crate) fn check_not_dropped(&self) -> Result<(), Error> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::Dropped { name: self.name.clone() });
        }
        Ok(())
    }
}
