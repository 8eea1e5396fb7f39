//! What lies in a range of keys at one state.
//!
//! Most of the time nobody has replaced anything that a scan wants: then it gives entries out of its copy of a leaf, and
//! copies nothing else.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use lapis_pmem::Domain;
use lapis_tree::LeafCopy;

use crate::contents::{Contents, EngineTree};
use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::snapshot::Reader;
use crate::tables::Table;
use crate::transaction::Reading;
use crate::value;
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

/// A key and its value.
pub type Entry<'e> = (&'e [u8], &'e [u8]);

/// An entry, and since when it counts no more.
pub(crate) type Expiring<'e> = (Entry<'e>, Option<u64>);

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

    /// The key comes in two parts.
    fn push(&mut self, key: [&[u8]; 2], value: &[u8]) {
        let begin = self.bytes.len();
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push([begin, value_at, self.bytes.len()]);
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
    /// Of a tree: the leaf that was copied last.
    leaf: LeafCopy,
    /// Records of it before the place that this end has come to.
    at: usize,
    /// Records of it that are to be given as they are.
    records: Range<usize>,
    /// What is given otherwise.
    batch: Batch,
    /// What is still to be fetched, seen from this end alone.
    rest: KeyRange,
    /// There is nothing more.
    exhausted: bool,
    batch_entries: usize,
    /// The last key that it gave, if it gave any.
    key: Vec<u8>,
    has_given: bool,
    /// Bytes of it that all keys of the leaf begin with, once one of them was given.
    prefix_bytes: Option<usize>,
    /// Its place among the ranges that the transaction has read.
    noted: Option<usize>,
}

impl End {
    fn new(range: &KeyRange, direction: Direction) -> Self {
        Self {
            direction,
            leaf: LeafCopy::default(),
            at: 0,
            records: 0..0,
            batch: Batch::default(),
            rest: range.clone(),
            exhausted: range.is_empty(),
            batch_entries: FIRST_BATCH_ENTRIES,
            key: Vec::new(),
            has_given: false,
            prefix_bytes: None,
            noted: None,
        }
    }

    /// Whether this end has given the key already, which the other one comes to.
    fn has_given(&self, key: &[u8]) -> bool {
        self.has_given
            && match self.direction {
                Direction::Forward => key <= &*self.key,
                Direction::Backward => key >= &*self.key,
            }
    }

    /// Goes on to a leaf that has records of the rest; returns which, and whether the rest ends with them.
    fn next_records<D: Domain>(
        &mut self,
        tree: &EngineTree<D>,
    ) -> Result<(Range<usize>, bool), EngineError> {
        let Self { leaf, at, rest, .. } = self;
        let is_new = leaf.is_empty();
        match self.direction {
            Direction::Forward => {
                if is_new {
                    *at = tree.copy_leaf(leaf, rest.lower())?;
                }
                loop {
                    let (until, is_last) = match (behind(rest.upper()), leaf.upper()) {
                        (Bound::Unbounded, upper) => (leaf.count(), upper.is_none()),
                        (Bound::Included(end) | Bound::Excluded(end), Some(upper))
                            if end >= upper =>
                        {
                            (leaf.count(), false)
                        }
                        (end, _) => (leaf.place_of(end)?, true),
                    };
                    if *at < until || is_last {
                        return Ok((*at..until, is_last));
                    }
                    match tree.copy_next_leaf(leaf)? {
                        Some(first) => *at = first,
                        None => return Ok((0..0, true)),
                    }
                }
            }
            Direction::Backward => {
                if is_new {
                    *at = match behind(rest.upper()) {
                        Bound::Unbounded => {
                            tree.copy_last_leaf(leaf)?;
                            leaf.count()
                        }
                        upper => tree.copy_leaf(leaf, upper)?,
                    };
                }
                loop {
                    let (from, is_last) = match rest.lower() {
                        Bound::Unbounded => (0, leaf.lower().is_empty()),
                        Bound::Included(begin) | Bound::Excluded(begin) if begin < leaf.lower() => {
                            (0, false)
                        }
                        begin => (leaf.place_of(begin)?, true),
                    };
                    if from < *at || is_last {
                        return Ok((from..*at, is_last));
                    }
                    match tree.copy_previous_leaf(leaf)? {
                        Some(last) => *at = last,
                        None => return Ok((0..0, true)),
                    }
                }
            }
        }
    }

    /// Takes at most so many of these records as the next ones to be given. Returns the last.
    fn take_records(&mut self, found: Range<usize>, most: usize) -> Option<usize> {
        let count = found.len().min(most);
        (self.records, self.at) = match self.direction {
            Direction::Forward => (found.start..found.start + count, found.start + count),
            Direction::Backward => (found.end - count..found.end, found.end - count),
        };
        let last = match self.direction {
            Direction::Forward => self.at.checked_sub(1),
            Direction::Backward => Some(self.at),
        };
        last.filter(|_| count > 0)
    }

    /// The record that is given next, of which there is one.
    fn next_record(&self) -> Result<&[u8], EngineError> {
        let (records, forward) = (&self.records, self.direction == Direction::Forward);
        if records.is_empty() {
            return Ok(self.batch.get(self.batch.next).map_or(&[], |(_, record)| record));
        }
        let at = if forward { records.start } else { records.end - 1 };
        Ok(self.leaf.record(at)?.1)
    }

    /// Does not give it.
    fn skip(&mut self) {
        let skipped = match self.direction {
            Direction::Forward => self.records.next(),
            Direction::Backward => self.records.next_back(),
        };
        self.batch.next += usize::from(skipped.is_none());
    }

    /// Makes a batch of the records that were to be given as they are.
    fn copy_records(&mut self) -> Result<(), EngineError> {
        let Self { leaf, batch, .. } = self;
        let records = std::mem::take(&mut self.records);
        let mut copy = |at| -> Result<(), EngineError> {
            let (suffix, record) = leaf.record(at)?;
            batch.push([leaf.prefix(), suffix], record);
            Ok(())
        };
        match self.direction {
            Direction::Forward => records.into_iter().try_for_each(&mut copy),
            Direction::Backward => records.rev().try_for_each(&mut copy),
        }
    }
}

/// The bound at the place behind all that another bound, from above, lets in.
fn behind(upper: Bound<&[u8]>) -> Bound<&[u8]> {
    match upper {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Where the value of the entry is that was come to last.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// In this record of the leaf, which begins there and has so many bytes, of which these are the value.
    Record { at: usize, bytes: usize, value_bytes: usize },
    /// In this entry of the batch.
    Entry(usize),
    /// It was put together; since when it counts no more.
    Resolved(Option<u64>),
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
    ended: bool,
    found: Found,
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
        let (found, resolved) = (Found::Resolved(None), Vec::new());
        Self { reader, table, reading, range, front, back, ended: false, found, resolved }
    }

    /// The next entry, in memory that is the scan's own: the iterator copies it, and this does not.
    ///
    /// # Errors
    /// [`EngineError`].
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, EngineError> {
        Ok(self.step(Direction::Forward)?.then(|| self.entry(Direction::Forward)))
    }

    /// The same, and since when it counts no more.
    pub(crate) fn next_with_expiry(&mut self) -> Result<Option<Expiring<'_>>, EngineError> {
        let direction = Direction::Forward;
        Ok(self.step(direction)?.then(|| (self.entry(direction), self.expiry(direction))))
    }

    /// The next entry from the back, as [`Scan::next_entry`] gives it from the front.
    ///
    /// # Errors
    /// [`EngineError`].
    #[inline]
    pub fn next_entry_back(&mut self) -> Result<Option<Entry<'_>>, EngineError> {
        Ok(self.step(Direction::Backward)?.then(|| self.entry(Direction::Backward)))
    }

    fn end(&self, direction: Direction) -> &End {
        match direction {
            Direction::Forward => &self.front,
            Direction::Backward => &self.back,
        }
    }

    /// The entry that was come to last. Not what [`Scan::step`] returns: an entry within a result is moved
    /// from one place on the stack to another, and that takes as long as the step.
    #[inline(always)]
    fn entry(&self, direction: Direction) -> Entry<'_> {
        let end = self.end(direction);
        let value = match self.found {
            Found::Record { at, value_bytes, .. } => end.leaf.part(at..at + value_bytes),
            Found::Entry(at) => {
                let record = end.batch.get(at).map(|(_, record)| record);
                record.and_then(value::short).unwrap_or_default()
            }
            Found::Resolved(_) => &self.resolved,
        };
        (&end.key, value)
    }

    fn expiry(&self, direction: Direction) -> Option<u64> {
        let end = self.end(direction);
        match self.found {
            Found::Record { at, bytes, .. } => value::expiry_of(end.leaf.part(at..at + bytes)),
            Found::Entry(at) => end.batch.get(at).and_then(|(_, record)| value::expiry_of(record)),
            Found::Resolved(expiry) => expiry,
        }
    }

    /// Sees to it that an end has records to give; false if there are no more.
    #[inline(always)]
    fn fill(&mut self, direction: Direction) -> Result<bool, EngineError> {
        let end = self.end(direction);
        if end.records.is_empty() && end.batch.is_spent() {
            self.fetch(direction)
        } else {
            Ok(true)
        }
    }

    #[inline(never)]
    fn fetch(&mut self, direction: Direction) -> Result<bool, EngineError> {
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        while end.records.is_empty() && end.batch.is_spent() {
            if end.exhausted || self.ended {
                return Ok(false);
            }
            let fetched = fetch(end, &self.reader, &self.table, self.reading.as_ref(), &self.range);
            fetched.inspect_err(|_| self.ended = true)?;
        }
        Ok(true)
    }

    /// The same, and of the first of them, that it has not expired.
    fn fill_with_living(&mut self, direction: Direction) -> Result<bool, EngineError> {
        while self.fill(direction)? {
            let end = match direction {
                Direction::Forward => &mut self.front,
                Direction::Backward => &mut self.back,
            };
            if self.reader.sees(end.next_record().inspect_err(|_| self.ended = true)?) {
                return Ok(true);
            }
            end.skip();
        }
        Ok(false)
    }

    /// Goes on to the next entry, if there is one.
    fn step(&mut self, direction: Direction) -> Result<bool, EngineError> {
        let filled = match self.table.has_expiring() {
            false => self.fill(direction)?,
            true => self.fill_with_living(direction)?,
        };
        if !filled {
            return Ok(false);
        }
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let End { leaf, records, batch, key, has_given, prefix_bytes, .. } = end;
        let next = match direction {
            Direction::Forward => records.next(),
            Direction::Backward => records.next_back(),
        };
        let record = match next {
            Some(at) => {
                let (suffix, record) = leaf.record(at).inspect_err(|_| self.ended = true)?;
                match *prefix_bytes {
                    Some(bytes) => key.truncate(bytes),
                    None => {
                        key.clear();
                        key.extend_from_slice(leaf.prefix());
                        *prefix_bytes = Some(key.len());
                    }
                }
                key.extend_from_slice(suffix);
                record
            }
            None => {
                let at = batch.next;
                batch.next += 1;
                let Some((next, record)) = batch.get(at) else { return Ok(false) };
                key.clear();
                key.extend_from_slice(next);
                record
            }
        };
        if self.ended || other.has_given(key) {
            self.ended = true;
            return Ok(false);
        }
        *has_given = true;
        let Some(value) = value::short(record) else {
            self.found = Found::Resolved(value::expiry_of(record));
            self.resolved.clear();
            self.resolved.extend_from_slice(record);
            let shared = self.reader.engine().shared();
            shared.resolve(&self.table, key, &mut self.resolved)?;
            return Ok(true);
        };
        self.found = match next {
            Some(_) => {
                let (at, bytes) = (leaf.offset_of(record), record.len());
                Found::Record { at, bytes, value_bytes: value.len() }
            }
            None => Found::Entry(batch.next - 1),
        };
        Ok(true)
    }
}

/// Fetches what comes next: what the table has, over that what was replaced since, over that what the transaction writes.
fn fetch<D: Domain>(
    end: &mut End,
    reader: &Reader<D>,
    table: &Arc<Table<D>>,
    reading: Option<&Reading<'_, D>>,
    range: &KeyRange,
) -> Result<(), EngineError> {
    let direction = end.direction;
    end.batch.clear();
    end.prefix_bytes = None;
    let most = end.batch_entries;
    end.batch_entries = (most * 2).min(LARGEST_BATCH_ENTRIES);
    // What was read before this is old by now, but not older than this reader: what has changed since is among
    // the versions, which are asked afterwards (E3).
    let shared = reader.engine().shared();
    let last = shared.guarded(|| {
        Ok(match table.contents() {
            Contents::Tree(tree) => {
                // What a transaction has not asked for should not conflict.
                let most = if reading.is_some() { most } else { usize::MAX };
                let (found, is_last) = end.next_records(tree)?;
                end.exhausted = is_last && found.len() <= most;
                let last =
                    end.take_records(found, most).map(|at| end.leaf.record(at)).transpose()?;
                last.map(|(suffix, _)| [end.leaf.prefix(), suffix].concat())
            }
            Contents::Index(index) => {
                let batch = &mut end.batch;
                end.exhausted = true;
                index.visit(&end.rest, direction, |key, value| {
                    batch.push([key, &[]], value);
                    if batch.entries.len() >= most || batch.bytes.len() >= BATCH_BYTES {
                        end.exhausted = false;
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                batch.last_key().map(<[u8]>::to_vec)
            }
        })
    })?;
    shared.counters.leaf_accesses.add(1);
    // What this tells all about.
    let last = last.filter(|_| !end.exhausted);
    let covered = match &last {
        Some(last) => end.rest.up_to(last, direction),
        None => end.rest.clone(),
    };
    if let Some(reading) = reading {
        let read = last.map_or_else(|| range.clone(), |last| range.up_to(&last, direction));
        reading.note_range(table.id(), &mut end.noted, read);
    }
    let replaced = table.versions().find_range(reader.domain(), &covered, reader.since());
    let mine: Vec<_> = match reading {
        None => Vec::new(),
        Some(reading) => {
            let mine = reading.writes.range(table.id(), covered.lower(), covered.upper());
            mine.map(|(key, value)| (key.into(), value.map(Box::from))).collect()
        }
    };
    if !(replaced.is_empty() && mine.is_empty()) {
        end.copy_records()?;
        overlay(&mut end.batch, replaced, direction);
        overlay(&mut end.batch, mine, direction);
    }
    match direction {
        _ if end.exhausted => {}
        Direction::Forward => end.rest.lower = excluded(covered.upper),
        Direction::Backward => end.rest.upper = excluded(covered.lower),
    }
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
            found.push([lower, &[]], record);
            at += 1;
        }
        at += usize::from(below.get(at).is_some_and(|(same, _)| *same == *key));
        if let Some(value) = value {
            found.push([&key, &[]], &value);
        }
    }
    while let Some((key, record)) = below.get(at) {
        found.push([key, &[]], record);
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
    fn what_is_laid_over_replaces_adds_and_removes_in_both_directions() {
        let batch = |entries: &[[&str; 2]]| {
            let mut batch = Batch::default();
            entries
                .iter()
                .for_each(|[key, value]| batch.push([key.as_bytes(), &[]], value.as_bytes()));
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
