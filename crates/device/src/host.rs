//! What the model asks of the processor that it runs on.

/// Starts to bring the host's cache line at an address closer, so that the model's own memory
/// accesses overlap. No access: any address will do.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on what programs see and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Sixteen words that begin where a cache line of the host does.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Words(pub(crate) [u32; 16]);

/// Which words equal `wanted` in the bits of `mask`, a bit for each.
#[inline(always)]
pub(crate) fn equal_words(words: &[u32; 16], mask: u32, wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8,
            _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
        };
        let start = words.as_ptr().cast::<__m128i>();
        // SAFETY: every x86-64 processor has these instructions; the four loads are of the sixteen
        // words and ask for no alignment.
        unsafe {
            let (mask, wanted) = (_mm_set1_epi32(mask as i32), _mm_set1_epi32(wanted as i32));
            let equal = |at: usize| {
                _mm_cmpeq_epi32(_mm_and_si128(_mm_loadu_si128(start.add(at)), mask), wanted)
            };
            let (low, high) =
                (_mm_packs_epi32(equal(0), equal(1)), _mm_packs_epi32(equal(2), equal(3)));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let bits = words.iter().enumerate();
        bits.fold(0, |found, (at, word)| found | u32::from(word & mask == wanted) << at)
    }
}

/// Which of eight words equal `wanted`, a bit for each.
#[inline(always)]
pub(crate) fn equal_among_eight(words: &[u32; 8], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_packs_epi32, _mm_set1_epi32, _mm_setzero_si128,
        };
        let start = words.as_ptr().cast::<__m128i>();
        // SAFETY: every x86-64 processor has these instructions; the two loads are of the eight words
        // and ask for no alignment.
        unsafe {
            let wanted = _mm_set1_epi32(wanted as i32);
            let equal = |at: usize| _mm_cmpeq_epi32(_mm_loadu_si128(start.add(at)), wanted);
            let all = _mm_packs_epi32(equal(0), equal(1));
            _mm_movemask_epi8(_mm_packs_epi16(all, _mm_setzero_si128())) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let bits = words.iter().enumerate();
        bits.fold(0, |found, (at, &word)| found | u32::from(word == wanted) << at)
    }
}

/// Eight half words that begin where a vector does.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(crate) struct HalfWords(pub(crate) [u16; 8]);

/// Whether any half word equals `wanted`. All are looked at, without a branch for each.
#[inline(always)]
pub(crate) fn any_equal(all: &[HalfWords], wanted: u16) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_or_si128,
            _mm_set1_epi16, _mm_setzero_si128,
        };
        // SAFETY: every x86-64 processor has these instructions; each load is of the eight half words
        // of one element, which is aligned as it asks for.
        unsafe {
            let wanted = _mm_set1_epi16(wanted as i16);
            let found = all.iter().fold(_mm_setzero_si128(), |found, half_words| {
                let here = _mm_load_si128(half_words.0.as_ptr().cast::<__m128i>());
                _mm_or_si128(found, _mm_cmpeq_epi16(here, wanted))
            });
            _mm_movemask_epi8(found) != 0
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        all.iter().fold(false, |found, half_words| found | half_words.0.contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_are_found_wherever_they_are() {
        for bits in [0, 1, 0x8000, 0x1248, 0xA5A5, 0xFFFF] {
            let words = std::array::from_fn(|at| if bits >> at & 1 == 1 { 0x8000_0007 } else { 8 });
            assert_eq!(equal_words(&words, 0x7FFF_FFFF, 7), bits);
        }
    }

    #[test]
    fn equal_ones_among_eight_words_are_found_wherever_they_are() {
        for bits in 0..256 {
            let words = std::array::from_fn(|at| if bits >> at & 1 == 1 { 0x8000_0007 } else { 7 });
            assert_eq!(equal_among_eight(&words, 0x8000_0007), bits);
        }
    }

    #[test]
    fn an_equal_half_word_is_found_wherever_it_is() {
        for at in 0..24 {
            let mut all = [HalfWords([7; 8]); 3];
            assert!(!any_equal(&all, 0x8000));
            all[at / 8].0[at % 8] = 0x8000;
            assert!(any_equal(&all, 0x8000));
        }
        assert!(!any_equal(&[], 7));
    }
}
