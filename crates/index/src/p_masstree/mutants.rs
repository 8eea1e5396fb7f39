//! Errors that P-Masstree can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::p_art;

mutants! {
    /// The mutants of P-Masstree, and operations in which all show.
    CATALOGUE: 150 operations;

    MISSING_LEAF_FLUSH = "p-masstree/missing-leaf-flush" =>
        like(p_art::CATALOGUE.entry(p_art::MISSING_LEAF_FLUSH));

    /// An entry is not flushed before the permutation makes it count.
    // M2.
    MISSING_ENTRY_FLUSH = "p-masstree/missing-entry-flush" =>
        at("index/src/p_masstree/change.rs, add");

    /// A new node, be it the right half of another or a layer, is not flushed before a word leads to it.
    // M1.
    MISSING_NODE_FLUSH = "p-masstree/missing-node-flush" =>
        at("index/src/p_masstree/change.rs, make_node");

    /// A permutation or a word refers to what is new without a fence after its flush.
    // M1, M2.
    LINK_BEFORE_FENCE = "p-masstree/link-before-fence" =>
        at("index/src/p_masstree/change.rs, fence_new");

    /// A node that is split loses its upper half before the new node can be reached.
    // M4.
    LEFT_NODE_TRUNCATED_FIRST = "p-masstree/left-node-truncated-first" =>
        at("index/src/p_masstree/split.rs, split");

    /// Who first takes the lock of an interior node after a crash leaves the children beyond its bound in it.
    // M4.
    CHILDREN_BEYOND_BOUND = "p-masstree/children-beyond-bound" =>
        at("index/src/p_masstree/locks.rs, drop_beyond_bound")
        .in_runs(&["p-masstree:descending"]);

    /// Who first takes the lock of a node after a crash takes out what is beyond its bound, and does not flush that before
    /// the slots are used again.
    // M4.
    UNFLUSHED_TRUNCATION = "p-masstree/unflushed-truncation" =>
        at("index/src/p_masstree/locks.rs, drop_beyond_bound")
        .in_runs(&["p-masstree:descending"]);

    /// Where two nodes are joined, the right one leaves the parent before the left one has its entries.
    // M4.
    RIGHT_NODE_UNLINKED_FIRST = "p-masstree/right-node-unlinked-first" =>
        at("index/src/p_masstree/merge.rs, join")
        .in_runs(&["p-masstree:drained"]);

    /// A node is taken to begin where the one above it does: who goes backward from it goes too far.
    PARENTS_LOWER_BOUND = "p-masstree/parents-lower-bound" =>
        at("index/src/p_masstree/node.rs, bounds_below");

    /// A reader does not look once more whether the slot that it has read an answer in is still that of its key.
    // M5.
    ANSWER_UNCHECKED = "p-masstree/answer-unchecked" =>
        at("index/src/p_masstree/read.rs, answer_at")
        .in_runs(&["p-masstree:used-slot"]);

    PERSISTED_LOCK = "p-masstree/persisted-lock" =>
        like(p_art::CATALOGUE.entry(p_art::PERSISTED_LOCK));

    /// The unlinking of a node is not counted: a writer that found the node before changes it when it can no
    /// longer be reached.
    // M6.
    UNCOUNTED_UNLINKING = "p-masstree/uncounted-unlinking" =>
        at("index/src/p_masstree/locks.rs, note_unlinking")
        .in_runs(&["p-masstree:joining"]);

    /// The unlinking of an interior node is not counted: a reader that has read it goes on to a child, and misses what
    /// that has given to another node since.
    // M6.
    INTERIOR_NODE_UNCOUNTED = "p-masstree/interior-node-uncounted" =>
        at("index/src/p_masstree/merge.rs, join")
        .in_runs(&["p-masstree:passing"]);

    /// A node that has taken in another one's entries is given back as if it had not changed: a writer that had read it
    /// before changes it by what it has read.
    // M6.
    JOINING_UNNOTED = "p-masstree/joining-unnoted" =>
        at("index/src/p_masstree/merge.rs, join")
        .in_runs(&["p-masstree:taking-in"]);

    /// The node above one that has been split is given back as if it had not changed: a writer that had read it before puts
    /// another entry into the same slot.
    // M6.
    SPLIT_UNNOTED = "p-masstree/split-unnoted" =>
        at("index/src/p_masstree/split.rs, make_room")
        .in_runs(&["p-masstree:beside"]);

    NEW_NODE_UNLOCKED = "p-masstree/new-node-unlocked" =>
        like(p_art::CATALOGUE.entry(p_art::NEW_NODE_UNLOCKED))
        .in_runs(&["p-masstree:splitting"]);

    STALE_DECISION = "p-masstree/stale-decision" =>
        like(p_art::CATALOGUE.entry(p_art::STALE_DECISION));

    UNPERSISTED_ANSWER = "p-masstree/unpersisted-answer" =>
        like(p_art::CATALOGUE.entry(p_art::UNPERSISTED_ANSWER));

    /// A look-up that goes on in turns with others says what it has seen of others' changes without persisting it.
    UNPERSISTED_IN_TURNS = "p-masstree/unpersisted-in-turns" =>
        at("index/src/p_masstree/read.rs, lookup_in_turns")
        .among_workers();
}
