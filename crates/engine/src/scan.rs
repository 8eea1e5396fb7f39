//! Ranges of keys, and what lies in them at one state.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use lapis_pmem::Domain;

use crate::error::EngineError;
use crate::snapshot::Reader;
use crate::tables::Table;
use crate::transaction::Reading;
use crate::versions::Replaced;

/// Entries fetched at once: few at first, because many scans are short, then twice as many each time.
const FIRST_BATCH_ENTRIES: usize = 16;
const LARGEST_BATCH_ENTRIES: usize = 256;
/// Bytes after which a batch ends early.
const BATCH_BYTES: usize = 1 << 18;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards larger keys.
    Forward,
    /// Towards smaller keys.
    Backward,
}

/// Bounds on keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
}

fn borrowed(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl KeyRange {
    /// All keys.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// The keys in a range of anything that is bytes.
    pub fn new<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| Box::from(key.as_ref()));
        Self { lower: owned(range.start_bound()), upper: owned(range.end_bound()) }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        // The next key of the same length or shorter: drop trailing 0xFF, add one to the last.
        while end.pop_if(|last| *last == 0xFF).is_some() {}
        let upper = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end.into())
            }
            None => Bound::Unbounded,
        };
        Self { lower: Bound::Included(prefix.into()), upper }
    }

    /// The bound below.
    pub fn lower(&self) -> Bound<&[u8]> {
        borrowed(&self.lower)
    }

    /// The bound above.
    pub fn upper(&self) -> Bound<&[u8]> {
        borrowed(&self.upper)
    }

    pub(crate) fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= &**lower,
            Bound::Excluded(lower) => key > &**lower,
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= &**upper,
            Bound::Excluded(upper) => key < &**upper,
            Bound::Unbounded => true,
        }
    }

    /// Whether the key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_after_start(key) && self.is_before_end(key)
    }

    /// Whether no key can lie in it. Some bounds that leave none are not noticed, which does no harm.
    pub(crate) fn is_empty(&self) -> bool {
        let (lower, upper) = match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => return lower > upper,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => return false,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => (lower, upper),
        };
        lower >= upper
    }

    /// The part that lies beyond `key`.
    fn beyond(&mut self, key: &[u8], direction: Direction) {
        match direction {
            Direction::Forward => self.lower = Bound::Excluded(key.into()),
            Direction::Backward => self.upper = Bound::Excluded(key.into()),
        }
    }

    /// The part up to `key`, that included.
    fn up_to(&self, key: &[u8], direction: Direction) -> Self {
        match direction {
            Direction::Forward => {
                Self { lower: self.lower.clone(), upper: Bound::Included(key.into()) }
            }
            Direction::Backward => {
                Self { lower: Bound::Included(key.into()), upper: self.upper.clone() }
            }
        }
    }
}

/// A key and its value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// One end of a scan.
#[derive(Debug)]
struct End {
    direction: Direction,
    fetched: VecDeque<Entry>,
    /// What is still to be fetched, seen from this end alone.
    rest: KeyRange,
    batch: usize,
    /// There is nothing more.
    exhausted: bool,
    /// Its place among the ranges that the transaction has read.
    noted: Option<usize>,
}

impl End {
    fn new(range: &KeyRange, direction: Direction) -> Self {
        Self {
            direction,
            fetched: VecDeque::new(),
            rest: range.clone(),
            batch: FIRST_BATCH_ENTRIES,
            exhausted: range.is_empty(),
            noted: None,
        }
    }
}

/// The entries of a range at one state, from both ends, fetched as they are asked for.
pub struct Scan<'t, D: Domain> {
    reader: Arc<Reader<D>>,
    table: Arc<Table<D>>,
    /// Of a transaction that sees its own writes.
    reading: Option<Reading<'t, D>>,
    range: KeyRange,
    /// What has not been returned from either end.
    rest: KeyRange,
    front: End,
    back: End,
    failed: bool,
}

impl<D: Domain> std::fmt::Debug for Scan<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({:?})", self.range)
    }
}

impl<'t, D: Domain> Scan<'t, D> {
    pub(crate) fn new(
        reader: Arc<Reader<D>>,
        table: Arc<Table<D>>,
        reading: Option<Reading<'t, D>>,
        range: KeyRange,
    ) -> Self {
        let front = End::new(&range, Direction::Forward);
        let back = End::new(&range, Direction::Backward);
        Self { reader, table, reading, rest: range.clone(), range, front, back, failed: false }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<Entry, EngineError>> {
        loop {
            if self.failed {
                return None;
            }
            let end = match direction {
                Direction::Forward => &mut self.front,
                Direction::Backward => &mut self.back,
            };
            if let Some((key, mut value)) = end.fetched.pop_front() {
                // The other end may have been here.
                if !self.rest.contains(&key) {
                    return None;
                }
                self.rest.beyond(&key, direction);
                let shared = self.reader.engine().shared();
                let resolved = shared.resolve(&self.table, &key, &mut value);
                return Some(resolved.map(|()| (key, value)));
            }
            if end.exhausted {
                return None;
            }
            let fetched = fetch(end, &self.reader, &self.table, self.reading.as_ref(), &self.range);
            if let Err(error) = fetched {
                self.failed = true;
                return Some(Err(error));
            }
        }
    }
}

/// Fetches a batch: what the tree has, over that what was replaced since, over that what the transaction writes.
fn fetch<D: Domain>(
    end: &mut End,
    reader: &Reader<D>,
    table: &Arc<Table<D>>,
    reading: Option<&Reading<'_, D>>,
    range: &KeyRange,
) -> Result<(), EngineError> {
    let direction = end.direction;
    let mut found: Vec<Entry> = Vec::with_capacity(end.batch);
    let mut bytes = 0;
    let mut exhausted = true;
    table.contents().visit(&end.rest, direction, |key, value| {
        bytes += key.len() + value.len();
        found.push((key.to_vec(), value.to_vec()));
        if found.len() >= end.batch || bytes >= BATCH_BYTES {
            exhausted = false;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    end.batch = (end.batch * 2).min(LARGEST_BATCH_ENTRIES);
    // What this batch tells all about.
    let covered = match found.last() {
        Some((last, _)) if !exhausted => end.rest.up_to(last, direction),
        _ => end.rest.clone(),
    };
    if let Some(reading) = reading {
        let read = match (found.last(), direction) {
            (Some((last, _)), _) if !exhausted => range.up_to(last, direction),
            _ => range.clone(),
        };
        reading.note_range(table.id(), &mut end.noted, read);
    }
    let replaced = table.versions().find_range(reader.domain(), &covered, reader.since());
    overlay(&mut found, replaced, direction);
    if let Some(reading) = reading {
        let mine = reading.writes.range(table.id(), covered.lower(), covered.upper());
        let mine = mine.map(|(key, value)| (key.into(), value.map(Box::from))).collect();
        overlay(&mut found, mine, direction);
    }
    match (exhausted, direction) {
        (true, _) => end.exhausted = true,
        (false, Direction::Forward) => end.rest.lower = excluded(covered.upper),
        (false, Direction::Backward) => end.rest.upper = excluded(covered.lower),
    }
    end.fetched.extend(found);
    Ok(())
}

fn excluded(bound: Bound<Box<[u8]>>) -> Bound<Box<[u8]>> {
    match bound {
        Bound::Included(key) => Bound::Excluded(key),
        other => other,
    }
}

/// Lays ascending entries, of which some are removals, over those that were found.
fn overlay(found: &mut Vec<Entry>, over: Vec<Replaced>, direction: Direction) {
    if over.is_empty() {
        return;
    }
    if direction == Direction::Backward {
        found.reverse();
    }
    let mut below = std::mem::take(found).into_iter().peekable();
    for (key, value) in over {
        while let Some(entry) = below.next_if(|(lower, _)| **lower < *key) {
            found.push(entry);
        }
        below.next_if(|(same, _)| **same == *key);
        found.extend(value.map(|value| (key.into_vec(), value.into_vec())));
    }
    found.extend(below);
    if direction == Direction::Backward {
        found.reverse();
    }
}

impl<D: Domain> Iterator for Scan<'_, D> {
    type Item = Result<(Vec<u8>, Vec<u8>), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl<D: Domain> DoubleEndedIterator for Scan<'_, D> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_before_the_next_prefix() {
        let range = KeyRange::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xFF\xFF"));
        assert!(!range.contains(b"aa\xFF") && !range.contains(b"ac"));
        let range = KeyRange::prefix(b"a\xFF\xFF");
        assert!(range.contains(b"a\xFF\xFFz") && !range.contains(b"b"));
        assert!(KeyRange::prefix(b"\xFF").contains(b"\xFF\xFF\xFF"));
        assert!(KeyRange::prefix(b"").contains(b"anything"));
    }

    #[test]
    fn what_is_laid_over_replaces_adds_and_removes_in_both_directions() {
        let entry = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let over = || {
            let some = |value: &str| Some(Box::from(value.as_bytes()));
            vec![
                (Box::from(*b"a"), some("0")),
                (Box::from(*b"b"), None),
                (Box::from(*b"d"), some("2")),
                (Box::from(*b"e"), None),
            ]
        };
        let mut found = vec![entry("b", "1"), entry("c", "1"), entry("d", "1")];
        let expected = vec![entry("a", "0"), entry("c", "1"), entry("d", "2")];
        let mut backward: Vec<_> = found.iter().cloned().rev().collect();
        overlay(&mut found, over(), Direction::Forward);
        assert_eq!(found, expected);
        overlay(&mut backward, over(), Direction::Backward);
        backward.reverse();
        assert_eq!(backward, expected);
    }
}
