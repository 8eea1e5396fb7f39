//! Errors that ART+CoW can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::woart;
use crate::mutants::wort;

mutants! {
    /// The mutants of ART+CoW, and operations in which all show.
    CATALOGUE: 150 operations;

    /// A split shortens the prefix of the node that sinks in place instead of in a copy.
    // I8.
    HEADER_IN_PLACE = "art-cow/header-in-place" => at("index/src/art/write.rs, split_prefix");

    MISSING_LEAF_FLUSH = "art-cow/missing-leaf-flush" =>
        like(woart::CATALOGUE.entry(woart::MISSING_LEAF_FLUSH));

    LINK_BEFORE_FENCE = "art-cow/link-before-fence" =>
        like(woart::CATALOGUE.entry(woart::LINK_BEFORE_FENCE));

    /// The copy of a node is not flushed before the word above refers to it.
    // I1.
    MISSING_COPY_FLUSH = "art-cow/missing-copy-flush" => at("index/src/art/write.rs, add_to_copy");

    UNPERSISTED_WORD_ABOVE = "art-cow/unpersisted-word-above" =>
        like(woart::CATALOGUE.entry(woart::UNPERSISTED_WORD_ABOVE))
        .in_runs(&["art-cow:wide"]);

    INDEX_BEFORE_CHILD = "art-cow/index-before-child" =>
        like(woart::CATALOGUE.entry(woart::INDEX_BEFORE_CHILD));

    NEW_NODE_UNLOCKED = "art-cow/new-node-unlocked" =>
        like(wort::CATALOGUE.entry(wort::NEW_NODE_UNLOCKED))
        .in_runs(&["art-cow:splitting"]);

    UNCOUNTED_UNLINKING = "art-cow/uncounted-unlinking" =>
        like(wort::CATALOGUE.entry(wort::UNCOUNTED_UNLINKING))
        .in_runs(&["art-cow:unlinking"]);

    STALE_DECISION = "art-cow/stale-decision" => like(wort::CATALOGUE.entry(wort::STALE_DECISION));

    UNPERSISTED_ANSWER = "art-cow/unpersisted-answer" =>
        like(wort::CATALOGUE.entry(wort::UNPERSISTED_ANSWER));
}
