//! Errors that the log on a block device commits on purpose when a machine asks it to (see
//! [`Observed::commits`](lapis_pmem::Observed::commits)).

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the log on a block device, and operations in which all show.
    CATALOGUE: 60 operations;

    /// Those who wait for a sync are told when the batch is written, before the device has flushed.
    ACKNOWLEDGED_BEFORE_SYNC = "block-log/acknowledged-before-sync" =>
        at("blocks/src/block_log/commit.rs, write")
        .among_workers();

    /// A batch is written and the device's cache is not flushed.
    MISSING_FLUSH = "block-log/missing-flush" => at("blocks/src/block_log/commit.rs, write");

    /// A write that failed is taken for one that did not.
    IGNORED_WRITE_ERROR = "block-log/ignored-write-error" =>
        at("blocks/src/block_log/commit.rs, write")
        .in_runs(&["block-log:failing-writes"]);

    /// Records that were dropped are written over before the header that drops them is durable.
    REUSED_BEFORE_TRUNCATION = "block-log/reused-before-truncation" =>
        at("blocks/src/block_log/mod.rs, truncate_before");

    /// Recovery takes a record without looking at its checksum.
    TORN_RECORD_TRUSTED = "block-log/torn-record-trusted" =>
        at("blocks/src/block_log/window.rs, entry_at");

    /// Recovery takes a record of an earlier round of the ring.
    STALE_RECORD_ACCEPTED = "block-log/stale-record-accepted" =>
        at("blocks/src/block_log/window.rs, entry_at");

    /// What an unfinished batch left behind the end is still there when the log is opened: records follow what is appended
    /// next, if that ends where they begin, and it makes parts of one whole, if it has the bytes that they lack.
    TAIL_LEFT = "block-log/tail-left" => at("blocks/src/block_log/recovery.rs, finish");

    /// Of what an unfinished batch left behind the end only as much goes as half a batch has.
    HALF_OF_TAIL_LEFT = "block-log/half-of-tail-left" => at("blocks/src/block_log/recovery.rs, finish");

    /// The header says that the ring is longer before the device is.
    LENGTH_BEFORE_STORAGE = "block-log/length-before-storage" =>
        at("blocks/src/block_log/length.rs, grow_beyond")
        .in_runs(&["block-log:growing"]);

    /// The header goes on saying that the log is closed when there is more.
    CLOSED_FOR_GOOD = "block-log/closed-for-good" => at("blocks/src/block_log/length.rs, reopen");

    /// The header says that the log ends where it was durable when it was closed, although more was appended meanwhile.
    CLOSED_WITH_MORE = "block-log/closed-with-more" => at("blocks/src/block_log/length.rs, close")
        .among_workers();

    /// The last block of a batch is not kept for the next one, which writes zeroes over its records.
    LAST_BLOCK_DROPPED = "block-log/last-block-dropped" => at("blocks/src/block_log/batch.rs, close");
}
