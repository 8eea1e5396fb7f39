//! Errors that the logs in a ring, and the leaves, commit on purpose when a machine asks them to (see
//! [`Observed::commits`](lapis_pmem::Observed::commits)): each is what an implementation that overlooks
//! one sentence of the thesis would do.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the classic log, and operations in which all show.
    CLASSIC_LOG: 150 operations;

    /// The footer is persisted together with the payload, for one barrier: it may persist first.
    CLASSIC_FOOTER_WITH_PAYLOAD = "classic-log/footer-with-payload" =>
        at("blocks/src/ring_log/append.rs, append_group");

    /// Truncated space is used again as it is: an old entry is taken for the next.
    CLASSIC_REUSE_WITHOUT_ZEROING = "classic-log/reuse-without-zeroing" =>
        at("blocks/src/ring_log/retention.rs, truncate");
}

mutants! {
    /// The mutants of the header log, and operations in which all show.
    HEADER_LOG: 150 operations;

    /// The size is persisted together with the payload, for one barrier: it may persist first.
    HEADER_SIZE_WITH_PAYLOAD = "header-log/size-with-payload" =>
        at("blocks/src/ring_log/append.rs, append_group");

    /// Recovery believes the first of the dancing size fields, not the greatest.
    HEADER_FIRST_SIZE_COUNTS = "header-log/first-size-counts" =>
        at("blocks/src/ring_log/recovery.rs, greatest_size")
        .in_runs(&["header-log:dancing", "header-log:streamed"]);
}

mutants! {
    /// The mutants of RAWL, and operations in which all show.
    RAWL: 150 operations;

    /// The polarity of validity bits does not flip when the ring is used again.
    RAWL_POLARITY_STAYS = "rawl/polarity-stays" => at("blocks/src/rawl.rs, polarity");

    /// Recovery leaves the blocks of a torn entry, which pass for blocks of the next.
    RAWL_TORN_TAIL_STAYS = "rawl/torn-tail-stays" => at("blocks/src/rawl.rs, clean");
}

mutants! {
    /// The mutants of the PopLog in a ring, and operations in which all show.
    POP_RING: 150 operations;

    /// Truncated space is used again as it is, old bits included.
    POP_RING_REUSE_WITHOUT_ZEROING = "pop-ring/reuse-without-zeroing" =>
        at("blocks/src/ring_log/retention.rs, truncate");

    /// Opening a streamed log leaves what its last line holds out of the copy of the line in DRAM:
    /// the next append writes zeroes over it.
    POP_RING_LINE_FORGOTTEN = "pop-ring/line-forgotten-at-open" =>
        at("blocks/src/ring_log/recovery.rs, line_at")
        .in_runs(&["pop-ring:streamed"]);

    /// Recovery leaves a torn entry, whose bits make up for missing bits of the next.
    POP_RING_TORN_TAIL_STAYS = "pop-ring/torn-tail-stays" => at("blocks/src/pop_ring.rs, clean");
}

mutants! {
    /// The mutants of the leaves, and operations in which all show.
    FP_LEAVES: 60 operations;

    /// The bit of a slot is flushed together with its pair and may persist before it.
    LEAVES_BIT_WITH_PAIR = "fp-leaves/bit-with-pair" => at("blocks/src/fp_leaves.rs, insert");

    /// The bit of a slot is stored before the fingerprint of its key.
    LEAVES_BIT_BEFORE_FINGERPRINT = "fp-leaves/bit-before-fingerprint" =>
        at("blocks/src/fp_leaves.rs, insert");
}
