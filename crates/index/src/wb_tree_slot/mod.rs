//! The wB+-Tree whose nodes have slots only (Chen and Jin, PVLDB 2015): `wb_tree` says what both have
//! in common, and where they differ.

pub mod mutants;

use lapis_pmem::Optimisations;

use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::IndexOptions;
use crate::wb_tree::{SlotsOnly, WbTree};

/// The wB+-Tree whose nodes have seven entries and a slot array in their control word, and no
/// bitmap.
pub type WbTreeSlot<D, K> = WbTree<D, K, SlotsOnly>;

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "wb-tree-slot",
    title: "wB+-Tree, slots only",
    paper: "Chen and Jin, PVLDB 2015",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: None,
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/wb_tree", "!index/src/wb_tree/bitmap"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("wb-tree-slot:u64"),
            Run::byte_strings("wb-tree-slot:bytes"),
            Run::drained("wb-tree-slot:drained"),
        ],
        histories: &[
            ("wb-tree-slot:merging", History::MergedNode(7)),
            ("wb-tree-slot:giving-way", History::RootGivenWay(7)),
        ],
        persist_points: (200, 2),
        rate_operations: 200,
    },
};
