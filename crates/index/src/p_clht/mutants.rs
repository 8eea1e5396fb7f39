//! Errors that P-CLHT can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of P-CLHT, and operations in which all show.
    CATALOGUE: 200 operations;

    /// The pointer to a new overflow bucket is not persisted.
    // I4.
    UNFLUSHED_NEXT_POINTER = "p-clht/unflushed-next-pointer" =>
        at("index/src/p_clht/write.rs, add")
        .published("Witcher (Fu et al., SOSP 2021), bug 30");

    /// A larger table takes the place of the old one while the flushes of its contents are not
    /// complete.
    // I1.
    SWAP_BEFORE_FLUSH = "p-clht/swap-before-flush" => at("index/src/p_clht/resize.rs, grow");

    /// The buckets of a larger table are written and never flushed.
    // I1.
    UNFLUSHED_NEW_TABLE = "p-clht/unflushed-new-table" =>
        at("index/src/hash_table/writer.rs, write_out");

    /// A bucket's lock that a crash has left locked stays locked.
    // I6.
    PERSISTED_LOCK = "p-clht/persisted-lock" =>
        at("index/src/p_clht/mod.rs, open")
        .published("PMRace (Chen et al., ASPLOS 2022)");

    /// The old table is freed although the pointer away from it is not durable: a crash brings it
    /// back, to be handed out and freed once more (what is free is not persistent here; in the
    /// published code it is a list of old tables).
    // I1.
    DOUBLE_FREE = "p-clht/double-free" =>
        at("index/src/p_clht/resize.rs, grow")
        .published("utsaslab/RECIPE, issue 24 (2023); the unpersisted pointer also PMRace (Chen et al., ASPLOS 2022)");

    /// Who finds the new table is not told that it is not durable yet, puts an entry into it, and acknowledges.
    // I1.
    GROWTH_NOT_ANNOUNCED = "p-clht/growth-not-announced" =>
        at("index/src/p_clht/resize.rs, grow")
        .published("PMRace (Chen et al., ASPLOS 2022)")
        .in_runs(&["p-clht:growing"]);

    /// A reader does not look once more whether the chain that it has read an answer in is still as it was.
    ANSWER_UNCHECKED = "p-clht/answer-unchecked" =>
        at("index/src/p_clht/read.rs, still")
        .in_runs(&["p-clht:used-chain"]);

    /// A reader does not look once more whether the table that it has found a chain in is still the table.
    TABLE_UNCHECKED = "p-clht/table-unchecked" =>
        at("index/src/p_clht/read.rs, still")
        .in_runs(&["p-clht:outgrown"]);

    /// A removal does not flush the slot that it empties.
    UNFLUSHED_REMOVE = "p-clht/unflushed-remove" => at("index/src/p_clht/write.rs, remove_key");

    /// The word that no longer refers to an empty overflow bucket is not persisted before the bucket is freed.
    UNFLUSHED_UNLINKING = "p-clht/unflushed-unlinking" =>
        at("index/src/p_clht/write.rs, remove_key")
        .in_runs(&["p-clht:drained"]);

    /// Who goes over all entries is given some of a bucket that is being changed without their being persisted.
    UNPERSISTED_WALK = "p-clht/unpersisted-walk" =>
        at("index/src/p_clht/read.rs, read_chain")
        .among_workers();
}
