//! Errors that P-HOT can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::p_art;

mutants! {
    /// The mutants of P-HOT, and operations in which all show.
    CATALOGUE: 150 operations;

    MISSING_LEAF_FLUSH = "p-hot/missing-leaf-flush" =>
        like(p_art::CATALOGUE.entry(p_art::MISSING_LEAF_FLUSH));

    /// A new node is not flushed before a word refers to it.
    // H4.
    MISSING_NODE_FLUSH = "p-hot/missing-node-flush" =>
        at("index/src/p_hot/rebuild.rs, make_node");

    /// A word refers to new nodes and leaves without a fence after their flushes.
    // H4.
    LINK_BEFORE_FENCE = "p-hot/link-before-fence" =>
        at("index/src/p_hot/rebuild.rs, fence_new");

    /// Where a full node is divided and its branch pulled up, one half takes its place first, and the node
    /// above gets the other half afterwards.
    // H4.
    PULL_UP_IN_TWO_STEPS = "p-hot/pull-up-in-two-steps" =>
        at("index/src/p_hot/rebuild.rs, overflow")
        .in_runs(&["p-hot:wide"]);

    PERSISTED_LOCK = "p-hot/persisted-lock" =>
        like(p_art::CATALOGUE.entry(p_art::PERSISTED_LOCK));

    /// The lock of a node that has been replaced is given back: a writer that found the node before changes
    /// it when it can no longer be reached.
    // H5.
    UNLINKED_NODE_UNLOCKED = "p-hot/unlinked-node-unlocked" =>
        at("index/src/p_hot/rebuild.rs, replace")
        .in_runs(&["p-hot:unlinking"]);

    /// A new node can be locked before the word that refers to it is durable: another writer changes
    /// what is in the node, and acknowledges.
    // H5.
    NEW_NODE_UNLOCKED = "p-hot/new-node-unlocked" =>
        at("index/src/radix/node_locks.rs, word_of_new")
        .published("PMRace (Chen et al., ASPLOS 2022)")
        .in_runs(&["p-hot:splitting"]);

    /// The word that leads to a node is not looked at under the lock of the node above: another writer may have put one
    /// between the two.
    // H5.
    ABOVE_UNCHECKED = "p-hot/above-unchecked" => at("index/src/p_hot/change.rs, lock_node")
        .in_runs(&["p-hot:put-between"]);

    STALE_DECISION = "p-hot/stale-decision" => like(p_art::CATALOGUE.entry(p_art::STALE_DECISION));

    UNPERSISTED_ANSWER = "p-hot/unpersisted-answer" =>
        like(p_art::CATALOGUE.entry(p_art::UNPERSISTED_ANSWER));
}
