//! Errors that the allocator can be told to commit.

use crate::mutants;

mutants! {
    /// The mutants of the allocator, and operations in which all show.
    CATALOGUE: 250 operations;

    /// A large block that was allocated before a crash and never linked is not found free again.
    LEAK_ON_CRASH = "allocator/leak-on-crash" =>
        at("pmem/src/allocator/audit.rs, reclaim")
        .published("PMRace (Chen et al., ASPLOS 2022), of P-CLHT's new table");

    /// The high-water mark is not persisted when it moves: after a crash, chunks beyond it are
    /// handed out again.
    // A3.
    DOUBLE_ALLOCATION_AFTER_CRASH = "allocator/double-allocation-after-crash" =>
        at("pmem/src/allocator/chunks.rs, take_fresh")
        .published("Witcher (Fu et al., SOSP 2021), bug 28, of P-BwTree");

    /// A file that has grown is claimed by the header before its size is durable: after a power cut it ends before
    /// what lies in it.
    // H5.
    SIZE_CLAIMED_EARLY = "allocator/size-claimed-early" =>
        at("pmem/src/allocator/chunks.rs, grow")
        .in_runs(&["allocator:growing"]);

    /// The descriptor of a run that is freed is zeroed and not flushed. When the run has been part of a larger one
    /// that was freed too, the old descriptor hides what follows.
    // A2.
    FREED_DESCRIPTOR_NOT_FLUSHED = "allocator/freed-descriptor-not-flushed" =>
        at("pmem/src/allocator/chunks.rs, free_run")
        .in_runs(&["allocator:runs"]);

    /// The bitmaps of the last clean shutdown are believed after a crash that came later.
    // A4.
    STALE_BITMAPS_BELIEVED = "allocator/stale-bitmaps-believed" =>
        at("pmem/src/pool/open.rs, open");

    /// What a process that died has stored, and has not made durable, is not written back when the pool is opened.
    // H6.
    NOT_WRITTEN_BACK = "allocator/not-written-back" =>
        at("pmem/src/pool/open.rs, open")
        .in_runs(&["allocator:file"]);

    /// The table of a further segment of chunks is not zeroed: what a device held there is taken for descriptors.
    // A2.
    TABLE_NOT_ZEROED = "allocator/table-not-zeroed" =>
        at("pmem/src/allocator/chunks.rs, take_fresh")
        .in_runs(&["allocator:two-tables"]);

    /// Blocks that were freed before their slab was read are not taken out of its bitmap at a clean shutdown.
    // A4.
    FREES_OF_UNREAD_SLABS_FORGOTTEN = "allocator/frees-of-unread-slabs-forgotten" =>
        at("pmem/src/allocator/mod.rs, save")
        .in_runs(&["allocator:runs"]);

    /// A clean shutdown after a crash from which nothing was reclaimed says that the saved bitmaps are valid.
    // A4.
    UNRECLAIMED_BITMAPS_VALID = "allocator/unreclaimed-bitmaps-valid" =>
        at("pmem/src/allocator/mod.rs, save");

    /// Chunks that no descriptor has are not noted as free when the descriptors are read.
    FREE_CHUNKS_UNNOTED = "allocator/free-chunks-unnoted" =>
        at("pmem/src/allocator/chunks.rs, discover");

    /// Blocks that wait for readers when the pool is shut down are not freed.
    RETIRED_FORGOTTEN = "allocator/retired-forgotten" =>
        at("pmem/src/pool/open.rs, shut_down");

    /// Blocks that wait for readers are taken for free by a reclaim.
    LIMBO_RECLAIMED = "allocator/limbo-reclaimed" =>
        at("pmem/src/allocator/audit.rs, reclaim");

    /// Blocks that were freed before their slab was known stay at hand when a reclaim has found them free: they are handed
    /// out twice.
    LOOSE_KEPT = "allocator/loose-kept" =>
        at("pmem/src/allocator/slabs.rs, forget")
        .in_runs(&["allocator:asking"]);

    /// A slab of which blocks were taken is no longer listed, although it has more.
    UNLISTED_EARLY = "allocator/unlisted-early" => at("pmem/src/allocator/slabs.rs, take");
}
