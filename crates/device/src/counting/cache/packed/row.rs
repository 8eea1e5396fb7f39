//! How a set of up to sixteen ways lies in the host's memory.
//!
//! ```text
//!  bytes  0       4               52      56             64
//!        +-------+-------+-...-+--------+----------------+
//!        | tag 0 | tag 1 |     | tag 13 | order          |                [`WithinLine`]
//!        +-------+-------+-...-+--------+-------+--------+----------+
//!        | tag 0 | tag 1 |     | tag 13 | 14    | 15     | order    |     [`Wide`], 80 with padding
//!        +-------+-------+-...-+--------+-------+--------+----------+
//! ```

use std::fmt::Debug;

use super::UNUSED;

/// A set: tags by way, and the order in which the ways were used.
pub(in crate::counting::cache) trait Row: Clone + Debug {
    /// Most ways that it has room for.
    const MOST_WAYS: usize;

    /// With no tag.
    fn unused() -> Self;

    /// Sixteen words, the first of them the tags.
    fn words(&self) -> &[u32; 16];

    fn words_mut(&mut self) -> &mut [u32; 16];

    fn order(&self) -> u64;

    fn set_order(&mut self, order: u64);
}

/// Room for fourteen ways in a cache line of the host.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::counting::cache) struct WithinLine {
    tags: [u32; 14],
    order: u64,
}

const _: () = assert!(size_of::<WithinLine>() == size_of::<[u32; 16]>());

impl Row for WithinLine {
    const MOST_WAYS: usize = 14;

    fn unused() -> Self {
        Self { tags: [0; 14], order: UNUSED }
    }

    #[inline(always)]
    fn words(&self) -> &[u32; 16] {
        // SAFETY: a row is as large as sixteen words and aligned to more; it has no padding, and any
        // bytes are words.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u32; 16] {
        // SAFETY: as for `words`; any bytes are a row.
        unsafe { &mut *std::ptr::from_mut(self).cast() }
    }

    #[inline(always)]
    fn order(&self) -> u64 {
        self.order
    }

    #[inline(always)]
    fn set_order(&mut self, order: u64) {
        self.order = order;
    }
}

/// Room for sixteen ways.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub(in crate::counting::cache) struct Wide {
    tags: [u32; 16],
    order: u64,
}

impl Row for Wide {
    const MOST_WAYS: usize = 16;

    fn unused() -> Self {
        Self { tags: [0; 16], order: UNUSED }
    }

    #[inline(always)]
    fn words(&self) -> &[u32; 16] {
        &self.tags
    }

    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u32; 16] {
        &mut self.tags
    }

    #[inline(always)]
    fn order(&self) -> u64 {
        self.order
    }

    #[inline(always)]
    fn set_order(&mut self, order: u64) {
        self.order = order;
    }
}
