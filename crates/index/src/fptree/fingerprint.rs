//! All fingerprints of a leaf compared at once.

use lapis_blocks::fp_leaf::FINGERPRINTS;

/// The words they fill.
const WORDS: usize = FINGERPRINTS / 8;

/// Bit i is set if fingerprint i, byte i % 8 of word i / 8 from below, is `wanted`.
#[inline(always)]
pub(super) fn matches(words: [u64; WORDS], wanted: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    return with_sse2(words, wanted);
    #[cfg(not(target_arch = "x86_64"))]
    return one_by_one(words, wanted);
}

/// SSE2 is part of x86-64.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn with_sse2(words: [u64; WORDS], wanted: u8) -> u64 {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    let mut found = 0;
    for pair in 0..WORDS.div_ceil(2) {
        let low = words[2 * pair];
        let high = if 2 * pair + 1 < WORDS { words[2 * pair + 1] } else { 0 };
        // SAFETY: SSE2 is in the baseline of this target.
        let equal = unsafe {
            let fingerprints = _mm_set_epi64x(high as i64, low as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi8(fingerprints, _mm_set1_epi8(wanted as i8)))
        };
        found |= u64::from(equal as u32) << (16 * pair);
    }
    found & ((1 << FINGERPRINTS) - 1)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn one_by_one(words: [u64; WORDS], wanted: u8) -> u64 {
    let mut found = 0;
    for (number, word) in words.iter().enumerate() {
        for (byte, fingerprint) in word.to_le_bytes().into_iter().enumerate() {
            found |= u64::from(fingerprint == wanted) << (8 * number + byte);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn each_position_is_found_alone() {
        for position in 0..FINGERPRINTS {
            let mut words = [0; WORDS];
            words[position / 8] = 0x5A << (8 * (position % 8));
            assert_eq!(matches(words, 0x5A), 1 << position);
        }
    }

    #[test]
    fn nothing_is_found_beyond_the_last_position() {
        assert_eq!(matches([0; WORDS], 0), (1 << FINGERPRINTS) - 1);
        assert_eq!(matches([u64::MAX; WORDS], 0), 0);
    }

    #[test]
    fn the_comparison_at_once_is_bit_for_bit_the_one_by_one() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..2000 {
            // Few different bytes, so that there are matches.
            let words: [u64; WORDS] =
                std::array::from_fn(|_| random.random::<u64>() & 0x8103_0381_0303_8103);
            for wanted in [0, 1, 2, 3, 0x80, 0x81, 0xFF] {
                assert_eq!(matches(words, wanted), one_by_one(words, wanted));
            }
        }
    }
}
