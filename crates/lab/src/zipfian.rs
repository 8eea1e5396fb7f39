//! Request distributions: zipfian after Gray, Sundaresan, Englert, Baclawski and Weinberger
//! (*Quickly Generating Billion-Record Synthetic Databases*, SIGMOD 1994), with the constants of
//! YCSB (Cooper et al., SoCC 2010), its scrambled variant and its *latest*.
//!
//! Item `i` (from 0) of `n` is drawn with probability `1 / ((i + 1)^theta * zeta(n))`, where
//! `zeta(n)` is the sum of `1 / i^theta` for `i` from 1 to `n`. The generator inverts that
//! distribution approximately in constant time; the first two items are exact.

use rand::{Rng, RngExt};

/// YCSB's skew.
pub const YCSB_THETA: f64 = 0.99;

/// Items over which YCSB's scrambled generator draws, whatever the number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// `zeta(SCRAMBLED_ITEMS)` for [`YCSB_THETA`], which would take a minute to sum.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Terms of zeta that are summed one by one; the tail beyond them is integrated.
const EXACT_TERMS: u64 = 1 << 20;

/// The sum of `1 / i^theta` for `i` from 1 to `items`.
///
/// The first million terms are summed; of the rest, the integral with the first correction of
/// Euler and Maclaurin is taken, which is exact to about 1e-13 from there on.
fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let mut sum = 0.0;
    // Small terms first, so that they are not lost.
    for i in (1..=exact).rev() {
        sum += (i as f64).powf(-theta);
    }
    if items > exact {
        let (from, to) = (exact as f64, items as f64);
        let power = 1.0 - theta;
        sum += (to.powf(power) - from.powf(power)) / power;
        sum += (to.powf(-theta) - from.powf(-theta)) / 2.0;
    }
    sum
}

/// Draws small numbers often: item 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_items: f64,
    zeta_two: f64,
    eta: f64,
}

impl Zipfian {
    /// A generator over `items` items (at least one) with YCSB's skew.
    pub fn new(items: u64) -> Self {
        Self::with_theta(items, YCSB_THETA)
    }

    /// A generator over `items` items (at least one) with skew `theta`, between 0 and 1 exclusive.
    ///
    /// # Panics
    /// If `theta` is outside of that.
    pub fn with_theta(items: u64, theta: f64) -> Self {
        assert!(theta > 0.0 && theta < 1.0, "theta lies between 0 and 1");
        let items = items.max(1);
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    fn with_zeta(items: u64, theta: f64, zeta_items: f64) -> Self {
        let mut generator = Self {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_items,
            zeta_two: zeta(2, theta),
            eta: 0.0,
        };
        generator.set_eta();
        generator
    }

    fn set_eta(&mut self) {
        let shrink = (2.0 / self.items as f64).powf(1.0 - self.theta);
        self.eta = (1.0 - shrink) / (1.0 - self.zeta_two / self.zeta_items);
    }

    /// Items drawn from.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The probability of the most popular item.
    pub fn top_share(&self) -> f64 {
        1.0 / self.zeta_items
    }

    /// Draws from `items` items from now on. Growing by a few costs as many terms of zeta.
    pub fn grow_to(&mut self, items: u64) {
        for i in self.items + 1..=items {
            self.zeta_items += (i as f64).powf(-self.theta);
        }
        if items > self.items {
            self.items = items;
            self.set_eta();
        }
    }

    /// Draws an item.
    #[inline]
    pub fn next<R: Rng>(&self, random: &mut R) -> u64 {
        let uniform: f64 = random.random();
        let scaled = uniform * self.zeta_items;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let item = self.items as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (item as u64).min(self.items - 1)
    }
}

/// YCSB's scrambled zipfian: popular items are scattered over all items by a hash.
///
/// As in YCSB the draw is over ten billion items and reduced to `items` by the hash, so the most
/// popular item has a share of 3.8 % (plus its part of the rest) whatever `items` is.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    draw: Zipfian,
}

impl ScrambledZipfian {
    /// A generator over `items` items (at least one).
    pub fn new(items: u64) -> Self {
        let draw = Zipfian::with_zeta(SCRAMBLED_ITEMS, YCSB_THETA, SCRAMBLED_ZETA);
        Self { items: items.max(1), draw }
    }

    /// Draws an item.
    #[inline]
    pub fn next<R: Rng>(&self, random: &mut R) -> u64 {
        fnv_hash(self.draw.next(random)) % self.items
    }
}

/// YCSB's *latest*: the item inserted last is the most popular.
#[derive(Clone, Debug)]
pub struct Latest {
    draw: Zipfian,
}

impl Latest {
    /// A generator over the first `items` items (at least one).
    pub fn new(items: u64) -> Self {
        Self { draw: Zipfian::new(items) }
    }

    /// Draws one of the first `items` items, favouring the last. `items` never shrinks from one
    /// call to the next.
    #[inline]
    pub fn next<R: Rng>(&mut self, random: &mut R, items: u64) -> u64 {
        self.draw.grow_to(items);
        let last = self.draw.items() - 1;
        last - self.draw.next(random).min(last)
    }
}

/// The 64-bit FNV-1a hash of a number's eight bytes, smallest first, made non-negative as a Java
/// `long`: what YCSB hashes record numbers with.
#[inline]
pub fn fnv_hash(number: u64) -> u64 {
    let hash = number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash as i64).wrapping_abs() as u64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn counts(draws: usize, items: usize, mut next: impl FnMut(&mut StdRng) -> u64) -> Vec<u64> {
        let mut random = StdRng::seed_from_u64(7);
        let mut counts = vec![0u64; items];
        for _ in 0..draws {
            counts[next(&mut random) as usize] += 1;
        }
        counts
    }

    fn assert_close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} is not close to {expected}");
    }

    #[test]
    fn zeta_with_an_integrated_tail_equals_the_plain_sum() {
        let items = EXACT_TERMS + 250_000;
        let plain: f64 = (1..=items).rev().map(|i| (i as f64).powf(-YCSB_THETA)).sum();
        assert_close(zeta(items, YCSB_THETA), plain, 1e-9);
    }

    #[test]
    fn zeta_of_ten_billion_is_the_constant_of_ycsb() {
        assert_close(zeta(SCRAMBLED_ITEMS, YCSB_THETA), SCRAMBLED_ZETA, 1e-6);
    }

    #[test]
    fn the_first_two_items_have_their_exact_shares() {
        let zipfian = Zipfian::new(1000);
        let counts = counts(200_000, 1000, |random| zipfian.next(random));
        assert_close(counts[0] as f64 / 200_000.0, zipfian.top_share(), 0.003);
        let second = zipfian.top_share() / 2f64.powf(YCSB_THETA);
        assert_close(counts[1] as f64 / 200_000.0, second, 0.003);
        assert!(counts[2..].iter().all(|&count| count < counts[1]));
    }

    #[test]
    fn every_draw_is_an_item_even_of_one() {
        for items in [1, 2, 3] {
            let zipfian = Zipfian::new(items);
            let counts = counts(10_000, items as usize, |random| zipfian.next(random));
            assert_eq!(counts.iter().sum::<u64>(), 10_000);
            assert!(counts.iter().all(|&count| count > 0), "{items}: {counts:?}");
        }
    }

    #[test]
    fn growing_equals_starting_larger() {
        let (mut grown, fresh) = (Zipfian::new(100), Zipfian::new(5000));
        grown.grow_to(5000);
        let mut random = (StdRng::seed_from_u64(3), StdRng::seed_from_u64(3));
        for _ in 0..1000 {
            assert_eq!(grown.next(&mut random.0), fresh.next(&mut random.1));
        }
    }

    #[test]
    fn scrambling_keeps_the_skew_and_moves_the_popular_items() {
        let scrambled = ScrambledZipfian::new(10_000);
        let counts = counts(200_000, 10_000, |random| scrambled.next(random));
        let top = (0..counts.len()).max_by_key(|&item| counts[item]).unwrap_or(0);
        assert_eq!(top as u64, fnv_hash(0) % 10_000);
        assert_close(counts[top] as f64 / 200_000.0, 1.0 / SCRAMBLED_ZETA, 0.003);
    }

    #[test]
    fn latest_favours_the_item_inserted_last() {
        let mut latest = Latest::new(100);
        let counts = counts(100_000, 200, |random| latest.next(random, 200));
        let top = (0..counts.len()).max_by_key(|&item| counts[item]);
        assert_eq!(top, Some(199));
        assert!(counts[0] < counts[199] / 20);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The FNV-1a hash of eight zero bytes, from the definition by repeated multiplication.
        let mut expected = 0xcbf2_9ce4_8422_2325u64;
        for _ in 0..8 {
            expected = expected.wrapping_mul(0x0000_0100_0000_01b3);
        }
        assert_eq!(fnv_hash(0), (expected as i64).unsigned_abs());
        assert_ne!(fnv_hash(1), fnv_hash(256));
    }
}
