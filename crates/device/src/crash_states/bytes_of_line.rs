//! Some bytes of a line.

use crate::crash_states::pending::LineBytes;

/// Some bytes of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesOfLine {
    /// The line.
    pub line: u32,
    /// One bit per byte.
    pub bytes: u64,
}

impl BytesOfLine {
    /// Stands in a log of reads for that of a lock, whose answer does not follow from bytes alone: it
    /// depends on the generation in which it asks.
    pub const OF_A_LOCK: Self = Self { line: u32::MAX, bytes: 0 };
}

/// One of the eight words of a line.
#[inline]
pub fn word_of(line: &LineBytes, word: usize) -> u64 {
    line[8 * word..].first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

/// The bytes in which two lines differ, a bit for each.
pub fn differing_bytes(one: &LineBytes, other: &LineBytes) -> u64 {
    const LOW_SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let mut differing = 0;
    for at in 0..8 {
        let changed = word_of(one, at) ^ word_of(other, at);
        if changed != 0 {
            // The highest bit of each byte that has any, and then those bits side by side.
            let highest = (((changed & LOW_SEVEN) + LOW_SEVEN) | changed) & !LOW_SEVEN;
            let bits = (highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            differing |= bits << (8 * at);
        }
    }
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_for_each_byte_that_differs() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..1000 {
            let one: LineBytes = std::array::from_fn(|_| random.below(256) as u8);
            let other: LineBytes = std::array::from_fn(|at| match random.below(3) {
                0 => random.below(256) as u8,
                1 => one[at] ^ 1 << random.below(8),
                _ => one[at],
            });
            let expected = (0..64).fold(0, |bits, at| bits | u64::from(one[at] != other[at]) << at);
            assert_eq!(differing_bytes(&one, &other), expected);
        }
    }
}
