//! What an index holds, as the checker remembers it.

use std::fmt;

/// Keys and values in the order of the keys.
///
/// Lists, because a checker compares them with an index, from end to end, a thousand times for each
/// time that it changes them; and one of keys and one of values, because lists of words are hashed
/// and compared many words at a time.
#[derive(PartialEq, Eq, Hash)]
pub struct Entries<B> {
    keys: Vec<B>,
    values: Vec<u64>,
}

/// What is copied is going to be changed by a few operations.
const ROOM_IN_COPY: usize = 16;

impl<B: Clone> Clone for Entries<B> {
    fn clone(&self) -> Self {
        fn copy<T: Clone>(list: &[T]) -> Vec<T> {
            let mut copy = Vec::with_capacity(list.len() + ROOM_IN_COPY);
            copy.extend_from_slice(list);
            copy
        }
        Self { keys: copy(&self.keys), values: copy(&self.values) }
    }

    fn clone_from(&mut self, other: &Self) {
        self.keys.clone_from(&other.keys);
        self.values.clone_from(&other.values);
    }
}

impl<B> Default for Entries<B> {
    fn default() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }
}

impl<B: fmt::Debug> fmt::Debug for Entries<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<B> Entries<B> {
    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys in order.
    pub fn keys(&self) -> &[B] {
        &self.keys
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&B, u64)> {
        self.keys.iter().zip(self.values.iter().copied())
    }

    /// The entry of this number, if there are so many.
    pub fn entry(&self, at: usize) -> Option<(&B, u64)> {
        Some((self.keys.get(at)?, *self.values.get(at)?))
    }
}

impl<B: Ord> Entries<B> {
    /// The entries, which are in any order.
    ///
    /// # Errors
    /// A key that is there twice.
    pub fn of(mut entries: Vec<(B, u64)>) -> Result<Self, B> {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_unstable();
            if let Some(twice) = entries.windows(2).position(|pair| pair[0].0 == pair[1].0) {
                return Err(entries.swap_remove(twice).0);
            }
        }
        let (keys, values) = entries.into_iter().unzip();
        Ok(Self { keys, values })
    }

    /// Where the key is, or would be.
    fn place(&self, key: &B) -> Result<usize, usize> {
        self.keys.binary_search(key)
    }

    /// The value of a key.
    pub fn get(&self, key: &B) -> Option<u64> {
        self.place(key).ok().map(|at| self.values[at])
    }

    /// The first entry whose key is not smaller.
    pub fn at_or_after(&self, key: &B) -> Option<(&B, u64)> {
        let (Ok(at) | Err(at)) = self.place(key);
        self.entry(at)
    }

    /// The last entry whose key is smaller.
    pub fn before(&self, key: &B) -> Option<(&B, u64)> {
        let (Ok(at) | Err(at)) = self.place(key);
        self.entry(at.checked_sub(1)?)
    }

    /// Adds the key, or replaces its value if `replace`.
    pub fn insert(&mut self, key: B, value: u64, replace: bool) {
        match self.place(&key) {
            Err(at) => {
                self.keys.insert(at, key);
                self.values.insert(at, value);
            }
            Ok(at) if replace => self.values[at] = value,
            Ok(_) => {}
        }
    }

    /// Replaces the value of a key that is there.
    pub fn update(&mut self, key: &B, value: u64) {
        if let Ok(at) = self.place(key) {
            self.values[at] = value;
        }
    }

    /// Removes a key that is there.
    pub fn remove(&mut self, key: &B) {
        if let Ok(at) = self.place(key) {
            self.keys.remove(at);
            self.values.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_order_and_a_key_is_there_once() {
        let entries = Entries::of(vec![(3, 1), (1, 2)]).unwrap();
        assert_eq!((entries.keys(), entries.values()), (&[1, 3][..], &[2, 1][..]));
        assert_eq!(Entries::of(vec![(3, 1), (1, 2), (3, 4)]), Err(3));
    }

    #[test]
    fn changes_keep_the_order_and_say_what_a_map_would() {
        let mut entries = Entries::default();
        for (key, value, replace) in [(5, 1, false), (2, 1, false), (5, 7, false), (2, 9, true)] {
            entries.insert(key, value, replace);
        }
        entries.update(&4, 1);
        assert!(entries.iter().eq([(&2, 9), (&5, 1)]));
        assert_eq!((entries.get(&5), entries.get(&4)), (Some(1), None));
        assert_eq!((entries.before(&5), entries.at_or_after(&3)), (Some((&2, 9)), Some((&5, 1))));
        entries.remove(&2);
        entries.update(&5, 3);
        assert_eq!((entries.len(), entries.entry(0)), (1, Some((&5, 3))));
    }
}
