//! Lazy iteration over a table.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::Direction;
use lapis_pmem::Domain;

use crate::engine::Engine;
use crate::error::Error;
use crate::table_state::TableState;
use crate::value::{self, Value};

/// Entries fetched at once: few at first, because many scans are short, then twice as many each time.
const FIRST_BATCH_ENTRIES: usize = 16;
const LARGEST_BATCH_ENTRIES: usize = 256;
/// Bytes of values after which a batch ends early.
const BATCH_BYTES: usize = 1 << 20;

/// Bounds on keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    pub(crate) fn of(range: &impl std::ops::RangeBounds<Vec<u8>>) -> Self {
        Self { lower: range.start_bound().cloned(), upper: range.end_bound().cloned() }
    }

    /// All keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        // The next key of the same length or shorter: drop trailing 0xFF, add one to the last.
        while end.pop_if(|last| *last == 0xFF).is_some() {}
        let upper = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Self { lower: Bound::Included(prefix.to_vec()), upper }
    }

    fn is_before_end(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => match &self.upper {
                Bound::Included(end) => key <= end.as_slice(),
                Bound::Excluded(end) => key < end.as_slice(),
                Bound::Unbounded => true,
            },
            Direction::Backward => match &self.lower {
                Bound::Included(end) => key >= end.as_slice(),
                Bound::Excluded(end) => key > end.as_slice(),
                Bound::Unbounded => true,
            },
        }
    }

    fn start(&self, direction: Direction) -> Bound<&[u8]> {
        let start = match direction {
            Direction::Forward => &self.lower,
            Direction::Backward => &self.upper,
        };
        match start {
            Bound::Included(key) => Bound::Included(key.as_slice()),
            Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
            Bound::Unbounded => Bound::Unbounded,
        }
    }

    fn resume_after(&mut self, key: Vec<u8>, direction: Direction) {
        match direction {
            Direction::Forward => self.lower = Bound::Excluded(key),
            Direction::Backward => self.upper = Bound::Excluded(key),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.is_before_end(key, Direction::Forward) && self.is_before_end(key, Direction::Backward)
    }
}

/// The entries of a table, or of a range of it, fetched in batches.
///
/// It owns what it needs and can be kept, sent to another thread and outlive the handle it came
/// from. Each batch (16 entries, then up to 256, or about 1 MiB of values) shows one committed state; later batches
/// may show later states. For one state throughout, take a [`Snapshot`](crate::Snapshot).
///
/// A table without order is walked once at the start for its keys; the values are fetched as it
/// goes.
pub struct Entries<D: Domain> {
    engine: Arc<Engine<D>>,
    table: Arc<TableState<D>>,
    range: KeyRange,
    direction: Direction,
    batch: VecDeque<(Vec<u8>, Value)>,
    batch_entries: usize,
    /// Keys of a table without order that have not been fetched.
    keys: Option<std::vec::IntoIter<Vec<u8>>>,
    ended: bool,
}

impl<D: Domain> std::fmt::Debug for Entries<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries({:?}, {:?})", self.table.name, self.range)
    }
}

impl<D: Domain> Entries<D> {
    pub(crate) fn new(
        engine: Arc<Engine<D>>,
        table: Arc<TableState<D>>,
        range: KeyRange,
        direction: Direction,
    ) -> Self {
        Self {
            engine,
            table,
            range,
            direction,
            batch: VecDeque::new(),
            batch_entries: FIRST_BATCH_ENTRIES,
            keys: None,
            ended: false,
        }
    }

    /// The same entries from the other end. Only before the first has been taken does it cover the
    /// whole range; afterwards, what is left of it.
    #[must_use]
    pub fn backward(mut self) -> Self {
        for (key, _) in self.batch.drain(..).rev() {
            // Give back what was fetched and not taken.
            match self.direction {
                Direction::Forward => self.range.lower = Bound::Included(key),
                Direction::Backward => self.range.upper = Bound::Included(key),
            }
        }
        self.ended = false;
        self.direction = match self.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self
    }

    fn fetch(&mut self) -> Result<(), Error> {
        self.table.check_not_dropped()?;
        if self.table.is_ordered() { self.fetch_ordered() } else { self.fetch_unordered() }
    }

    fn fetch_ordered(&mut self) -> Result<(), Error> {
        let (engine, table, range, direction) =
            (&self.engine, &self.table, &self.range, self.direction);
        let entries = self.batch_entries;
        let (batch, ended) = engine.read(|| {
            let _guard = engine.pool.pin();
            // Under the guard: what is dropped from here on stays readable.
            table.check_not_dropped()?;
            let (mut batch, mut bytes, mut ended) = (VecDeque::new(), 0, true);
            let mut failure = None;
            table.index.scan(range.start(direction), direction, &mut |key, link| {
                if !range.is_before_end(key, direction) {
                    return ControlFlow::Break(());
                }
                match value::read(&engine.pool, link) {
                    Ok(value) => {
                        bytes += value.len();
                        batch.push_back((key.to_vec(), value));
                    }
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                if batch.len() >= entries || bytes >= BATCH_BYTES {
                    ended = false;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            match failure {
                Some(error) => Err(error),
                None => Ok((batch, ended)),
            }
        })?;
        if let Some((last, _)) = batch.back() {
            self.range.resume_after(last.clone(), direction);
        }
        self.batch = batch;
        self.batch_entries = (2 * entries).min(LARGEST_BATCH_ENTRIES);
        self.ended = ended;
        Ok(())
    }

    fn fetch_unordered(&mut self) -> Result<(), Error> {
        let (engine, table) = (&self.engine, &self.table);
        if self.keys.is_none() {
            let keys = engine.read(|| {
                let _guard = engine.pool.pin();
                table.check_not_dropped()?;
                let mut keys = Vec::new();
                table.index.for_each(&mut |key, _| {
                    keys.push(key.to_vec());
                    ControlFlow::Continue(())
                });
                Ok::<_, Error>(keys)
            })?;
            self.keys = Some(keys.into_iter());
        }
        let Some(keys) = &mut self.keys else { return Ok(()) };
        let Some(key) = keys.next() else {
            self.ended = true;
            return Ok(());
        };
        // A key that has gone meanwhile is skipped by leaving the batch empty.
        if let Some(value) = engine.read(|| engine.get(table, &key))? {
            self.batch.push_back((key, value));
        }
        Ok(())
    }
}

impl<D: Domain> Iterator for Entries<D> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.pop_front() {
                return Some(Ok(entry));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.ended = true;
                return Some(Err(error));
            }
        }
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
}
