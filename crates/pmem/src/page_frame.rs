//! Page frames: blocks of a pool that begin where a page does, for direct I/O.
//!
//! The allocator gives a block whose type is aligned to 4096 bytes a place at a multiple of these, and
//! regions begin at one: so a block device can transfer to and from it without a copy.

use crate::cell::PCell;
use crate::persistent;

/// Bytes of a [`PageFrame`], and what it is aligned to.
pub const PAGE_FRAME_BYTES: usize = 4096;

persistent! {
    /// The first 4 KiB of a page in a pool; the rest of a larger page is its tail.
    ///
    /// ```
    /// use lapis_pmem::{PAGE_FRAME_BYTES, PageFrame, Pool};
    ///
    /// let pool = Pool::create_anonymous(1 << 20)?;
    /// let page = pool.allocate_with_tail::<PageFrame>(16384 - PAGE_FRAME_BYTES)?;
    /// assert!(page.link().offset().is_multiple_of(4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[repr(align(4096))]
    pub struct PageFrame: 4096 {
        /// The contents, word by word.
        pub words: [PCell<u64>; PAGE_FRAME_BYTES / 8],
    }
}
