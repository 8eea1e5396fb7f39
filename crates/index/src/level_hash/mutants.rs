//! Errors that level hashing can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of level hashing, and operations in which all show.
    CATALOGUE: 80 operations;

    /// The token of a slot is stored before what it makes count.
    // I2.
    TOKEN_BEFORE_SLOT = "level-hash/token-before-slot" =>
        at("index/src/level_hash/write.rs, fill");

    /// An entry that is twice because a crash has cut its movement short stays twice.
    // I3.
    HALF_DONE_MOVEMENT = "level-hash/half-done-movement" =>
        at("index/src/level_hash/movement.rs, complete_movement");

    /// An entry is copied while it is not durable which one that is.
    // I3.
    UNRECORDED_MOVEMENT = "level-hash/unrecorded-movement" =>
        at("index/src/level_hash/movement.rs, make_room");

    /// An entry leaves its slot while its copy is not durable.
    // I3.
    MOVED_BEFORE_COPIED = "level-hash/moved-before-copied" =>
        at("index/src/level_hash/movement.rs, make_room");

    /// An entry is put into a bucket of its second group, which is not locked.
    SECOND_UNLOCKED = "level-hash/second-unlocked" =>
        at("index/src/level_hash/write.rs, add").in_runs(&["level-hash:sharing"]);

    /// Another entry may be moved while it is not durable that the one before has left its slot.
    // I3.
    MOVING_UNLOCKED_EARLY = "level-hash/moving-unlocked-early" =>
        at("index/src/level_hash/write.rs, add").in_runs(&["level-hash:moving"]);

    /// A new top level is published without the bottom level that goes with it.
    // I1.
    TOP_WITHOUT_BOTTOM = "level-hash/top-without-bottom" =>
        at("index/src/level_hash/grow.rs, replace_top");

    /// A new top level takes its place while the flushes of its contents are not complete.
    // I1.
    SWAP_BEFORE_FLUSH = "level-hash/swap-before-flush" =>
        at("index/src/level_hash/grow.rs, replace");

    /// The buckets of a new top level are written and never flushed.
    // I1.
    UNFLUSHED_NEW_LEVEL = "level-hash/unflushed-new-level" =>
        at("index/src/hash_table/writer.rs, write_out");

    /// A removal does not flush the slot that it empties.
    UNFLUSHED_REMOVE = "level-hash/unflushed-remove" =>
        at("index/src/level_hash/write.rs, change_held");

    /// A group's lock that a crash has left locked stays locked.
    // I4.
    PERSISTED_LOCK = "level-hash/persisted-lock" => at("index/src/level_hash/mod.rs, open");

    /// A reader does not look once more whether the group that it has read an answer in is still as it was.
    ANSWER_UNCHECKED = "level-hash/answer-unchecked" =>
        at("index/src/level_hash/read.rs, try_look_up")
        .in_runs(&["level-hash:used-slot"]);

    /// An iteration does not look once more whether the bucket that it has read is still as it was.
    SCANNED_BUCKET_UNCHECKED = "level-hash/scanned-bucket-unchecked" =>
        at("index/src/level_hash/read.rs, read_bucket")
        .in_runs(&["level-hash:scanned-slot"]);
}
