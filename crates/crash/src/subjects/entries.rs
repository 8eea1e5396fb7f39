//! What an index holds, as the checker remembers it.

use std::fmt;

/// Keys and values in the order of the keys.
///
/// A list, because a checker compares it with an index, from end to end, a thousand times for each
/// time that it changes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Entries<B>(Vec<(B, u64)>);

impl<B> Default for Entries<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: fmt::Debug> fmt::Debug for Entries<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value))).finish()
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
        Ok(Self(entries))
    }

    /// The entries in order.
    pub fn as_slice(&self) -> &[(B, u64)] {
        &self.0
    }

    /// Where the key is, or would be.
    fn place(&self, key: &B) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }

    /// The value of a key.
    pub fn get(&self, key: &B) -> Option<u64> {
        self.place(key).ok().map(|at| self.0[at].1)
    }

    /// The first entry whose key is not smaller.
    pub fn at_or_after(&self, key: &B) -> Option<&(B, u64)> {
        let (Ok(at) | Err(at)) = self.place(key);
        self.0.get(at)
    }

    /// The last entry whose key is smaller.
    pub fn before(&self, key: &B) -> Option<&(B, u64)> {
        let (Ok(at) | Err(at)) = self.place(key);
        self.0.get(at.checked_sub(1)?)
    }

    /// Adds the key, or replaces its value if `replace`.
    pub fn insert(&mut self, key: B, value: u64, replace: bool) {
        match self.place(&key) {
            Err(at) => self.0.insert(at, (key, value)),
            Ok(at) if replace => self.0[at].1 = value,
            Ok(_) => {}
        }
    }

    /// Replaces the value of a key that is there.
    pub fn update(&mut self, key: &B, value: u64) {
        if let Ok(at) = self.place(key) {
            self.0[at].1 = value;
        }
    }

    /// Removes a key that is there.
    pub fn remove(&mut self, key: &B) {
        if let Ok(at) = self.place(key) {
            self.0.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_order_and_a_key_is_there_once() {
        assert_eq!(Entries::of(vec![(3, 1), (1, 2)]).unwrap().as_slice(), [(1, 2), (3, 1)]);
        assert_eq!(Entries::of(vec![(3, 1), (1, 2), (3, 4)]), Err(3));
    }

    #[test]
    fn changes_keep_the_order_and_say_what_a_map_would() {
        let mut entries = Entries::default();
        for (key, value, replace) in [(5, 1, false), (2, 1, false), (5, 7, false), (2, 9, true)] {
            entries.insert(key, value, replace);
        }
        entries.update(&4, 1);
        assert_eq!(entries.as_slice(), [(2, 9), (5, 1)]);
        assert_eq!((entries.get(&5), entries.get(&4)), (Some(1), None));
        assert_eq!((entries.before(&5), entries.at_or_after(&3)), (Some(&(2, 9)), Some(&(5, 1))));
        entries.remove(&2);
        entries.update(&5, 3);
        assert_eq!(entries.as_slice(), [(5, 3)]);
    }
}
