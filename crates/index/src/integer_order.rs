//! Putting the integer keys of a leaf that does not keep them in order in order.
//!
//! A sort of pairs guesses its branches wrong. Here a key's distance from the least and its place are one word, where
//! they fit into one: and words are sorted without branches. They do not fit in a tree of few leaves, whose keys
//! lie far apart.

/// Places at most.
pub const MOST_PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 7;

/// Keys and their places, in the order of both.
#[derive(Debug)]
pub struct IntegerOrder {
    keys: [u64; MOST_PLACES],
    /// Each with a place in its low bits.
    words: [u64; MOST_PLACES],
    count: usize,
}

impl IntegerOrder {
    /// Of keys and their places, of which each occurs once.
    ///
    /// # Panics
    /// If a place is not below [`MOST_PLACES`].
    #[inline(always)]
    pub fn of(entries: impl Iterator<Item = (u64, usize)>) -> Self {
        let mut keys = [0; MOST_PLACES];
        let mut words = [0; MOST_PLACES];
        let (mut count, mut least, mut greatest) = (0, u64::MAX, 0);
        for ((key, place), word) in entries.zip(&mut words) {
            keys[place] = key;
            *word = place as u64;
            (least, greatest) = (least.min(key), greatest.max(key));
            count += 1;
        }
        let found = &mut words[..count];
        if greatest.saturating_sub(least) >> (u64::BITS - PLACE_BITS) == 0 {
            for word in &mut *found {
                *word |= (keys[*word as usize % MOST_PLACES] - least) << PLACE_BITS;
            }
            found.sort_unstable();
        } else {
            found.sort_unstable_by_key(|place| (keys[*place as usize % MOST_PLACES], *place));
        }
        Self { keys, words, count }
    }

    /// Keys and places in order.
    #[inline(always)]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, usize)> {
        self.words[..self.count].iter().map(|word| {
            let place = *word as usize % MOST_PLACES;
            (self.keys[place], place)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that lie so far apart, some of them equal, in no order.
    fn keys(count: usize, distance: u64) -> Vec<u64> {
        (0..count as u64).map(|number| (number * 37 % 64).wrapping_mul(distance)).collect()
    }

    #[test]
    fn keys_are_in_order_and_equal_ones_in_that_of_their_places() {
        for distance in [1, 1 << 40, 1 << 52, u64::MAX / 64] {
            for count in [0, 1, 2, 7, 56, MOST_PLACES] {
                let keys = keys(count, distance);
                let order = IntegerOrder::of(keys.iter().copied().zip((0..count).rev()));
                let mut expected: Vec<_> = keys.iter().copied().zip((0..count).rev()).collect();
                expected.sort();
                assert!(order.entries().eq(expected), "{count} keys, {distance} apart");
            }
        }
    }

    #[test]
    fn the_least_and_the_greatest_key_may_be_those_of_the_type() {
        let order = IntegerOrder::of([(u64::MAX, 0), (0, 9), (u64::MAX - 1, 3)].into_iter());
        assert!(order.entries().eq([(0, 9), (u64::MAX - 1, 3), (u64::MAX, 0)]));
    }
}
