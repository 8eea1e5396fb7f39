//! The mutants that the wB+-Tree has with either kind of nodes: those of splits, merges and their log.

use lapis_pmem::Mutant;

use super::{BUG_CLASS, MutantEntry};

pub(super) const fn log_truncated_early(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "The redo log is emptied before what it says has been done durably.",
        published: BUG_CLASS,
        place: "index/src/wb_tree/redo_log.rs, redo",
        subjects: &[],
    }
}

pub(super) const fn change_before_log_commit(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "The nodes of a split or merge are changed before the redo log is complete.",
        published: BUG_CLASS,
        place: "index/src/wb_tree/redo_log.rs, carry_out",
        subjects: &[],
    }
}

pub(super) const fn log_not_redone(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "A complete redo log is emptied when the index is opened, without being redone.",
        published: BUG_CLASS,
        place: "index/src/wb_tree/redo_log.rs, recover",
        subjects: &[],
    }
}

pub(super) const fn missing_sibling_flush(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "The new node of a split is not flushed before the log that names it is complete.",
        published: BUG_CLASS,
        place: "index/src/wb_tree/restructure.rs, build",
        subjects: &[],
    }
}

pub(super) const fn merged_node_not_disowned(
    mutant: Mutant,
    subjects: &'static [&'static str],
) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "An inner node that a merge has taken out of the tree still looks current to a reader \
               who has read it, although a leaf below it has been split since.",
        published: BUG_CLASS,
        place: "index/src/wb_tree/restructure.rs, merge",
        subjects,
    }
}
