//! The capability table: what each structure can do and what a steady-state insert costs.

use lapis_pmem::Hardware;

use crate::IndexKind;
use crate::declaration::{Declaration, IndexFamily, IndexOf, InsertCost};
use crate::index::{Capabilities, Index};
use crate::key::IndexKey;
use crate::key::KeyKind;

/// A row of the capability table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CapabilityRow {
    /// The structure.
    pub kind: IndexKind,
    /// Its name as the field writes it.
    pub title: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// What it can do.
    #[serde(flatten)]
    pub capabilities: Capabilities,
    /// The kinds of keys it takes.
    pub keys: [&'static str; 2],
    /// [`Declaration::insert_u64`].
    pub insert_u64: Option<InsertCost>,
    /// [`Declaration::insert_bytes`].
    pub insert_bytes: Option<InsertCost>,
}

/// The rows of all structures, in the order of [`IndexKind::ALL`]. The conformance suite verifies
/// the costs by counting.
pub fn capability_table() -> Vec<CapabilityRow> {
    IndexKind::ALL.map(|kind| with_index!(kind, |F| row::<F>())).into()
}

fn row<F: IndexFamily>() -> CapabilityRow {
    let &Declaration { title, paper, insert_u64, insert_bytes, .. } = F::KIND.declaration();
    CapabilityRow {
        kind: F::KIND,
        title,
        paper,
        capabilities: IndexOf::<F, Hardware, u64>::CAPABILITIES,
        keys: [key_name::<u64>(), key_name::<[u8]>()],
        insert_u64,
        insert_bytes,
    }
}

fn key_name<K: IndexKey + ?Sized>() -> &'static str {
    match K::KIND {
        KeyKind::Fixed8 => "u64",
        KeyKind::Bytes => "bytes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_of_its_kind_with_either_keys_and_has_an_order_if_it_says_so() {
        fn verify<F: IndexFamily>(kind: IndexKind, row: &CapabilityRow) {
            let strings = IndexOf::<F, Hardware, [u8]>::CAPABILITIES;
            assert_eq!(IndexOf::<F, Hardware, u64>::KIND, kind);
            assert_eq!(IndexOf::<F, Hardware, [u8]>::KIND, kind);
            assert_eq!((row.kind, row.capabilities.ordered), (kind, kind.is_ordered()));
            assert_eq!(strings.ordered, kind.is_ordered());
        }
        for (kind, row) in IndexKind::ALL.into_iter().zip(&capability_table()) {
            with_index!(kind, |F| verify::<F>(kind, row));
        }
    }
}
