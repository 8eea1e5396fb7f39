//! Errors that P-ART can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::woart;
use crate::mutants::wort;

mutants! {
    /// The mutants of P-ART, and operations in which all show.
    CATALOGUE: 150 operations;

    HEADER_BEFORE_PARENT = "p-art/header-before-parent" =>
        like(woart::CATALOGUE.entry(woart::HEADER_BEFORE_PARENT));

    MISSING_LEAF_FLUSH = "p-art/missing-leaf-flush" =>
        like(woart::CATALOGUE.entry(woart::MISSING_LEAF_FLUSH));

    LINK_BEFORE_FENCE = "p-art/link-before-fence" =>
        like(woart::CATALOGUE.entry(woart::LINK_BEFORE_FENCE));

    MISSING_COPY_FLUSH = "p-art/missing-copy-flush" =>
        like(woart::CATALOGUE.entry(woart::MISSING_COPY_FLUSH));

    UNPERSISTED_WORD_ABOVE = "p-art/unpersisted-word-above" =>
        like(woart::CATALOGUE.entry(woart::UNPERSISTED_WORD_ABOVE))
        .in_runs(&["p-art:wide"]);

    SLOTS_BEFORE_CHILD = "p-art/slots-before-child" =>
        like(woart::CATALOGUE.entry(woart::SLOTS_BEFORE_CHILD));

    BITMAP_BEFORE_ENTRY = "p-art/bitmap-before-entry" =>
        like(woart::CATALOGUE.entry(woart::BITMAP_BEFORE_ENTRY));

    INDEX_BEFORE_CHILD = "p-art/index-before-child" =>
        like(woart::CATALOGUE.entry(woart::INDEX_BEFORE_CHILD));

    /// A node's lock that a crash has left locked stays locked.
    // I10.
    PERSISTED_LOCK = "p-art/persisted-lock" =>
        at("index/src/radix/node_locks.rs, generation")
        .published("PMRace (Chen et al., ASPLOS 2022), of P-CLHT");

    /// The lock of a node that has been unlinked is given back: a writer that found the node before
    /// changes it when it can no longer be reached.
    // I11.
    UNLINKED_NODE_UNLOCKED = "p-art/unlinked-node-unlocked" =>
        at("index/src/radix/change.rs, replace_nodes")
        .in_runs(&["p-art:unlinking"]);

    UNCLAIMED_UNLINKING = "p-art/unclaimed-unlinking" =>
        like(wort::CATALOGUE.entry(wort::UNCLAIMED_UNLINKING))
        .in_runs(&["p-art:thinning"]);

    /// A writer that replaces a node takes the lock of the node above, and does not look whether that still refers to it.
    // I11.
    UNCHECKED_ABOVE = "p-art/unchecked-above" =>
        at("index/src/p_art/change.rs, lock_above")
        .in_runs(&["p-art:put-between"]);

    /// A new node can be locked before the word that refers to it is durable: another writer changes
    /// what is in the node, and acknowledges.
    // I12.
    NEW_NODE_UNLOCKED = "p-art/new-node-unlocked" =>
        at("index/src/radix/node_locks.rs, word_of_new")
        .published("PMRace (Chen et al., ASPLOS 2022)")
        .in_runs(&["p-art:splitting"]);

    STALE_DECISION = "p-art/stale-decision" => like(wort::CATALOGUE.entry(wort::STALE_DECISION));

    UNPERSISTED_ANSWER = "p-art/unpersisted-answer" =>
        like(wort::CATALOGUE.entry(wort::UNPERSISTED_ANSWER));
}
