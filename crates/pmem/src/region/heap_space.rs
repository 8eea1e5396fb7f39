//! Address space for a region under Miri, which knows no mappings: a piece of the heap, all of it at once.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::EXTENT_BYTES;
use super::error::RegionError;

/// The most that a region can grow to.
const MOST_BYTES: usize = 32 << 20;
const ALIGN_BYTES: usize = super::HUGE_PAGE_BYTES;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN_BYTES).unwrap_or(Layout::new::<u8>())
}

/// As of the address space that there is otherwise, but at most [`MOST_BYTES`].
pub(super) fn reserve(
    bytes: usize,
    least_bytes: usize,
    _align: usize,
) -> Result<(NonNull<u8>, usize), RegionError> {
    if least_bytes > MOST_BYTES {
        return Err(RegionError::Full { capacity_bytes: MOST_BYTES });
    }
    let bytes = bytes.clamp(1, MOST_BYTES).next_multiple_of(EXTENT_BYTES);
    // SAFETY: of one byte at least.
    let base = NonNull::new(unsafe { alloc_zeroed(layout(bytes)) });
    base.map(|base| (base, bytes)).ok_or(RegionError::Full { capacity_bytes: 0 })
}

/// # Safety
/// `base` and `bytes` come from [`reserve`], and nothing refers into the range any more.
pub(super) unsafe fn unreserve(base: NonNull<u8>, bytes: usize) {
    // SAFETY: as the caller vouches.
    unsafe { dealloc(base.as_ptr(), layout(bytes)) };
}

/// Zeroes memory.
///
/// # Safety
/// The range lies within what [`reserve`] gave, and nobody uses it.
pub(super) unsafe fn map_zeroed(at: *mut u8, bytes: usize) -> Result<(), RegionError> {
    // SAFETY: as the caller vouches.
    unsafe { at.write_bytes(0, bytes) };
    Ok(())
}
