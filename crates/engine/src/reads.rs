//! What a transaction has read, and whether somebody has written it since.

use std::collections::HashSet;
use std::ops::Bound;

use crate::key_range::KeyRange;
use crate::tables::TableId;

/// What a transaction has read of the committed state.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Hashes of keys. Two keys of one hash cost a transaction that is begun again for nothing.
    keys: HashSet<u64>,
    ranges: Vec<(TableId, KeyRange)>,
}

impl ReadSet {
    pub(crate) fn add_key(&mut self, hash: u64) {
        self.keys.insert(hash);
    }

    /// Adds a range; returns its place, for [`ReadSet::set_range`].
    pub(crate) fn add_range(&mut self, table: TableId, range: KeyRange) -> usize {
        self.ranges.push((table, range));
        self.ranges.len() - 1
    }

    /// Says how far a range was read in truth.
    pub(crate) fn set_range(&mut self, at: usize, range: KeyRange) {
        self.ranges[at].1 = range;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Whether one of the keys was read.
    pub(crate) fn has_any_of(&self, written: &WrittenKeys) -> bool {
        let by_hash = match self.keys.len() < written.keys.len() {
            true => self.keys.iter().any(|hash| written.hashes.contains(hash)),
            false => written.hashes.iter().any(|hash| self.keys.contains(hash)),
        };
        by_hash || self.ranges.iter().any(|(table, range)| written.has_key_in(*table, range))
    }
}

/// The keys that a transaction wrote, for those that may have read them.
#[derive(Debug, Default)]
pub(crate) struct WrittenKeys {
    hashes: HashSet<u64>,
    /// In order.
    keys: Vec<(TableId, Box<[u8]>)>,
}

impl WrittenKeys {
    /// Adds keys, which come in order of table and key.
    pub(crate) fn add(&mut self, table: TableId, key: &[u8], hash: u64) {
        self.hashes.insert(hash);
        self.keys.push((table, key.into()));
    }

    fn has_key_in(&self, table: TableId, range: &KeyRange) -> bool {
        let is_before = |(of, key): &(TableId, Box<[u8]>)| match range.lower() {
            Bound::Unbounded => *of < table,
            Bound::Included(lower) => (*of, &**key) < (table, lower),
            Bound::Excluded(lower) => (*of, &**key) <= (table, lower),
        };
        let first = self.keys.partition_point(is_before);
        self.keys.get(first).is_some_and(|(of, key)| *of == table && range.is_before_end(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripes::hash_of;

    fn written(keys: &[(TableId, &[u8])]) -> WrittenKeys {
        let mut written = WrittenKeys::default();
        for &(table, key) in keys {
            written.add(table, key, hash_of(table, key));
        }
        written
    }

    #[test]
    fn a_key_that_was_read_and_written_is_found_and_others_are_not() {
        let mut reads = ReadSet::default();
        reads.add_key(hash_of(1, b"b"));
        assert!(reads.has_any_of(&written(&[(1, b"a"), (1, b"b")])));
        assert!(!reads.has_any_of(&written(&[(1, b"a"), (2, b"b")])));
    }

    #[test]
    fn a_key_within_a_range_that_was_read_is_found_even_if_it_is_new() {
        let mut reads = ReadSet::default();
        reads.add_range(1, KeyRange::new(&(b"b".as_slice()..b"d".as_slice())));
        assert!(reads.has_any_of(&written(&[(1, b"c")])));
        assert!(reads.has_any_of(&written(&[(1, b"a"), (1, b"b"), (1, b"z")])));
        assert!(!reads.has_any_of(&written(&[(1, b"a"), (1, b"d"), (2, b"c")])));
    }
}
