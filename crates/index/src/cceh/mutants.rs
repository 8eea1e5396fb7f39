//! Errors that CCEH can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of CCEH, and operations in which all show.
    CATALOGUE: 60 operations;

    /// A change of the directory that a crash has cut short is left as it is.
    // I5.
    HALF_DONE_CHANGE = "cceh/half-done-change" =>
        at("index/src/cceh/directory.rs, complete_change")
        .published("Nam et al., FAST 2019, whose recovery goes by the depths of neighbours");

    /// A change that a crash has cut short is completed when the table is opened, and that is not flushed.
    // I5.
    UNFLUSHED_COMPLETION = "cceh/unflushed-completion" =>
        at("index/src/cceh/directory.rs, complete_change")
        .in_runs(&["cceh:u64"]);

    /// Entries of the directory are replaced while the record of that is not durable.
    // I5.
    UNRECORDED_CHANGE = "cceh/unrecorded-change" => at("index/src/cceh/directory.rs, record");

    /// The entries of the directory that a split or merge has replaced are not flushed.
    // I5.
    UNFLUSHED_ENTRIES = "cceh/unflushed-entries" => at("index/src/cceh/directory.rs, carry_out");

    /// Of the entries of the directory that a split or merge has replaced, those of one line are flushed.
    // I5.
    ENTRIES_FLUSHED_IN_PART = "cceh/entries-flushed-in-part" =>
        at("index/src/cceh/directory.rs, store_all").in_runs(&["cceh:wide"]);

    /// A directory of another size takes the place of the old one before it is durable.
    // I1.
    UNFLUSHED_DIRECTORY = "cceh/unflushed-directory" =>
        at("index/src/cceh/directory.rs, resize_directory");

    /// A new segment is written and never flushed.
    // I2.
    UNFLUSHED_SEGMENT = "cceh/unflushed-segment" => at("index/src/cceh/segment.rs, build");

    /// An insertion stores the key before the value.
    // I3.
    KEY_BEFORE_VALUE = "cceh/key-before-value" => at("index/src/cceh/write.rs, add");

    /// A removal does not flush the slot that it empties.
    UNFLUSHED_REMOVE = "cceh/unflushed-remove" => at("index/src/cceh/write.rs, remove_key");

    /// A segment's lock that a crash has left locked stays locked.
    // I6.
    PERSISTED_LOCK = "cceh/persisted-lock" => at("index/src/cceh/mod.rs, open");

    /// Of a new segment what lies behind its first KiB is written with ordinary stores, and not flushed.
    // I2.
    SEGMENT_FLUSHED_IN_PART = "cceh/segment-flushed-in-part" =>
        at("index/src/cceh/segment.rs, build")
        .in_runs(&["cceh:in-use"]);

    /// A reader does not look once more whether the slot that it has read an answer in is still that of its key.
    ANSWER_UNCHECKED = "cceh/answer-unchecked" =>
        at("index/src/cceh/read.rs, try_get")
        .in_runs(&["cceh:used-slot"]);

    /// A reader does not look once more whether the directory still leads to the segment that it has read an answer in.
    DIRECTORY_UNCHECKED = "cceh/directory-unchecked" =>
        at("index/src/cceh/read.rs, try_get")
        .in_runs(&["cceh:divided"]);

    /// An iteration does not look once more whether the line that it has read is still as it was.
    SCANNED_LINE_UNCHECKED = "cceh/scanned-line-unchecked" =>
        at("index/src/cceh/read.rs, read_segment")
        .in_runs(&["cceh:scanned-slot"]);

    /// An iteration does not look once more whether the directory still leads to the segment that it has read.
    SCANNED_SEGMENT_UNCHECKED = "cceh/scanned-segment-unchecked" =>
        at("index/src/cceh/read.rs, read_segment")
        .in_runs(&["cceh:scanned-divided"]);
}
