//! The mutants of the wB+-Tree whose nodes have slots only.

use lapis_index::mutants::wb_tree_slot as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry, wb_tree_log};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::MISSING_ENTRY_FLUSH,
            what: "A new entry is not flushed before the control word counts it.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/change.rs, add_by_slots",
            subjects: &[],
        },
        wb_tree_log::log_truncated_early(mutants::LOG_TRUNCATED_EARLY),
        wb_tree_log::change_before_log_commit(mutants::CHANGE_BEFORE_LOG_COMMIT),
        wb_tree_log::log_not_redone(mutants::LOG_NOT_REDONE),
        wb_tree_log::missing_sibling_flush(mutants::MISSING_SIBLING_FLUSH),
        wb_tree_log::merged_node_not_disowned(
            mutants::MERGED_NODE_NOT_DISOWNED,
            &["wb-tree-slot:merging"],
        ),
    ],
};
