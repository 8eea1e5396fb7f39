//! Finding the entry of a key in a node: its bits at the node's positions are drawn together, and all
//! partial keys are compared with them at once.
//!
//! A partial key is *sparse*: of the node's positions it has only the bits of those at which its own way
//! through the trie branches, and zero for all others. The last one whose bits are all set in the
//! key belongs to the entry to which the key leads. The first is zero, so there is always one.

/// How wide partial keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    One,
    Two,
    Four,
}

impl Width {
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Four];

    pub fn bytes(self) -> usize {
        1 << self as usize
    }
}

/// Eight bytes of a key and which of their bits count.
pub type MaskedWord = (u64, u64);

/// How searches are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instructions {
    /// One bit and one partial key at a time.
    Portable,
    /// BMI2 draws the bits together, AVX2 compares.
    #[cfg(target_arch = "x86_64")]
    Vector,
}

impl Instructions {
    /// The best that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return Self::Vector;
        }
        Self::Portable
    }

    /// The last of the first `count` partial keys whose bits are all set among those that the words
    /// have in their masks.
    #[inline(always)]
    pub fn last_match(
        self,
        words: &[MaskedWord],
        partials: &[u8],
        width: Width,
        count: usize,
    ) -> usize {
        let matches = match self {
            Self::Portable => matches_one_by_one(drawn_together(words), partials, width),
            // SAFETY: `detect` has found both.
            #[cfg(target_arch = "x86_64")]
            Self::Vector => unsafe { matches_at_once(words, partials, width) },
        };
        // What fills the room behind the partial keys matches nothing that counts.
        let counting = matches & (u32::MAX >> (32 - count.clamp(1, 32)));
        counting.checked_ilog2().unwrap_or(0) as usize
    }
}

/// The bits that count, the last one lowest.
fn drawn_together(words: &[MaskedWord]) -> u32 {
    let mut dense = 0;
    for &(word, mask) in words {
        let mut rest = mask;
        while rest != 0 {
            let bit = 63 - rest.leading_zeros();
            dense = dense << 1 | (word >> bit & 1) as u32;
            rest &= !(1 << bit);
        }
    }
    dense
}

/// Bit i is set if all bits of partial key i are set in `dense`.
fn matches_one_by_one(dense: u32, partials: &[u8], width: Width) -> u32 {
    let partials = partials.chunks_exact(width.bytes()).take(32).enumerate();
    partials.fold(0, |matches, (number, partial)| {
        let mut bytes = [0; 4];
        bytes[..partial.len()].copy_from_slice(partial);
        matches | u32::from(u32::from_le_bytes(bytes) & !dense == 0) << number
    })
}

/// The same of these words.
///
/// # Safety
/// The processor has AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
unsafe fn matches_at_once(words: &[MaskedWord], partials: &[u8], width: Width) -> u32 {
    use core::arch::x86_64::*;
    let mut dense = 0u32;
    for &(word, mask) in words {
        dense = dense.checked_shl(mask.count_ones()).unwrap_or(0) | _pext_u64(word, mask) as u32;
    }
    let wanted = match width {
        Width::One => _mm256_set1_epi8(dense as i8),
        Width::Two => _mm256_set1_epi16(dense as i16),
        Width::Four => _mm256_set1_epi32(dense as i32),
    };
    let (zero, lanes) = (_mm256_setzero_si256(), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    let mut matches = 0;
    for (number, chunk) in partials.chunks(32).enumerate() {
        let present = _mm256_cmpgt_epi32(_mm256_set1_epi32(chunk.len() as i32 / 4), lanes);
        // SAFETY: only lanes that lie in the chunk are read.
        let partials = unsafe { _mm256_maskload_epi32(chunk.as_ptr().cast(), present) };
        let missing = _mm256_andnot_si256(wanted, partials);
        match width {
            Width::One => {
                matches = _mm256_movemask_epi8(_mm256_cmpeq_epi8(missing, zero)) as u32;
                break;
            }
            Width::Two => {
                let equal = _mm256_movemask_epi8(_mm256_cmpeq_epi16(missing, zero)) as u32;
                matches |=
                    _pext_u32(equal, 0x5555_5555).checked_shl(16 * number as u32).unwrap_or(0);
            }
            Width::Four => {
                let equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(missing, zero));
                let equal = _mm256_movemask_ps(equal) as u32;
                matches |= equal.checked_shl(8 * number as u32).unwrap_or(0);
            }
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_search_at_once_finds_what_the_one_by_one_does() {
        let mut random = SmallRng::seed_from_u64(1);
        for round in 0..6000 {
            let width = Width::ALL[round % 3];
            let count = random.random_range(2..=32usize);
            // Few bits, so that there are matches.
            let mut partials: Vec<u8> = (0..count * width.bytes())
                .map(|_| random.random::<u8>() & random.random::<u8>() & random.random::<u8>())
                .collect();
            partials.resize(partials.len().next_multiple_of(8), 0);
            partials[..width.bytes()].fill(0);
            let words: Vec<MaskedWord> = (0..random.random_range(1..=4))
                .map(|_| {
                    let mask = (0..8).fold(0, |mask, _| mask | 1u64 << random.random_range(0..64));
                    (random.random(), mask)
                })
                .collect();
            let portable = Instructions::Portable.last_match(&words, &partials, width, count);
            let found = Instructions::detect().last_match(&words, &partials, width, count);
            assert_eq!(found, portable, "{count} of {width:?}: {words:x?} {partials:x?}");
        }
    }

    #[test]
    fn bits_are_drawn_together_in_their_order_and_the_last_partial_key_that_has_no_other_is_found()
    {
        let words = [(0b1010 << 60, 0b1110 << 60), (1, 0b11)];
        assert_eq!(drawn_together(&words), 0b1_0101);
        let partials = [0, 0b00001, 0b00010, 0b00100, 0b01000, 0b10001, 0b11000, 0];
        for instructions in [Instructions::Portable, Instructions::detect()] {
            let found = |count| instructions.last_match(&words, &partials, Width::One, count);
            assert_eq!(
                [found(2), found(3), found(4), found(5), found(6), found(7)],
                [1, 1, 3, 3, 5, 5]
            );
        }
    }
}
