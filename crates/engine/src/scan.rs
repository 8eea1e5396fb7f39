//! Ranges of keys, and what lies in them at one state.

use std::fmt;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use lapis_pmem::Domain;
use lapis_tree::Position;

use crate::error::EngineError;
use crate::snapshot::Reader;
use crate::tables::Table;
use crate::transaction::Reading;
use crate::value::{self, Stored};
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

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lower(), self.upper()) {
            (Bound::Unbounded, Bound::Unbounded) => return f.write_str("all keys"),
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => {
                return write!(f, "key {}", lower.escape_ascii());
            }
            _ => f.write_str("keys")?,
        }
        match self.lower() {
            Bound::Included(key) => write!(f, " from {}", key.escape_ascii())?,
            Bound::Excluded(key) => write!(f, " behind {}", key.escape_ascii())?,
            Bound::Unbounded => {}
        }
        match self.upper() {
            Bound::Included(key) => write!(f, " up to {}", key.escape_ascii()),
            Bound::Excluded(key) => write!(f, " before {}", key.escape_ascii()),
            Bound::Unbounded => Ok(()),
        }
    }
}

/// A key and its value.
pub type Entry<'e> = (&'e [u8], &'e [u8]);

/// Entries in one piece of memory, given one after the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each begins, where its value does, and where it ends.
    entries: Vec<[usize; 3]>,
    next: usize,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.next = 0;
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push([begin, begin + key.len(), self.bytes.len()]);
    }

    fn get(&self, at: usize) -> Option<Entry<'_>> {
        let &[begin, value, end] = self.entries.get(at)?;
        Some((&self.bytes[begin..value], &self.bytes[value..end]))
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.get(self.entries.len().checked_sub(1)?).map(|(key, _)| key)
    }

    fn is_spent(&self) -> bool {
        self.next == self.entries.len()
    }
}

/// One end of a scan.
#[derive(Debug)]
struct End {
    direction: Direction,
    fetched: Batch,
    /// What is still to be fetched, seen from this end alone.
    rest: KeyRange,
    /// Where the tree was read up to; none before it was read.
    position: Option<Position>,
    batch_entries: usize,
    /// There is nothing more.
    exhausted: bool,
    /// The last key that it gave, if it gave any.
    last: Option<Vec<u8>>,
    /// Its place among the ranges that the transaction has read.
    noted: Option<usize>,
}

impl End {
    fn new(range: &KeyRange, direction: Direction) -> Self {
        Self {
            direction,
            fetched: Batch::default(),
            rest: range.clone(),
            position: None,
            batch_entries: FIRST_BATCH_ENTRIES,
            exhausted: range.is_empty(),
            last: None,
            noted: None,
        }
    }

    /// Whether this end has given the key already, which the other one comes to.
    fn has_given(&self, key: &[u8]) -> bool {
        self.last.as_deref().is_some_and(|last| match self.direction {
            Direction::Forward => key <= last,
            Direction::Backward => key >= last,
        })
    }

    fn note_given(&mut self, at: usize) {
        let Some((key, _)) = self.fetched.get(at) else { return };
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
}

/// The entries of a range at one state, from both ends, fetched as they are asked for.
pub struct Scan<'t, D: Domain> {
    reader: Arc<Reader<D>>,
    table: Arc<Table<D>>,
    /// Of a transaction that sees its own writes.
    reading: Option<Reading<'t, D>>,
    range: KeyRange,
    front: End,
    back: End,
    failed: bool,
    /// The last value that was not given from where it was fetched.
    resolved: Vec<u8>,
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
        let (failed, resolved) = (false, Vec::new());
        Self { reader, table, reading, range, front, back, failed, resolved }
    }

    /// The next entry, in memory that is the scan's own: the iterator copies it, and this does not.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, EngineError> {
        self.step(Direction::Forward)
    }

    /// The next entry from the back, as [`Scan::next_entry`] gives it from the front.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn next_entry_back(&mut self) -> Result<Option<Entry<'_>>, EngineError> {
        self.step(Direction::Backward)
    }

    fn step(&mut self, direction: Direction) -> Result<Option<Entry<'_>>, EngineError> {
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        while end.fetched.is_spent() {
            if end.exhausted || self.failed {
                return Ok(None);
            }
            let fetched = fetch(end, &self.reader, &self.table, self.reading.as_ref(), &self.range);
            fetched.inspect_err(|_| self.failed = true)?;
        }
        let at = end.fetched.next;
        let met = end.fetched.get(at).is_none_or(|(key, _)| other.has_given(key));
        if met || self.failed {
            return Ok(None);
        }
        end.fetched.next = at + 1;
        end.note_given(at);
        let Some((key, record)) = end.fetched.get(at) else { return Ok(None) };
        let value = match value::parse(record) {
            Some(Stored::Short(value)) => value,
            _ => {
                self.resolved.clear();
                self.resolved.extend_from_slice(record);
                let shared = self.reader.engine().shared();
                shared.resolve(&self.table, key, &mut self.resolved)?;
                &self.resolved
            }
        };
        Ok(Some((key, value)))
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
    let mut found = std::mem::take(&mut end.fetched);
    found.clear();
    let (most, mut exhausted) = (end.batch_entries, true);
    // What was read before this is old by now, but not older than this reader: what has changed since is among
    // the versions, which are asked afterwards (E3).
    table.contents().visit(&end.rest, direction, &mut end.position, |key, value| {
        found.push(key, value);
        if found.entries.len() >= most || found.bytes.len() >= BATCH_BYTES {
            exhausted = false;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let shared = reader.engine().shared();
    // Of full leaves: at least so many.
    let leaves = 1 + found.bytes.len() / shared.manager.page_bytes();
    shared.counters.leaf_accesses.add(leaves as u64);
    end.batch_entries = (most * 2).min(LARGEST_BATCH_ENTRIES);
    // What this batch tells all about.
    let last = found.last_key().filter(|_| !exhausted);
    let covered = last.map_or_else(|| end.rest.clone(), |last| end.rest.up_to(last, direction));
    if let Some(reading) = reading {
        let read = last.map_or_else(|| range.clone(), |last| range.up_to(last, direction));
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
    end.fetched = found;
    Ok(())
}

fn excluded(bound: Bound<Box<[u8]>>) -> Bound<Box<[u8]>> {
    match bound {
        Bound::Included(key) => Bound::Excluded(key),
        other => other,
    }
}

/// Lays ascending entries, of which some are removals, over those that were found, which come in `direction`.
fn overlay(found: &mut Batch, mut over: Vec<Replaced>, direction: Direction) {
    if over.is_empty() {
        return;
    }
    if direction == Direction::Backward {
        over.reverse();
    }
    let is_before = |one: &[u8], other: &[u8]| match direction {
        Direction::Forward => one < other,
        Direction::Backward => one > other,
    };
    let (below, mut at) = (std::mem::take(found), 0);
    for (key, value) in over {
        while let Some((lower, record)) = below.get(at).filter(|(lower, _)| is_before(lower, &key))
        {
            found.push(lower, record);
            at += 1;
        }
        at += usize::from(below.get(at).is_some_and(|(same, _)| *same == *key));
        if let Some(value) = value {
            found.push(&key, &value);
        }
    }
    while let Some((key, record)) = below.get(at) {
        found.push(key, record);
        at += 1;
    }
}

type Copied = (Vec<u8>, Vec<u8>);

fn copied(entry: Result<Option<Entry<'_>>, EngineError>) -> Option<Result<Copied, EngineError>> {
    let copy = |(key, value): Entry<'_>| (key.to_vec(), value.to_vec());
    entry.map(|entry| entry.map(copy)).transpose()
}

impl<D: Domain> Iterator for Scan<'_, D> {
    type Item = Result<Copied, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        copied(self.next_entry())
    }
}

impl<D: Domain> DoubleEndedIterator for Scan<'_, D> {
    fn next_back(&mut self) -> Option<Self::Item> {
        copied(self.next_entry_back())
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
    fn a_range_is_told_by_its_ends() {
        let told = |range: KeyRange| range.to_string();
        assert_eq!(told(KeyRange::all()), "all keys");
        assert_eq!(told(KeyRange::new(&("a"..="a"))), "key a");
        assert_eq!(told(KeyRange::new(&("a".."b"))), "keys from a before b");
        assert_eq!(told(KeyRange::new(&(..="b"))), "keys up to b");
        assert_eq!(told(KeyRange::new(&("\n"..))), "keys from \\n");
    }

    #[test]
    fn what_is_laid_over_replaces_adds_and_removes_in_both_directions() {
        let batch = |entries: &[[&str; 2]]| {
            let mut batch = Batch::default();
            entries.iter().for_each(|[key, value]| batch.push(key.as_bytes(), value.as_bytes()));
            batch
        };
        let over = || {
            let some = |value: &str| Some(Box::from(value.as_bytes()));
            vec![
                (Box::from(*b"a"), some("0")),
                (Box::from(*b"b"), None),
                (Box::from(*b"d"), some("2")),
                (Box::from(*b"e"), None),
            ]
        };
        let (mut entries, mut expected) =
            ([["b", "1"], ["c", "1"], ["d", "1"]], [["a", "0"], ["c", "1"], ["d", "2"]]);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = batch(&entries);
            overlay(&mut found, over(), direction);
            let expected_batch = batch(&expected);
            (0..4).for_each(|at| assert_eq!(found.get(at), expected_batch.get(at)));
            entries.reverse();
            expected.reverse();
        }
    }
}
