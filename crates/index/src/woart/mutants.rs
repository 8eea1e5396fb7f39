//! Errors that WOART can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::wort;

mutants! {
    /// The mutants of WOART, and operations in which all show.
    CATALOGUE: 150 operations;

    /// A split shortens the prefix of the node that sinks before the new node above it is linked,
    /// and gives it its new depth only afterwards.
    // I8.
    HEADER_BEFORE_PARENT = "woart/header-before-parent" =>
        at("index/src/art/write.rs, split_prefix")
        .published("Witcher (Fu et al., SOSP 2021), bug 2, of WOART's split");

    /// A new leaf is not flushed before a word refers to it.
    // I1.
    MISSING_LEAF_FLUSH = "woart/missing-leaf-flush" => at("index/src/radix/handle.rs, make_leaf");

    /// A new leaf counts without a fence after its flush.
    // I1.
    LINK_BEFORE_FENCE = "woart/link-before-fence" => at("index/src/art/write.rs, add_to_node");

    /// The larger copy of a full node is not flushed before the word above refers to it.
    // I1.
    MISSING_COPY_FLUSH = "woart/missing-copy-flush" => at("index/src/art/write.rs, add_to_copy");

    /// A node that has become too large for what is left in it, or has one child left, is freed though
    /// the word above that no longer refers to it is not durable.
    // I7.
    UNPERSISTED_WORD_ABOVE = "woart/unpersisted-word-above" =>
        at("index/src/art/remove.rs")
        .in_runs(&["woart:wide"]);

    /// A Node4's keys and slots are stored before the child they lead to.
    // I9.
    SLOTS_BEFORE_CHILD = "woart/slots-before-child" => at("index/src/art/write.rs, add_to_node");

    /// A Node16's bitmap is stored before the key and the child that it makes count.
    // I9.
    BITMAP_BEFORE_ENTRY = "woart/bitmap-before-entry" => at("index/src/art/write.rs, add_to_node");

    /// A Node48's child index is stored before the child that it leads to.
    // I9.
    INDEX_BEFORE_CHILD = "woart/index-before-child" => at("index/src/art/write.rs, add_to_node");

    NEW_NODE_UNLOCKED = "woart/new-node-unlocked" =>
        like(wort::CATALOGUE.entry(wort::NEW_NODE_UNLOCKED))
        .in_runs(&["woart:splitting"]);

    UNCOUNTED_UNLINKING = "woart/uncounted-unlinking" =>
        like(wort::CATALOGUE.entry(wort::UNCOUNTED_UNLINKING))
        .in_runs(&["woart:unlinking"]);

    UNCLAIMED_UNLINKING = "woart/unclaimed-unlinking" =>
        like(wort::CATALOGUE.entry(wort::UNCLAIMED_UNLINKING))
        .in_runs(&["woart:thinning"]);

    STALE_DECISION = "woart/stale-decision" => like(wort::CATALOGUE.entry(wort::STALE_DECISION));

    UNPERSISTED_ANSWER = "woart/unpersisted-answer" =>
        like(wort::CATALOGUE.entry(wort::UNPERSISTED_ANSWER));
}
