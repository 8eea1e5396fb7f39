//! Division by a number that is known when the machine is made, as a multiplication: the model
//! divides at every access that misses, and the processor's division is slower than all the rest of
//! it (Lemire, Kaser, Kurz: "Faster remainder by direct computation", Software: Practice and
//! Experience, 2019).

/// Divides 32-bit numbers by one divisor, exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    divisor: u32,
    /// 2^64 / divisor, rounded up; zero stands for 2^64, whose product is the number itself.
    inverse: u64,
}

impl Divider {
    /// # Panics
    /// If the divisor is zero.
    pub(crate) fn new(divisor: u32) -> Self {
        Self { divisor, inverse: (u64::MAX / u64::from(divisor)).wrapping_add(1) }
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn divide(self, number: u32) -> (u32, u32) {
        if self.inverse == 0 {
            return (number, 0);
        }
        let quotient = ((u128::from(number) * u128::from(self.inverse)) >> 64) as u32;
        (quotient, number - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn quotients_and_remainders_are_those_of_the_processor() {
        let mut random = Random::new(5);
        let edges = [1, 2, 3, 4, 6, 64, 65, 641, 1 << 31, u32::MAX - 1, u32::MAX];
        let divisors = edges.into_iter().chain((0..200).map(|_| random.next() as u32 | 1));
        for divisor in divisors.collect::<Vec<_>>() {
            let divider = Divider::new(divisor);
            let near = [0, 1, divisor - 1, divisor, divisor.wrapping_add(1), u32::MAX];
            for number in near.into_iter().chain((0..200).map(|_| random.next() as u32)) {
                assert_eq!(divider.divide(number), (number / divisor, number % divisor));
            }
        }
    }
}
