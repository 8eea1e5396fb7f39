//! The records: keys of 16 bytes, values of 100 that say whose they are.

use super::peer::PeerError;

pub(super) const KEY_BYTES: usize = 16;
pub(super) const VALUE_BYTES: usize = 100;

pub(super) type Key = [u8; KEY_BYTES];
pub(super) type Value = [u8; VALUE_BYTES];

/// How keys follow from numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// In the order of the numbers.
    Sorted,
    /// In an order that has nothing to do with it.
    Random,
}

/// SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): one to one.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Keys {
    pub(super) fn key(self, number: u64) -> Key {
        match self {
            Self::Sorted => u128::from(number).to_be_bytes(),
            Self::Random => {
                let (high, low) = (mix(number + 1), mix(!number));
                (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
            }
        }
    }
}

/// One of the values that the key of a number may have.
pub(super) fn value(number: u64, version: u16) -> Value {
    let seed = number << 16 | u64::from(version);
    let mut value = [0; VALUE_BYTES];
    for (at, bytes) in (0..).zip(value.chunks_mut(8)) {
        let word = seed.wrapping_add(at * seed.rotate_left(17));
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    value
}

/// Finds a value that is not one of the key's.
pub(super) fn check(number: u64, found: &[u8]) -> Result<(), PeerError> {
    let version = found.first_chunk().map_or(0, |version| u16::from_le_bytes(*version));
    match found == value(number, version) {
        true => Ok(()),
        false => Err(format!("record {number} has a value that it was never given").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_number_and_whole() {
        let mut given = value(77, 3);
        assert!(check(77, &given).is_ok());
        assert!(check(78, &given).is_err());
        assert!(check(77, &given[..99]).is_err());
        given[99] ^= 1;
        assert!(check(77, &given).is_err());
    }

    #[test]
    fn sorted_keys_ascend_and_random_ones_are_as_many() {
        let keys: Vec<_> = (0..1000).map(|number| Keys::Sorted.key(number)).collect();
        assert!(keys.is_sorted());
        let mut keys: Vec<_> = (0..1000).map(|number| Keys::Random.key(number)).collect();
        assert!(!keys.is_sorted());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
    }
}
