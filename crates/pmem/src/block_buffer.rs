//! Memory for whole blocks, aligned to a block so that a device can fill it directly.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Bytes in a block: the unit of transfers and of capacity.
pub const BLOCK_BYTES: usize = 4096;

/// Of so many blocks and more, the operating system provides the memory as it is used.
const BLOCKS_AS_USED: usize = 64;

/// Memory for a number of blocks, aligned to [`BLOCK_BYTES`]. Its address stays while it is moved.
pub struct BlockBuffer {
    allocated: NonNull<u8>,
    start: NonNull<u8>,
    blocks: usize,
}

// SAFETY: it owns plain bytes, which any thread may have.
unsafe impl Send for BlockBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for BlockBuffer {}

impl BlockBuffer {
    /// Memory for `blocks` blocks, zeroed.
    ///
    /// # Panics
    /// If that is more than the address space holds.
    pub fn zeroed(blocks: usize) -> Self {
        let Some(layout) = Self::layout(blocks) else {
            let start = NonNull::<AlignedBlock>::dangling().cast();
            return Self { allocated: start, start, blocks: 0 };
        };
        // SAFETY: the layout is not of size zero.
        let allocated = unsafe { alloc_zeroed(layout) };
        let Some(allocated) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let skipped = allocated.addr().get().next_multiple_of(BLOCK_BYTES) - allocated.addr().get();
        // SAFETY: nothing is skipped where the layout is aligned, and less than the one block more that there is otherwise.
        let start = unsafe { allocated.add(skipped) };
        Self { allocated, start, blocks }
    }

    /// A copy of `bytes`, followed by zeroes to the end of the last block.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// How many blocks it holds.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Memory that is asked for with such an alignment is zeroed here, word by word; so where it is much, the alignment is
    /// looked for in one block more.
    fn layout(blocks: usize) -> Option<Layout> {
        let (more, alignment) = match blocks {
            0 => return None,
            BLOCKS_AS_USED.. => (1, 1),
            _ => (0, BLOCK_BYTES),
        };
        let bytes = (blocks + more).checked_mul(BLOCK_BYTES);
        let bytes = bytes.expect("more blocks than there are addresses");
        let layout = Layout::from_size_align(bytes, alignment);
        Some(layout.expect("more blocks than there are addresses"))
    }
}

#[repr(align(4096))]
struct AlignedBlock(#[expect(dead_code, reason = "only its alignment counts")] [u8; BLOCK_BYTES]);
const _: () = assert!(align_of::<AlignedBlock>() == BLOCK_BYTES);

impl Drop for BlockBuffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.blocks) {
            // SAFETY: allocated with this layout and never freed before.
            unsafe { dealloc(self.allocated.as_ptr(), layout) };
        }
    }
}

impl Deref for BlockBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is owned, that long and initialised.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.blocks * BLOCK_BYTES) }
    }
}

impl DerefMut for BlockBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.blocks * BLOCK_BYTES) }
    }
}

impl fmt::Debug for BlockBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockBuffer({} blocks)", self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_to_a_block_and_zero() {
        for blocks in [0, 1, 7, BLOCKS_AS_USED - 1, BLOCKS_AS_USED, 3 * BLOCKS_AS_USED] {
            let buffer = BlockBuffer::zeroed(blocks);
            assert_eq!(buffer.len(), blocks * BLOCK_BYTES);
            assert!(buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
            let step = if cfg!(miri) { 4099 } else { 1 };
            assert!(buffer.iter().step_by(step).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_copy_is_filled_up_to_a_whole_block() {
        let buffer = BlockBuffer::copy_of(&[7; 5000]);
        assert_eq!(buffer.blocks(), 2);
        assert!(buffer[..5000].iter().all(|&byte| byte == 7));
        assert!(buffer[5000..].iter().all(|&byte| byte == 0));
    }
}
