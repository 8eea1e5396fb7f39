//! Size classes: which block sizes there are and how a slab of each is laid out.

use crate::region::EXTENT_BYTES;

/// Block sizes in bytes. Steps of at most 33 % above 64 bytes keep internal waste low; multiples of
/// 64 start on a line, multiples of 256 on an XPLine. Behind them the classes of page frames, whose
/// blocks start at multiples of 4096; in a run of chunks every block does.
const BLOCK_BYTES: [u32; CLASS_COUNT] = [
    16, 32, 48, 64, 96, 128, 144, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
    1792, 2048, 2560, 3072, 3584, 4096, 6144, 8192, 10240, 12288, 16384, 20480, 24576,
    32768, //
    4096, 8192, 16384, 32768,
];

pub(crate) const CLASS_COUNT: usize = FIRST_FRAME_CLASS + 4;
const FIRST_FRAME_CLASS: usize = 33;

/// What the blocks of page frames are aligned to.
const FRAME_BYTES: usize = 4096;
/// Marks the size of a block as that of a page frame.
const FRAME: usize = 1 << (usize::BITS - 1);

/// The size by which the allocator knows a block for a `T` of so many bytes.
pub(crate) const fn size_of_block<T>(bytes: usize) -> usize {
    const { assert!(align_of::<T>() <= 16 || align_of::<T>() == FRAME_BYTES) };
    if bytes >= FRAME {
        // No block, whatever its mark.
        usize::MAX
    } else if align_of::<T>() == FRAME_BYTES && bytes <= LARGEST_SLAB_BLOCK_BYTES {
        bytes | FRAME
    } else {
        bytes
    }
}

/// The bytes that were asked for, of such a size.
pub(crate) fn bytes_of_size(size: usize) -> usize {
    size & !FRAME
}

/// Blocks up to this size come from slabs; larger ones are runs of whole chunks.
pub const LARGEST_SLAB_BLOCK_BYTES: usize = 32768;

/// Blocks over this size come from slabs of several chunks.
const SINGLE_CHUNK_LIMIT: u32 = 4096;
const MULTI_CHUNK_SLAB: u32 = 8;
const LARGEST_SLAB_BYTES: u64 = MULTI_CHUNK_SLAB as u64 * EXTENT_BYTES as u64;

/// For each size in units of 16 bytes, up to 4 KiB, the class that serves it.
const SMALL_CLASS: [u8; 257] = {
    let mut table = [0u8; 257];
    let (mut unit, mut class) = (0, 0);
    while unit < table.len() {
        if unit * 16 > BLOCK_BYTES[class] as usize {
            class += 1;
        }
        table[unit] = class as u8;
        unit += 1;
    }
    table
};

const LAYOUTS: [Layout; CLASS_COUNT] = {
    let mut layouts = [Layout { first: 0, blocks: 0, reciprocal: 0 }; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        layouts[class] = Layout::of(BLOCK_BYTES[class], class >= FIRST_FRAME_CLASS);
        class += 1;
    }
    layouts
};

#[derive(Clone, Copy)]
struct Layout {
    /// Offset of block 0 in the slab.
    first: u32,
    blocks: u32,
    /// 2⁴⁰ divided by the size of a block, rounded up: so that a division by it, of an offset in a
    /// slab (below 2¹⁹), is a multiplication. It is too large by less than one part in the quotient,
    /// since that offset times the size (up to 2¹⁵) stays below 2⁴⁰.
    reciprocal: u64,
}

const RECIPROCAL_BITS: u32 = 40;

impl Layout {
    const fn of(block: u32, is_frame: bool) -> Self {
        let chunks = if block > SINGLE_CHUNK_LIMIT { MULTI_CHUNK_SLAB } else { 1 };
        let slab = chunks * EXTENT_BYTES as u32;
        let lowest_bit = block & block.wrapping_neg();
        let align = match (is_frame, lowest_bit > 256) {
            (true, _) => FRAME_BYTES as u32,
            (false, true) => 256,
            (false, false) => lowest_bit,
        };
        let mut blocks = slab / block;
        loop {
            let bitmap = blocks.div_ceil(64) * 8;
            let first = bitmap.next_multiple_of(align);
            if first + blocks * block <= slab {
                let reciprocal = (1u64 << RECIPROCAL_BITS).div_ceil(block as u64);
                return Self { first, blocks, reciprocal };
            }
            blocks -= 1;
        }
    }
}

/// One of the size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassId(u8);

impl ClassId {
    /// The class for blocks of `bytes` ([`size_of_block`]), or none if they are large.
    #[inline(always)]
    pub(crate) fn for_bytes(bytes: usize) -> Option<Self> {
        if bytes <= SINGLE_CHUNK_LIMIT as usize {
            return Some(Self(SMALL_CLASS[bytes.div_ceil(16)]));
        }
        let (first, last) = match bytes & FRAME {
            0 => (0, FIRST_FRAME_CLASS),
            _ => (FIRST_FRAME_CLASS, CLASS_COUNT),
        };
        let smaller = |&block: &u32| (block as usize) < bytes_of_size(bytes);
        let class = first + BLOCK_BYTES[first..last].partition_point(smaller);
        (class < last).then_some(Self(class as u8))
    }

    pub(crate) fn from_index(index: u8) -> Option<Self> {
        ((index as usize) < CLASS_COUNT).then_some(Self(index))
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CLASS_COUNT as u8).map(Self)
    }

    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn block_bytes(self) -> usize {
        BLOCK_BYTES[self.index()] as usize
    }

    pub(crate) fn slab_chunks(self) -> u32 {
        if BLOCK_BYTES[self.index()] > SINGLE_CHUNK_LIMIT { MULTI_CHUNK_SLAB } else { 1 }
    }

    pub(crate) fn blocks_per_slab(self) -> usize {
        LAYOUTS[self.index()].blocks as usize
    }

    pub(crate) fn bitmap_words(self) -> usize {
        self.blocks_per_slab().div_ceil(64)
    }

    /// Pool offset of block `index` of the slab that begins at chunk `first`.
    #[inline]
    pub(crate) fn offset_of(self, first: u32, index: usize) -> u64 {
        u64::from(first) * EXTENT_BYTES as u64
            + u64::from(LAYOUTS[self.index()].first)
            + (index * self.block_bytes()) as u64
    }

    /// The inverse of [`ClassId::offset_of`]: none if `offset` is not where a block begins.
    #[inline]
    pub(crate) fn index_in_slab(self, first: u32, offset: u64) -> Option<usize> {
        let layout = LAYOUTS[self.index()];
        let start = u64::from(first) * EXTENT_BYTES as u64 + u64::from(layout.first);
        let inside = offset.checked_sub(start).filter(|&inside| inside < LARGEST_SLAB_BYTES)?;
        let index = (inside * layout.reciprocal) >> RECIPROCAL_BITS;
        let begins = index * u64::from(BLOCK_BYTES[self.index()]) == inside;
        (begins && index < u64::from(layout.blocks)).then_some(index as usize)
    }

    /// The first chunk of the slab that holds `offset`, for slabs of one chunk; for larger ones the
    /// caller looks the chunk up.
    #[inline]
    pub(crate) fn chunk_of(offset: u64) -> u32 {
        (offset / EXTENT_BYTES as u64) as u32
    }
}

/// Bytes that a block of `bytes` really takes.
pub fn block_bytes_for(bytes: usize) -> usize {
    match ClassId::for_bytes(bytes) {
        Some(class) => class.block_bytes(),
        None => bytes.next_multiple_of(EXTENT_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_up_to_the_largest_gets_the_smallest_block_that_holds_it() {
        let step = if cfg!(miri) { 61 } else { 1 };
        for bytes in (0..=LARGEST_SLAB_BLOCK_BYTES).step_by(step) {
            let class = ClassId::for_bytes(bytes).unwrap();
            assert!(class.block_bytes() >= bytes);
            assert!(class.index() < FIRST_FRAME_CLASS);
            if class.index() > 0 {
                assert!((BLOCK_BYTES[class.index() - 1] as usize) < bytes.max(1), "{bytes}");
            }
        }
        assert_eq!(ClassId::for_bytes(LARGEST_SLAB_BLOCK_BYTES + 1), None);
    }

    #[test]
    fn slabs_hold_at_least_fifteen_aligned_blocks_that_do_not_touch_the_bitmap() {
        for class in ClassId::all() {
            assert!(class.blocks_per_slab() >= 15, "{}", class.block_bytes());
            let last = class.offset_of(1, class.blocks_per_slab() - 1) as usize;
            let end = (1 + class.slab_chunks() as usize) * EXTENT_BYTES;
            assert!(last + class.block_bytes() <= end);
            assert!(class.offset_of(1, 0) as usize >= EXTENT_BYTES + class.bitmap_words() * 8);
            for align in [64, 256, FRAME_BYTES] {
                let is_frame = class.index() >= FIRST_FRAME_CLASS;
                if class.block_bytes().is_multiple_of(align) && (align < FRAME_BYTES || is_frame) {
                    assert!(class.offset_of(1, 1).is_multiple_of(align as u64));
                }
            }
            for index in [0, 1, class.blocks_per_slab() - 1] {
                assert_eq!(class.index_in_slab(3, class.offset_of(3, index)), Some(index));
            }
        }
    }

    #[test]
    fn an_offset_is_found_to_begin_a_block_exactly_where_division_says_so() {
        for class in ClassId::all() {
            let (start, size) = (class.offset_of(3, 0), class.block_bytes() as u64);
            let step = if cfg!(miri) { 16 * 257 } else { 16 };
            for inside in (0..LARGEST_SLAB_BYTES + 64).step_by(step) {
                let index = inside / size;
                let begins = inside % size == 0 && index < class.blocks_per_slab() as u64;
                let expected = begins.then_some(index as usize);
                assert_eq!(class.index_in_slab(3, start + inside), expected, "{size} {inside}");
            }
            assert_eq!(class.index_in_slab(3, start - 16), None);
            assert_eq!(class.index_in_slab(3, start + 8), None);
        }
    }
}
