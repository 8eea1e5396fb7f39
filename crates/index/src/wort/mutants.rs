//! Errors that WORT can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of WORT, and operations in which all show.
    CATALOGUE: 150 operations;

    /// A split shortens the prefix of the node that sinks before the new node above it is linked,
    /// and gives it its new depth only afterwards.
    // I8.
    HEADER_BEFORE_PARENT = "wort/header-before-parent" =>
        at("index/src/wort/change.rs, split_prefix")
        .published("Witcher (Fu et al., SOSP 2021), bug 2, of WOART's split");

    /// A new leaf is not flushed before a slot refers to it.
    // I1.
    MISSING_LEAF_FLUSH = "wort/missing-leaf-flush" => at("index/src/radix/handle.rs, make_leaf");

    /// The slot of a new leaf is stored without a fence after the leaf's flush.
    // I1.
    LINK_BEFORE_FENCE = "wort/link-before-fence" =>
        at("index/src/radix/change.rs, link_leaf")
        .published("Witcher (Fu et al., SOSP 2021), bugs 36 and 37, of P-HOT");

    /// The lock of a node that a split makes is not held until the word that refers to it is
    /// durable: another writer changes what is in the node, and acknowledges.
    // I6.
    NEW_NODE_UNLOCKED = "wort/new-node-unlocked" =>
        at("index/src/radix/change.rs, claims")
        .published("PMRace (Chen et al., ASPLOS 2022)")
        .in_runs(&["wort:splitting"]);

    /// The unlinking of a node is not counted: a writer that found the node before changes it when
    /// it can no longer be reached.
    // W2.
    UNCOUNTED_UNLINKING = "wort/uncounted-unlinking" =>
        at("index/src/radix/change.rs, replace_nodes")
        .in_runs(&["wort:unlinking"]);

    /// A writer that finds, with its locks taken, that the node goes with the leaf does not take that of the node above.
    // I6.
    UNCLAIMED_UNLINKING = "wort/unclaimed-unlinking" =>
        at("index/src/wort/change.rs, unlink_leaf")
        .in_runs(&["wort:thinning"]);

    /// A writer that has taken its locks does not look again at what it found without them.
    // I6.
    STALE_DECISION = "wort/stale-decision" => at("index/src/radix/change.rs").among_workers();

    /// A change that finds nothing to do says so without persisting what it has seen of others'
    /// changes.
    // I6.
    UNPERSISTED_ANSWER = "wort/unpersisted-answer" =>
        at("index/src/radix/handle.rs, answer")
        .among_workers();
}
