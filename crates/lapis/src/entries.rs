//! Iterating over entries.

use lapis_engine::{Entry, Scan};
use lapis_pmem::Hardware;

use crate::error::Error;
use crate::kept::Kept;

/// The entries of a range at one state of the store, in the order of their keys, from both ends. Fetched as they are
/// asked for.
#[derive(Debug)]
pub struct Entries<'t>(Kept<Scan<'t, Hardware>>);

impl<'t> Entries<'t> {
    pub(crate) fn new(scan: Scan<'t, Hardware>) -> Self {
        Self(Kept::new(scan))
    }

    /// The next entry, in memory that these entries own: nothing is allocated for it.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Medium`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let table = lapis::Store::in_memory()?.create_table("t")?;
    /// table.put(b"key", b"value")?;
    /// let mut entries = table.iter()?;
    /// while let Some((key, value)) = entries.next_entry()? {
    ///     assert_eq!((key, value), (&b"key"[..], &b"value"[..]));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, Error> {
        Ok(self.0.next_entry()?)
    }

    /// The next entry from the back, as [`Entries::next_entry`] gives it from the front.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Medium`].
    pub fn next_entry_back(&mut self) -> Result<Option<Entry<'_>>, Error> {
        Ok(self.0.next_entry_back()?)
    }
}

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
