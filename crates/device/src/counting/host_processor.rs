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
}
