//! Integer keys for index experiments.
//!
//! The first three distributions are those of Lee, Lim, Song, Nam and Noh (*WORT*, FAST 2017,
//! figure 6), which span the extremes of what a radix tree meets:
//!
//! | distribution | the keys | requests |
//! |---|---|---|
//! | dense | 1, 2, 3 … | uniform |
//! | sparse | spread evenly: one in each of N equal slices of the 64-bit numbers | uniform |
//! | clustered | runs of 64 successive numbers that begin anywhere, scattered evenly | uniform |
//! | uniform | drawn at random from the 64-bit numbers, so unevenly spread | uniform |
//! | zipf | as uniform | zipfian, theta 0.99, popular keys scattered |
//!
//! Keys are distinct, come in random order, and depend on nothing but the seed.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};

use crate::named::named;
use crate::zipfian::ScrambledZipfian;

/// Successive keys in a run of [`Distribution::Clustered`].
pub const CLUSTER_KEYS: u64 = 64;

/// Numbers of which runs of one part of a [`KeySet`] keep to one half, and so apart from those of the
/// other. A run that would leave its half begins earlier, one in 16,384.
const CLUSTER_ROOM: u64 = 1 << 21;

named! {
    /// How keys lie in the 64-bit numbers, and how often each is asked for.
    pub enum Distribution {
        /// Successive numbers.
        Dense = "dense",
        /// Spread evenly.
        Sparse = "sparse",
        /// Runs of successive numbers, spread evenly.
        Clustered = "clustered",
        /// Drawn at random.
        Uniform = "uniform",
        /// Drawn at random; some are asked for much more often than others.
        Zipf = "zipf",
    }
}

/// The keys of one experiment: those an index is loaded with, and others to be inserted later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    distribution: Distribution,
    loaded: Vec<u64>,
    fresh: Vec<u64>,
}

impl KeySet {
    /// `loaded` keys to load and `fresh` more of the same distribution, all distinct, each part in
    /// random order.
    pub fn generate(distribution: Distribution, loaded: usize, fresh: usize, seed: u64) -> Self {
        let (first, second) = (loaded as u64, fresh as u64);
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut loaded, mut fresh): (Vec<u64>, Vec<u64>) = match distribution {
            Distribution::Dense => ((1..=first).collect(), (first + 1..=first + second).collect()),
            // The lowest bit keeps the two parts apart.
            Distribution::Sparse => (
                spread(first, &mut random).map(|key| key & !1).collect(),
                spread(second, &mut random).map(|key| key | 1).collect(),
            ),
            Distribution::Clustered => (
                clusters(first, 0, &mut random).collect(),
                clusters(second, 1, &mut random).collect(),
            ),
            Distribution::Uniform | Distribution::Zipf => {
                let offset: u64 = random.random();
                let draw = |i: u64| scatter(offset.wrapping_add(i));
                ((0..first).map(draw).collect(), (first..first + second).map(draw).collect())
            }
        };
        loaded.shuffle(&mut random);
        fresh.shuffle(&mut random);
        Self { distribution, loaded, fresh }
    }

    /// The keys to load, in the order of loading.
    pub fn loaded(&self) -> &[u64] {
        &self.loaded
    }

    /// The keys to load, without the others.
    pub fn into_loaded(self) -> Vec<u64> {
        self.loaded
    }

    /// Keys that are not among the loaded ones, in the order of insertion.
    pub fn fresh(&self) -> &[u64] {
        &self.fresh
    }

    /// A generator of positions in [`KeySet::loaded`], by the distribution of requests.
    pub fn requests(&self) -> Requests {
        let items = self.loaded.len() as u64;
        match self.distribution {
            Distribution::Zipf => Requests::Zipfian(ScrambledZipfian::new(items)),
            _ => Requests::Uniform { items: items.max(1) },
        }
    }
}

/// Draws positions of keys.
#[derive(Clone, Debug)]
pub enum Requests {
    /// Each as often as any other.
    Uniform {
        /// How many there are.
        items: u64,
    },
    /// Some much more often than others.
    Zipfian(ScrambledZipfian),
}

impl Requests {
    /// Draws a position.
    #[inline]
    pub fn next<R: Rng>(&self, random: &mut R) -> usize {
        match self {
            Self::Uniform { items } => random.random_range(0..*items) as usize,
            Self::Zipfian(zipfian) => zipfian.next(random) as usize,
        }
    }
}

/// One number at random from each of `count` equal slices of the 64-bit numbers, ascending.
fn spread<'r>(count: u64, random: &'r mut SmallRng) -> impl Iterator<Item = u64> + use<'r> {
    let width = if count > 1 { u64::MAX / count } else { u64::MAX };
    (0..count).map(move |slice| slice * width + random.random_range(0..width))
}

/// Runs of successive numbers, ascending; those of another `part` are other numbers.
fn clusters<'r>(
    keys: u64,
    part: u64,
    random: &'r mut SmallRng,
) -> impl Iterator<Item = u64> + use<'r> {
    let runs = keys.div_ceil(CLUSTER_KEYS);
    // Rooms are spread evenly; where in its half of the room a run begins is any number, a multiple
    // of nothing.
    let rooms = u64::MAX / CLUSTER_ROOM / runs.max(1);
    let starts = (0..runs).map(move |run| {
        let room = run * rooms + random.random_range(0..rooms);
        let least = room * CLUSTER_ROOM + part * (CLUSTER_ROOM / 2);
        let start = random.random_range(0..CLUSTER_ROOM / 2);
        least + start.min(CLUSTER_ROOM / 2 - CLUSTER_KEYS)
    });
    starts.flat_map(|start| (0..CLUSTER_KEYS).map(move |i| start + i)).take(keys as usize)
}

/// Calls `visit` for the keys that a [`KeySet`] of this kind and seed has to load, in ascending order,
/// without keeping them. None for distributions whose keys come in no order.
pub fn for_each_ascending(
    distribution: Distribution,
    count: usize,
    seed: u64,
    visit: impl FnMut(u64),
) -> Option<()> {
    let (count, mut random) = (count as u64, SmallRng::seed_from_u64(seed));
    match distribution {
        Distribution::Dense => (1..=count).for_each(visit),
        Distribution::Sparse => spread(count, &mut random).map(|key| key & !1).for_each(visit),
        Distribution::Clustered => clusters(count, 0, &mut random).for_each(visit),
        Distribution::Uniform | Distribution::Zipf => return None,
    }
    Some(())
}

/// A bijection of the 64-bit numbers that looks random (the finaliser of SplitMix64, Steele, Lea
/// and Flood, OOPSLA 2014): distinct numbers have distinct images.
#[inline]
pub fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_keys_and_another_seed_another_order() {
        for distribution in Distribution::ALL {
            let keys = KeySet::generate(distribution, 1000, 500, 1);
            assert_eq!(keys, KeySet::generate(distribution, 1000, 500, 1), "{distribution}");
            assert_ne!(keys, KeySet::generate(distribution, 1000, 500, 2), "{distribution}");
        }
    }

    #[test]
    fn all_keys_are_distinct() {
        for distribution in Distribution::ALL {
            for (loaded, fresh) in [(0, 0), (1, 1), (63, 65), (10_000, 3_001)] {
                let keys = KeySet::generate(distribution, loaded, fresh, 42);
                let all: BTreeSet<u64> =
                    keys.loaded().iter().chain(keys.fresh()).copied().collect();
                assert_eq!(keys.loaded().len(), loaded, "{distribution}");
                assert_eq!(keys.fresh().len(), fresh, "{distribution}");
                assert_eq!(all.len(), loaded + fresh, "{distribution}");
            }
        }
    }

    #[test]
    fn dense_keys_are_one_to_n() {
        let mut keys = KeySet::generate(Distribution::Dense, 100, 0, 5).loaded().to_vec();
        assert_ne!(keys[..3], [1, 2, 3], "they come in random order");
        keys.sort_unstable();
        assert_eq!(keys, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn clustered_keys_come_in_whole_runs() {
        let mut keys = KeySet::generate(Distribution::Clustered, 64 * 50, 0, 5).loaded().to_vec();
        keys.sort_unstable();
        for run in keys.chunks(64) {
            assert_eq!(run[63] - run[0], 63);
        }
        assert!(keys.chunks(64).zip(keys.chunks(64).skip(1)).all(|(a, b)| b[0] - a[63] > 1 << 40));
    }

    #[test]
    fn the_ascending_keys_are_those_that_are_loaded() {
        for distribution in Distribution::ALL {
            let mut loaded = KeySet::generate(distribution, 5000, 700, 3).into_loaded();
            loaded.sort_unstable();
            let mut ascending = Vec::new();
            match for_each_ascending(distribution, 5000, 3, |key| ascending.push(key)) {
                Some(()) => assert_eq!(ascending, loaded, "{distribution}"),
                None => {
                    assert!(matches!(distribution, Distribution::Uniform | Distribution::Zipf));
                }
            }
        }
    }

    #[test]
    fn clustered_runs_begin_anywhere() {
        let mut keys = KeySet::generate(Distribution::Clustered, 64 * 4096, 0, 5).loaded().to_vec();
        keys.sort_unstable();
        let places: BTreeSet<u64> = keys.chunks(64).map(|run| run[0] % 64).collect();
        assert_eq!(places.len(), 64);
        // 63 of the 256 places in a last byte make a run cross into the next.
        let crossing = keys.chunks(64).filter(|run| run[0] >> 8 != run[63] >> 8).count();
        assert!((850..1170).contains(&crossing), "{crossing}");
    }

    #[test]
    fn sparse_keys_fill_every_slice_once_and_uniform_ones_do_not() {
        let slices = |distribution| {
            let keys = KeySet::generate(distribution, 4096, 0, 9);
            keys.loaded().iter().map(|key| key >> 52).collect::<BTreeSet<_>>().len()
        };
        // One key may sit on either side of a slice's rounded border.
        assert!(slices(Distribution::Sparse) >= 4090);
        // Of 4096 balls in 4096 urns, about 63 % of the urns are hit.
        let hit = slices(Distribution::Uniform);
        assert!((2400..2800).contains(&hit), "{hit}");
    }

    #[test]
    fn only_zipf_asks_for_some_keys_more_often() {
        let top_share = |distribution| {
            let keys = KeySet::generate(distribution, 1000, 0, 3);
            let (requests, mut random) = (keys.requests(), SmallRng::seed_from_u64(4));
            let mut counts = HashMap::new();
            for _ in 0..100_000 {
                *counts.entry(requests.next(&mut random)).or_insert(0u64) += 1;
            }
            counts.into_values().max().unwrap_or(0) as f64 / 100_000.0
        };
        assert!(top_share(Distribution::Zipf) > 0.03);
        assert!(top_share(Distribution::Uniform) < 0.003);
    }
}
