//! A small deterministic generator (SplitMix64, Steele et al., OOPSLA 2014), so that sampling and
//! random eviction are the same on every run.

/// Numbers that depend on the seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// True so many times in a thousand. Certainties take no number.
    #[inline]
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        match permille {
            0 => false,
            1000.. => true,
            _ => self.below(1000) < permille as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_within_bounds() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let number = a.below(10);
            assert_eq!(number, b.below(10));
            seen[number] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
