//! Errors that P-BwTree can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::wort;

mutants! {
    /// The mutants of P-BwTree, and operations in which all show.
    CATALOGUE: 200 operations;

    /// A delta is not flushed before a word of the mapping table refers to it.
    // B6.
    MISSING_DELTA_FLUSH = "p-bwtree/missing-delta-flush" =>
        at("index/src/p_bwtree/change.rs, put_in_front");

    /// A word of the mapping table refers to a delta without a fence after its flush: the delta is
    /// published before it is durable.
    // B6.
    LINK_BEFORE_FENCE = "p-bwtree/link-before-fence" =>
        at("index/src/p_bwtree/change.rs, put_in_front");

    /// A base node is not flushed before a word of the mapping table refers to it.
    // B6.
    MISSING_BASE_FLUSH = "p-bwtree/missing-base-flush" =>
        at("index/src/p_bwtree/contents.rs, write");

    /// The word of a new node's id is not flushed before others can come by the id.
    // B6.
    MISSING_WORD_FLUSH = "p-bwtree/missing-word-flush" =>
        at("index/src/p_bwtree/restructure.rs, divide and grow");

    /// The level above gets to know a new node before it is durable that the old one is divided.
    // B7.
    POST_BEFORE_SPLIT = "p-bwtree/post-before-split" =>
        at("index/src/p_bwtree/restructure.rs, divide");

    /// The level above gets to know a node without a second look at whether it is there: another thread may have made it
    /// known, and merged it, meanwhile.
    // B4.
    KNOWN_LATE = "p-bwtree/known-late" => at("index/src/p_bwtree/restructure.rs, try_post")
        .in_runs(&["p-bwtree:taken-back"]);

    /// A chain is freed before the word is durable that refers to what takes its place.
    // B8.
    CHAIN_RETIRED_EARLY = "p-bwtree/chain-retired-early" =>
        at("index/src/p_bwtree/change.rs, replace");

    /// A node is merged into its left neighbour without being marked as removed: who comes upon it
    /// still changes it.
    // B4.
    MERGED_WITHOUT_REMOVAL = "p-bwtree/merged-without-removal" =>
        at("index/src/p_bwtree/merge.rs, step")
        .in_runs(&["p-bwtree:drained"]);

    UNPERSISTED_ANSWER = "p-bwtree/unpersisted-answer" =>
        like(wort::CATALOGUE.entry(wort::UNPERSISTED_ANSWER));
}
