//! The capability table: what each structure can do and what a steady-state insert costs.

use lapis_pmem::Hardware;

use crate::art_cow::ArtCow;
use crate::fast_fair::FastFair;
use crate::fp_tree::FpTree;
use crate::index::{Capabilities, Index};
use crate::key::IndexKey;
use crate::nv_tree::NvTree;
use crate::p_clht::PClht;
use crate::root::{IndexKind, KeyKind};
use crate::wb_tree::{WbTree, WbTreeSlot};
use crate::woart::Woart;
use crate::wort::Wort;

/// What most inserts cost: those that find room where they are and reorganise nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct InsertCost {
    /// Lines flushed, those of a byte-string key included.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
}

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
    /// Cost of inserting an 8-byte integer key; none if it depends on where the key falls.
    pub insert_u64: Option<InsertCost>,
    /// Cost of inserting a byte-string key whose block fits a line; none if it depends on where
    /// the key falls.
    pub insert_bytes: Option<InsertCost>,
}

/// The rows of all structures, in the order of [`IndexKind::ALL`]. The conformance suite verifies
/// the costs by counting.
pub fn capability_table() -> Vec<CapabilityRow> {
    vec![
        row::<Wort<Hardware, u64>, Wort<Hardware, [u8]>>(
            "WORT",
            "Lee et al., FAST 2017",
            cost(2, 2),
            cost(2, 2),
        ),
        row::<FastFair<Hardware, u64>, FastFair<Hardware, [u8]>>(
            "FAST & FAIR",
            "Hwang et al., FAST 2018",
            None,
            None,
        ),
        row::<PClht<Hardware, u64>, PClht<Hardware, [u8]>>(
            "P-CLHT",
            "Lee et al., SOSP 2019",
            cost(1, 1),
            cost(2, 2),
        ),
        row::<Woart<Hardware, u64>, Woart<Hardware, [u8]>>(
            "WOART",
            "Lee et al., FAST 2017",
            cost(3, 2),
            cost(3, 2),
        ),
        row::<ArtCow<Hardware, u64>, ArtCow<Hardware, [u8]>>(
            "ART+CoW",
            "Lee et al., FAST 2017",
            cost(5, 2),
            cost(5, 2),
        ),
        row::<WbTree<Hardware, u64>, WbTree<Hardware, [u8]>>(
            "wB+-Tree",
            "Chen and Jin, PVLDB 2015",
            cost(4, 3),
            cost(5, 3),
        ),
        row::<WbTreeSlot<Hardware, u64>, WbTreeSlot<Hardware, [u8]>>(
            "wB+-Tree, slots only",
            "Chen and Jin, PVLDB 2015",
            cost(2, 2),
            None,
        ),
        row::<NvTree<Hardware, u64>, NvTree<Hardware, [u8]>>(
            "NV-Tree",
            "Yang et al., FAST 2015",
            cost(2, 2),
            cost(3, 2),
        ),
        row::<FpTree<Hardware, u64>, FpTree<Hardware, [u8]>>(
            "FPTree",
            "Oukid et al., SIGMOD 2016",
            cost(2, 2),
            cost(3, 2),
        ),
    ]
}

const fn cost(flushed_lines: u64, fences: u64) -> Option<InsertCost> {
    Some(InsertCost { flushed_lines, fences })
}

fn row<Numbers: Index<Hardware, u64>, Strings: Index<Hardware, [u8]>>(
    title: &'static str,
    paper: &'static str,
    insert_u64: Option<InsertCost>,
    insert_bytes: Option<InsertCost>,
) -> CapabilityRow {
    const { assert!(Numbers::KIND as u32 == Strings::KIND as u32) };
    CapabilityRow {
        kind: Numbers::KIND,
        title,
        paper,
        capabilities: Numbers::CAPABILITIES,
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
    fn rows_come_in_the_order_of_kinds() {
        let rows = capability_table();
        assert!(rows.is_sorted_by_key(|row| IndexKind::ALL.iter().position(|&k| k == row.kind)));
        assert_eq!(rows.len(), IndexKind::ALL.len());
        assert!(rows.iter().any(|row| row.kind.name() == "p-clht" && !row.capabilities.ordered));
    }
}
