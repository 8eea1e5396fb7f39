//! What a node holds, in a form that is easily changed: its entries in the order of keys, and between
//! each two neighbours the *gap*, the position of the bit in which the keys of one and of the other
//! first differ.
//!
//! The gaps are all there is to know of the binary trie in a node: it is their Cartesian tree. The root
//! is the smallest gap, and what lies to its left and to its right are the two tries below.

use std::ops::Range;

use super::entry::Entry;

/// Entries of a node at most.
pub const FANOUT: usize = 32;

/// Entries and gaps. There is room for one more than a node has.
#[derive(Clone, Debug)]
pub struct Contents {
    count: usize,
    entries: [Entry; FANOUT + 1],
    gaps: [u32; FANOUT],
}

impl Contents {
    const EMPTY: Self = Self { count: 0, entries: [Entry::NONE; FANOUT + 1], gaps: [0; FANOUT] };

    /// These entries and what is between them. There are not more than a node has.
    pub fn of(entries: &[Entry], gaps: &[u32]) -> Self {
        let mut contents = Self { count: entries.len(), ..Self::EMPTY };
        contents.entries[..entries.len()].copy_from_slice(entries);
        contents.gaps[..gaps.len()].copy_from_slice(gaps);
        contents
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    pub fn gaps(&self) -> &[u32] {
        &self.gaps[..self.count.saturating_sub(1)]
    }

    /// Whether there is more than fits into a node.
    pub fn overflows(&self) -> bool {
        self.count > FANOUT
    }

    /// One more than the height of any entry; none if that is too much.
    pub fn height(&self) -> Option<u16> {
        self.entries().iter().map(|entry| entry.height()).max().unwrap_or(0).checked_add(1)
    }

    fn put(&mut self, at: usize, entry: Entry, gap_at: usize, gap: u32) {
        self.entries.copy_within(at..self.count, at + 1);
        self.entries[at] = entry;
        self.gaps.copy_within(gap_at..self.count - 1, gap_at + 1);
        self.gaps[gap_at] = gap;
        self.count += 1;
    }

    /// Adds the entry of a key that first differs at `position`, with this `bit` there, from the keys
    /// of the entry at `index` and of those that share its way up to `position`.
    pub fn insert(&mut self, index: usize, position: u32, bit: bool, entry: Entry) {
        let Range { start, end } = sharing(self.gaps(), index, position);
        if bit {
            self.put(end, entry, end - 1, position);
        } else {
            self.put(start, entry, start, position);
        }
    }

    /// Puts two entries, which differ at `position`, in the place of one.
    pub fn replace_by_two(&mut self, index: usize, two: [Entry; 2], position: u32) {
        self.entries[index] = two[0];
        self.put(index + 1, two[1], index, position);
    }

    /// Takes an entry out, and the branch of the trie at which it was.
    pub fn remove(&mut self, index: usize) {
        let gaps = self.gaps();
        if !gaps.is_empty() {
            let gap = match (index.checked_sub(1).map(|left| gaps[left]), gaps.get(index)) {
                (Some(left), Some(&right)) if left < right => index,
                (None, _) => index,
                _ => index - 1,
            };
            self.gaps.copy_within(gap + 1..self.count - 1, gap);
        }
        self.entries.copy_within(index + 1..self.count, index);
        self.count -= 1;
    }

    /// Takes out what is nothing; says whether there was any.
    pub fn remove_empty(&mut self) -> bool {
        let before = self.count;
        while let Some(index) = self.entries().iter().position(|entry| entry.is_none()) {
            self.remove(index);
        }
        self.count < before
    }

    /// Replaces the entry at `index`.
    pub fn replace(&mut self, index: usize, entry: Entry) {
        self.entries[index] = entry;
    }

    /// Where an entry is.
    pub fn index_of(&self, entry: Entry) -> Option<usize> {
        self.entries().iter().position(|&other| other == entry)
    }

    /// The two tries below the root of this one, which has at least two entries, and its position.
    pub fn split(&self) -> (Self, u32, Self) {
        let (entries, gaps) = (self.entries(), self.gaps());
        let root = (0..gaps.len()).min_by_key(|&gap| gaps[gap]).unwrap_or(0);
        let left = Self::of(&entries[..=root], &gaps[..root]);
        (left, gaps[root], Self::of(&entries[root + 1..], &gaps[root + 1..]))
    }

    /// The trie whose root is at `position` and has these two below it; they fit into a node.
    pub fn join(left: &Self, position: u32, right: &Self) -> Self {
        let mut both = left.clone();
        both.gaps[left.count - 1] = position;
        both.gaps[left.count..][..right.gaps().len()].copy_from_slice(right.gaps());
        both.entries[left.count..][..right.count].copy_from_slice(right.entries());
        both.count += right.count;
        both
    }

    /// The left one of the two entries that are below one branch of the trie, both alone, of which one
    /// is at `index`; none if it has no such partner.
    pub fn pair_of(&self, index: usize) -> Option<usize> {
        let gaps = self.gaps();
        let gap = |number: Option<usize>| number.and_then(|number| gaps.get(number)).copied();
        let (left, right) = (gap(index.checked_sub(1)), gap(Some(index)));
        match right > left {
            true => (gap(Some(index + 1)) < right).then_some(index),
            false => {
                let partner = index.checked_sub(1)?;
                (gap(partner.checked_sub(1)) < left).then_some(partner)
            }
        }
    }
}

/// The entries on whose way the entry at `index` is up to `position`: they agree with it in all bits before.
pub fn sharing(gaps: &[u32], index: usize, position: u32) -> Range<usize> {
    let before = gaps[..index].iter().rev().take_while(|&&gap| gap > position).count();
    let behind = gaps[index..].iter().take_while(|&&gap| gap > position).count();
    index - before..index + behind + 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What a set of keys, which are their own entries, looks like.
    fn expected(keys: &BTreeMap<u64, ()>) -> (Vec<Entry>, Vec<u32>) {
        let keys: Vec<u64> = keys.keys().copied().collect();
        let gaps = keys.windows(2).map(|two| (two[0] ^ two[1]).leading_zeros()).collect();
        (keys.into_iter().map(Entry).collect(), gaps)
    }

    /// The entry to which the bits of `key` lead.
    fn candidate(contents: &Contents, key: u64) -> usize {
        let (mut from, mut to) = (0, contents.entries().len() - 1);
        while from < to {
            let root = (from..to).min_by_key(|&gap| contents.gaps()[gap]).unwrap();
            if key << contents.gaps()[root] >> 63 == 1 { from = root + 1 } else { to = root }
        }
        from
    }

    proptest! {
        #[test]
        fn insertions_and_removals_leave_the_trie_of_the_keys_that_are_there(
            changes in prop::collection::vec((any::<bool>(), 0u64..90), 1..200),
            spread in prop::sample::select(vec![1u64, 0x0101_0101, 0x9E37_79B9_7F4A_7C15]),
        ) {
            let mut keys = BTreeMap::from([(1, ())]);
            let mut contents = Contents::of(&[Entry(1)], &[]);
            for (removes, number) in changes {
                let key = number.wrapping_mul(spread) | 1;
                let index = candidate(&contents, key);
                let Entry(known) = contents.entries()[index];
                if known == key && removes && keys.len() > 1 {
                    contents.remove(index);
                    keys.remove(&key);
                } else if known != key && keys.len() < FANOUT {
                    contents.insert(index, (known ^ key).leading_zeros(), key > known, Entry(key));
                    keys.insert(key, ());
                }
                let (entries, gaps) = expected(&keys);
                prop_assert_eq!((contents.entries(), contents.gaps()), (&entries[..], &gaps[..]));
                if keys.len() > 1 {
                    let (left, position, right) = contents.split();
                    let joined = Contents::join(&left, position, &right);
                    prop_assert_eq!(joined.entries(), contents.entries());
                    prop_assert_eq!(joined.gaps(), contents.gaps());
                    prop_assert!(left.gaps().iter().chain(right.gaps()).all(|&gap| gap > position));
                }
            }
        }
    }

    #[test]
    fn partners_are_two_entries_alone_below_a_branch() {
        let entries: Vec<Entry> = (1..=5).map(Entry).collect();
        // 1 and 2 below 9; 3 below 7 with 4 and 5, which are below 8.
        let contents = Contents::of(&entries, &[9, 3, 7, 8]);
        let pairs: Vec<_> = (0..5).map(|index| contents.pair_of(index)).collect();
        assert_eq!(pairs, [Some(0), Some(0), None, Some(3), Some(3)]);
        assert_eq!(Contents::of(&entries[..1], &[]).pair_of(0), None);
    }

    #[test]
    fn what_is_nothing_is_taken_out() {
        let entries = [Entry(1), Entry::NONE, Entry(3), Entry::NONE];
        let mut contents = Contents::of(&entries, &[5, 2, 9]);
        assert!(contents.remove_empty() && !contents.remove_empty());
        assert_eq!((contents.entries(), contents.gaps()), (&[Entry(1), Entry(3)][..], &[2][..]));
        contents.replace_by_two(1, [Entry(7), Entry(8)], 4);
        assert_eq!((contents.index_of(Entry(8)), contents.gaps()), (Some(2), &[2, 4][..]));
    }
}
