//! Iterating over entries.

use lapis_engine::Scan;
use lapis_pmem::Hardware;

use crate::error::Error;

/// The entries of a range at one state of the store, in the order of their keys, from both ends. Fetched as they are
/// asked for.
#[derive(Debug)]
pub struct Entries<'t>(pub(crate) Scan<'t, Hardware>);

impl Iterator for Entries<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| Ok(entry?))
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|entry| Ok(entry?))
    }
}
