//! FAM blocks: words that carry 31 bits, the 31 bits before them, and a version.
//!
//! ```text
//!  63     62 61                          31 30                           0
//! +---------+------------------------------+------------------------------+
//! | version | old 31 bits                  | new 31 bits                  |
//! +---------+------------------------------+------------------------------+
//! ```
//!
//! A value is cut into pieces of 32 bits, little-endian, the last padded with zeroes. The low 31 bits
//! of piece i lie in block h + i; its highest bit is bit i % 31 of block i / 31. So there are
//! h = ⌈pieces / 31⌉ blocks of high bits, in front.
//!
//! Two implementations give the same bits: plain, and with AVX2, four blocks at a time.

/// Pieces of the largest value.
const MOST_PIECES: usize = super::LARGEST_VALUE_BYTES / 4;
/// Blocks of the largest value.
pub(crate) const MOST_BLOCKS: usize = MOST_PIECES + MOST_PIECES.div_ceil(PIECE_BITS);

const PIECE_BITS: usize = 31;
const PIECE: u64 = (1 << PIECE_BITS) - 1;
const VERSION_ONE: u64 = 1 << 62;
const VERSION: u64 = 3 << 62;

/// Pieces of a value of so many bytes.
fn pieces(value_bytes: usize) -> usize {
    value_bytes.div_ceil(4)
}

/// Blocks of high bits for a value of so many pieces.
fn high_blocks(pieces: usize) -> usize {
    pieces.div_ceil(PIECE_BITS)
}

/// Blocks of a value of so many bytes.
pub(crate) fn blocks(value_bytes: usize) -> usize {
    pieces(value_bytes) + high_blocks(pieces(value_bytes))
}

/// The version of a block, 0 to 3.
#[inline(always)]
pub(crate) fn version(block: u64) -> u64 {
    block >> 62
}

/// The block that follows `block` with `new`: one version later, the state so far kept as old.
#[inline(always)]
fn advanced(block: u64, new: u64) -> u64 {
    (block.wrapping_add(VERSION_ONE) & VERSION) | (block & PIECE) << PIECE_BITS | new
}

/// The block before its last update: the version before, with the old state.
#[inline(always)]
pub(crate) fn rolled_back(block: u64) -> u64 {
    let old = block >> PIECE_BITS & PIECE;
    (block.wrapping_sub(VERSION_ONE) & VERSION) | old << PIECE_BITS | old
}

/// How blocks are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// One block at a time, on any processor.
    Scalar,
    /// Four blocks at a time, on x86-64 with AVX2.
    Avx2,
}

/// This processor cannot compute that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this processor has no {0:?} arithmetic")]
pub struct UnavailableArithmetic(pub Arithmetic);

impl Arithmetic {
    /// The fastest that this processor has.
    pub fn detect() -> Self {
        if Self::Avx2.is_available() { Self::Avx2 } else { Self::Scalar }
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
        }
    }

    /// The scalar one or, if the processor has it, the other.
    ///
    /// # Errors
    /// [`UnavailableArithmetic`].
    pub(crate) fn checked(self) -> Result<Self, UnavailableArithmetic> {
        if self.is_available() { Ok(self) } else { Err(UnavailableArithmetic(self)) }
    }

    /// Replaces the blocks of a cell by those after an update to `value`.
    ///
    /// # Panics
    /// If there are not as many blocks as the value needs.
    #[inline]
    pub(crate) fn advance(self, blocks: &mut [u64], value: &[u8]) {
        let mut padded = [0u32; MOST_PIECES];
        let pieces = &mut padded[..pieces(value.len())];
        for (piece, bytes) in pieces.iter_mut().zip(value.chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            *piece = u32::from_le_bytes(four);
        }
        let (high, low) = blocks.split_at_mut(high_blocks(pieces.len()));
        assert_eq!(low.len(), pieces.len(), "blocks for a value of another size");
        for (block, pieces) in high.iter_mut().zip(pieces.chunks(PIECE_BITS)) {
            let bits = pieces.iter().rev().fold(0, |bits, piece| bits << 1 | piece >> 31);
            *block = advanced(*block, u64::from(bits));
        }
        match self {
            Self::Scalar => advance_scalar(low, pieces),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of `Arithmetic` other than scalar is used only where `checked` or
            // `detect` has found the processor to have it.
            Self::Avx2 => unsafe { avx2::advance(low, pieces) },
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => advance_scalar(low, pieces),
        }
    }

    /// Puts the new states of the blocks of a cell together.
    ///
    /// # Panics
    /// If there are not as many blocks as the value needs.
    #[inline]
    pub(crate) fn assemble(self, blocks: &[u64], value: &mut [u8]) {
        let count = pieces(value.len());
        let (high, low) = blocks.split_at(high_blocks(count));
        assert_eq!(low.len(), count, "blocks for a value of another size");
        let mut padded = [0u32; MOST_PIECES];
        let pieces = &mut padded[..count];
        match self {
            Self::Scalar => assemble_scalar(low, pieces),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `advance`.
            Self::Avx2 => unsafe { avx2::assemble(low, pieces) },
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => assemble_scalar(low, pieces),
        }
        for (block, pieces) in high.iter().zip(pieces.chunks_mut(PIECE_BITS)) {
            for (at, piece) in pieces.iter_mut().enumerate() {
                *piece |= ((block >> at) as u32 & 1) << 31;
            }
        }
        for (piece, bytes) in pieces.iter().zip(value.chunks_mut(4)) {
            bytes.copy_from_slice(&piece.to_le_bytes()[..bytes.len()]);
        }
    }
}

fn advance_scalar(blocks: &mut [u64], pieces: &[u32]) {
    for (block, piece) in blocks.iter_mut().zip(pieces) {
        *block = advanced(*block, u64::from(*piece) & PIECE);
    }
}

fn assemble_scalar(blocks: &[u64], pieces: &mut [u32]) {
    for (block, piece) in blocks.iter().zip(pieces) {
        *piece = (block & PIECE) as u32;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi64, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_cvtepu32_epi64, _mm256_loadu_si256, _mm256_or_si256,
        _mm256_permutevar8x32_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_slli_epi64,
        _mm256_storeu_si256,
    };

    use super::{PIECE, PIECE_BITS, VERSION, VERSION_ONE, advance_scalar, assemble_scalar};

    const LANES: usize = 4;
    const SHIFT: i32 = PIECE_BITS as i32;

    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn advance(blocks: &mut [u64], pieces: &[u32]) {
        let one = _mm256_set1_epi64x(VERSION_ONE as i64);
        let versions = _mm256_set1_epi64x(VERSION as i64);
        let new = _mm256_set1_epi64x(PIECE as i64);
        let mut blocks = blocks.chunks_exact_mut(LANES);
        let mut pieces = pieces.chunks_exact(LANES);
        for (blocks, pieces) in blocks.by_ref().zip(pieces.by_ref()) {
            // SAFETY: the chunks have four elements each; unaligned access.
            let (before, values) = unsafe {
                (
                    _mm256_loadu_si256(blocks.as_ptr().cast::<__m256i>()),
                    _mm_loadu_si128(pieces.as_ptr().cast::<__m128i>()),
                )
            };
            let version = _mm256_and_si256(_mm256_add_epi64(before, one), versions);
            let old = _mm256_slli_epi64::<SHIFT>(_mm256_and_si256(before, new));
            let value = _mm256_and_si256(_mm256_cvtepu32_epi64(values), new);
            let after = _mm256_or_si256(version, _mm256_or_si256(old, value));
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(blocks.as_mut_ptr().cast::<__m256i>(), after) };
        }
        advance_scalar(blocks.into_remainder(), pieces.remainder());
    }

    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn assemble(blocks: &[u64], pieces: &mut [u32]) {
        let new = _mm256_set1_epi64x(PIECE as i64);
        let low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
        let mut blocks = blocks.chunks_exact(LANES);
        let mut pieces = pieces.chunks_exact_mut(LANES);
        for (blocks, pieces) in blocks.by_ref().zip(pieces.by_ref()) {
            // SAFETY: the chunks have four elements each; unaligned access.
            unsafe {
                let found = _mm256_loadu_si256(blocks.as_ptr().cast::<__m256i>());
                let values = _mm256_and_si256(found, new);
                let packed = _mm256_permutevar8x32_epi32(values, low_halves);
                let packed = _mm256_castsi256_si128(packed);
                _mm_storeu_si128(pieces.as_mut_ptr().cast::<__m128i>(), packed);
            }
        }
        assemble_scalar(blocks.remainder(), pieces.into_remainder());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value_of(blocks: &[u64], value_bytes: usize) -> Vec<u8> {
        let mut value = vec![0; value_bytes];
        Arithmetic::Scalar.assemble(blocks, &mut value);
        value
    }

    #[test]
    fn a_value_takes_a_block_for_each_31_bits() {
        for value_bytes in 8..=super::super::LARGEST_VALUE_BYTES {
            let padded_bits = value_bytes.next_multiple_of(4) * 8;
            assert_eq!(blocks(value_bytes), padded_bits.div_ceil(31), "{value_bytes} bytes");
        }
        assert_eq!((blocks(16) * 8, blocks(32) * 8, blocks(64) * 8), (40, 72, 136));
        assert_eq!(blocks(256), MOST_BLOCKS);
    }

    #[test]
    fn four_updates_bring_the_version_round() {
        let mut cell = vec![0; blocks(8)];
        let versions: Vec<u64> = (0..5)
            .map(|round: u8| {
                Arithmetic::Scalar.advance(&mut cell, &[round; 8]);
                version(cell[0])
            })
            .collect();
        assert_eq!(versions, [1, 2, 3, 0, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn what_was_put_in_comes_out(value in prop::collection::vec(any::<u8>(), 8..=256)) {
            let mut cell = vec![0; blocks(value.len())];
            Arithmetic::Scalar.advance(&mut cell, &value);
            prop_assert_eq!(value_of(&cell, value.len()), value);
        }

        #[test]
        fn rolling_back_gives_the_value_and_the_version_before(
            (before, after) in (8usize..=256).prop_flat_map(|bytes| {
                let value = || prop::collection::vec(any::<u8>(), bytes);
                (value(), value())
            }),
        ) {
            let mut cell = vec![0; blocks(before.len())];
            Arithmetic::Scalar.advance(&mut cell, &before);
            let version_before = version(cell[0]);
            Arithmetic::Scalar.advance(&mut cell, &after);
            cell.iter_mut().for_each(|block| *block = rolled_back(*block));
            prop_assert_eq!(value_of(&cell, before.len()), before);
            prop_assert!(cell.iter().all(|block| version(*block) == version_before));
        }

        #[test]
        fn scalar_and_vector_arithmetic_agree_bit_for_bit(
            value in prop::collection::vec(any::<u8>(), 8..=256),
            seed in any::<u64>(),
        ) {
            if !Arithmetic::Avx2.is_available() {
                return Ok(());
            }
            let start = |at: usize| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ at as u64);
            let mut scalar: Vec<u64> = (0..blocks(value.len())).map(start).collect();
            let mut vector = scalar.clone();
            Arithmetic::Scalar.advance(&mut scalar, &value);
            Arithmetic::Avx2.advance(&mut vector, &value);
            prop_assert_eq!(&scalar, &vector);
            let mut assembled = vec![0; value.len()];
            Arithmetic::Avx2.assemble(&vector, &mut assembled);
            prop_assert_eq!(assembled, value);
        }
    }
}
