//! Segments: where they come from and where they go.

use lapis_pmem::{Committed, Domain, EXTENT_BYTES, LINE_BYTES, Pool};

use crate::log::LogError;
use crate::ring_log::Ring;
use crate::spacing::Spacing;

use super::layout::{SEGMENT_HEADER_BYTES, Segment, SegmentRef, address};
use super::mutants;

/// A segment that is zero, durably, and that nothing in the pool refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    pub(super) segment: SegmentRef,
    /// The proof that nothing durable refers to it.
    pub(super) unlinked: Committed,
}

/// Allocates a segment that holds an entry of `entry_bytes`: an ordinary one if that suffices.
/// One fence, and those of the allocator.
pub(super) fn allocate<D: Domain>(
    pool: &Pool<D>,
    ordinary_bytes: usize,
    entry_bytes: usize,
) -> Result<SegmentRef, LogError> {
    let needed_bytes = SEGMENT_HEADER_BYTES + entry_bytes;
    let (block_bytes, chunks) = if needed_bytes <= ordinary_bytes {
        (ordinary_bytes, 0)
    } else {
        let chunks = needed_bytes.div_ceil(EXTENT_BYTES);
        (chunks * EXTENT_BYTES, chunks)
    };
    let block = pool.allocate_with_tail::<Segment>(block_bytes - SEGMENT_HEADER_BYTES)?;
    // I3: an allocated block holds anything.
    let zeroed = {
        let _mutant = pool.domain().omitting(mutants::NO_ZEROING);
        block.zero_nontemporal()
    };
    let block = pool.fence(zeroed);
    let segment = SegmentRef::new(block.link(), chunks);
    debug_assert!(segment.link().offset().is_multiple_of(LINE_BYTES as u64));
    // It is durable, and from here on the log keeps account of it: as a spare, or linked by a
    // word that holds its size as well, which `Slot::publish` does not know of.
    std::mem::forget(block);
    Ok(segment)
}

/// Zeroes a whole segment past the caches; the caller's fence makes it durable.
///
/// # Safety
/// The segment is the caller's alone.
#[track_caller]
pub(super) unsafe fn zero<D: Domain>(pool: &Pool<D>, segment: SegmentRef, ordinary_bytes: usize) {
    let start = address(pool, segment.link().offset());
    // SAFETY: a segment is a block of that size; as the caller vouches.
    unsafe { pool.domain().zero_nontemporal(start, segment.block_bytes(ordinary_bytes)) };
}

/// The data of a segment, as a ring that nobody goes round.
pub(super) fn as_ring<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    data_bytes: usize,
    spacing: Spacing,
) -> Ring<'_, D> {
    Ring { pool, data: segment.pool_offset(0), capacity: data_bytes as u64, spacing }
}

/// Gives a segment that nothing refers to back to the pool.
pub(super) fn free<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    ordinary_bytes: usize,
    unlinked: Committed,
) {
    pool.free_unshared(segment.link(), segment.block_bytes(ordinary_bytes), unlinked);
}
