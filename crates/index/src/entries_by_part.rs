//! Visiting the entries of an index by parts ([`lapis_pmem::parts`]).

use std::ops::ControlFlow;

use lapis_pmem::parts::{PartEnds, PartName};

/// Visits the entries of an index, of which it may know some parts.
///
/// The index tells of each part that it comes to: it asks whether the part is known, and then either
/// passes it over or begins it, visits what is in it, and ends it.
pub trait EntriesByPart<K: ?Sized> {
    /// The ends of the part called `name`, if the same entries would be visited in it again.
    fn known(&mut self, name: PartName) -> Option<PartEnds>;

    /// Takes the entries of that part, which is known, for visited.
    fn pass(&mut self, name: PartName) -> ControlFlow<()>;

    /// The entries visited from here on are those of this part.
    fn begin(&mut self, name: PartName);

    /// The part begun last ends here. Without `ends` nothing is known of it.
    fn end(&mut self, ends: Option<PartEnds>);

    /// An entry.
    fn entry(&mut self, key: &K, value: u64) -> ControlFlow<()>;
}
