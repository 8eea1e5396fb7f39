//! Known errors of the engine, which it commits when the domain says so.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the engine, and operations in which all that one worker shows do.
    ENGINE: 60 operations;

    /// A commit is acknowledged before its record is durable.
    ACKNOWLEDGED_BEFORE_SYNC = "store/acknowledged-before-sync" =>
        at("engine/src/commit.rs, commit");

    /// A read on its own does not wait until what it answers with is durable.
    READ_BEFORE_DURABLE = "store/read-before-durable" =>
        at("engine/src/operations.rs, get_into")
        .in_runs(&["store:reading"]);

    /// A snapshot begins at a state that is not durable.
    SNAPSHOT_BEFORE_DURABLE = "store/snapshot-before-durable" =>
        at("engine/src/snapshot.rs, new")
        .in_runs(&["store:reading-all"]);

    /// A transaction that only reads ends before what it read is durable.
    READ_ONLY_BEFORE_DURABLE = "store/read-only-before-durable" =>
        at("engine/src/transaction.rs, commit")
        .in_runs(&["store:reading-in-transaction"]);

    /// A transaction commits although what it read has been written since.
    READS_NOT_VALIDATED = "store/reads-not-validated" =>
        at("engine/src/commit.rs, append")
        .among_workers();

    /// A checkpoint cuts the log before pages are written.
    CHECKPOINT_TOO_EARLY = "store/checkpoint-too-early" =>
        at("engine/src/checkpoint.rs, checkpoint");

    /// A checkpoint does not look whether transactions are still changing trees.
    CHECKPOINT_FORGETS_TRANSACTIONS = "store/checkpoint-forgets-transactions" =>
        at("engine/src/checkpoint.rs, cut")
        .among_workers();

    /// No room is kept in the log for logging again what is left of a transaction where the log is full.
    NO_ROOM_TO_LOG_AGAIN = "store/no-room-to-log-again" =>
        at("engine/src/checkpoint.rs, make_room")
        .in_runs(&["store:bulk"]);

    /// The chunks of a long value are not listed before they have a record.
    CHUNKS_NOT_LISTED = "store/chunks-not-listed" =>
        at("engine/src/value_writer.rs, begin_chunks");

    /// Recovery leaves out the records of transactions that are in the log in parts.
    PARTS_LOST = "store/parts-lost" =>
        at("engine/src/recovery.rs, replay");

    /// Recovery replays the parts of a transaction that are in the log without the record that commits it.
    UNFINISHED_REPLAYED = "store/unfinished-replayed" =>
        at("engine/src/recovery.rs, replay");

    /// What a transaction replaces is not kept for those who read an older state.
    VERSIONS_NOT_KEPT = "store/versions-not-kept" =>
        at("engine/src/commit.rs, apply_to_table")
        .among_workers();

    /// A commit goes to the log though there may be no room for the pages that it takes.
    ROOM_NOT_PROMISED = "store/room-not-promised" =>
        at("engine/src/room.rs, promise_room")
        .in_runs(&["store:full-disk"]);

    /// What grows takes the room that is kept for what makes some.
    RESERVE_GIVEN_AWAY = "store/reserve-given-away" =>
        at("engine/src/room.rs, promise_room")
        .in_runs(&["store:full-disk"]);

    /// A table that was loaded is not listed as one that is being loaded any more before it has its entry.
    LOAD_UNLISTED_EARLY = "store/load-unlisted-early" =>
        at("engine/src/load.rs, enter_loaded")
        .in_runs(&["store:bulk"]);

    /// A long value that a transaction has written and taken back stays listed until the next opening.
    TAKEN_BACK_VALUE_FORGOTTEN = "store/taken-back-value-forgotten" =>
        at("engine/src/transaction.rs, commit")
        .in_runs(&["store:taken-back"]);

    /// A commit does not look whether a table that it writes to has been dropped.
    DROPPED_TABLE_WRITTEN = "store/dropped-table-written" =>
        at("engine/src/commit.rs, append")
        .in_runs(&["store:taken-back"]);

    /// The log may be cut behind the first part of a transaction whose last one is yet to come.
    PARTS_NOT_KEPT = "store/parts-not-kept" =>
        at("engine/src/commit.rs, append_parts")
        .among_workers()
        .in_runs(&["store:in-parts"]);

    /// Nothing says of a store that a backup is being restored into it.
    RESTORE_NOT_MARKED = "store/restore-not-marked" =>
        at("engine/src/backup/restore.rs, restore")
        .in_runs(&["store:taken-back"]);

    /// A backup does not wait until the state that it has is durable.
    BACKUP_NOT_DURABLE = "store/backup-not-durable" =>
        at("engine/src/backup/mod.rs, backup")
        .in_runs(&["store:bulk"]);

    /// What has expired is taken away without looking whether it is still there.
    EXPIRY_NOT_VALIDATED = "store/expiry-not-validated" =>
        at("engine/src/expiry.rs, remove_expired_of")
        .among_workers();

    /// The record of a value that is written piece by piece is in the log before the last pieces are.
    STREAM_RECORD_EARLY = "store/stream-record-early" =>
        at("engine/src/value_writer.rs, finish")
        .in_runs(&["store:bulk"]);

    /// What only an older state has is let go of although somebody reads that.
    READERS_FORGOTTEN = "store/readers-forgotten" =>
        at("engine/src/order.rs, oldest_state")
        .among_workers();

    /// An index is changed before the transaction's record is durable.
    INDEX_BEFORE_LOG = "store/index-before-log" =>
        at("engine/src/commit.rs, commit_held")
        .in_runs(&["store:nvm-direct"]);
}
