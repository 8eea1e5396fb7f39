//! Errors that the PopLog can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the PopLog, and operations in which all show.
    CATALOGUE: 150 operations;

    /// New segments are zeroed in the caches only: what they held before shows after a crash.
    // I3.
    NO_ZEROING = "pop-log/no-zeroing" => at("blocks/src/pop_log/segment.rs, allocate");

    /// The count covers the entry's first line only, and so may persist before the payload of
    /// another line.
    COUNT_BEFORE_PAYLOAD = "pop-log/count-before-payload" =>
        at("blocks/src/pop_log/entry.rs, counted")
        .published("Witcher (Fu et al., SOSP 2021), bug 7, of Level Hashing");

    /// Opening a streamed log leaves what its last line holds out of the copy of the line in DRAM:
    /// the next append writes zeroes over it.
    LINE_FORGOTTEN = "pop-log/line-forgotten-at-open" =>
        at("blocks/src/pop_log/mod.rs, open")
        .in_runs(&["pop-log:streamed"]);

    /// A recycled segment is taken into use without a barrier after its zeroing.
    // I3.
    RECYCLE_WITHOUT_BARRIER = "pop-log/recycle-without-barrier" =>
        at("blocks/src/pop_log/retention.rs, recycle");
}
