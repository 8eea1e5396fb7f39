//! Counting bits: what tells a torn entry of a PopLog.

/// The number of set bits.
#[inline]
pub fn count_ones(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut ones: u32 = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).sum();
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        ones += u64::from_ne_bytes(last).count_ones();
    }
    ones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_in_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..300u32).map(|i| (i * 37 + 11) as u8).collect();
        for from in 0..9 {
            for to in (from..bytes.len()).step_by(if cfg!(miri) { 13 } else { 1 }) {
                let one_by_one: u32 = bytes[from..to].iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(count_ones(&bytes[from..to]), one_by_one);
            }
        }
    }
}
