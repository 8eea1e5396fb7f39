//! Logs of every kind, through their common trait.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use lapis_blocks::log::{Layout, Log, LogError, Position};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, EXTENT_BYTES, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::log_state::{LogState, digest, payload};
use crate::storage::Storage;
use crate::subject::{Kills, Live, Subject, text};

const ROOT: &str = "log";

/// One operation in so many appends an entry of more than a chunk to a log that grows.
const LARGE_ENTRY_EVERY: usize = 250;

/// An operation on a log.
#[derive(Clone, Debug)]
pub enum LogOperation {
    /// Appends an entry of so many bytes, all made from the number.
    Append {
        /// Length of the entry.
        bytes: usize,
        /// Determines its contents.
        number: u8,
    },
    /// Appends several such entries at once.
    AppendBatch(Vec<(usize, u8)>),
    /// Drops all but so many of the newest entries.
    KeepNewest(usize),
}

/// A log of some kind, to check. One that grows also has to survive the death of its process.
#[derive(Clone, Debug)]
pub struct LogSubject<L> {
    name: &'static str,
    /// Parts of the paths of its source files.
    sources: &'static [&'static str],
    layout: Layout,
    /// An entry that fills the empty log to its last byte.
    filling_bytes: Option<usize>,
    log: PhantomData<fn() -> L>,
}

impl<L: Log<Modelled>> LogSubject<L> {
    /// A log of that layout, in the source files whose paths contain one of `sources`. An entry of
    /// `filling_bytes` takes all of an empty log.
    pub fn new(
        name: &'static str,
        sources: &'static [&'static str],
        layout: Layout,
        filling_bytes: Option<usize>,
    ) -> Self {
        Self { name, sources, layout, filling_bytes, log: PhantomData }
    }

    /// Bytes of entries that there surely is room for.
    fn room_bytes(&self) -> usize {
        // The line that the oldest entry is in and the line of the end are not to be had.
        self.layout.bytes - 128
    }

    fn live(&self, log: L) -> LiveLog<L> {
        LiveLog { log, room_bytes: self.room_bytes(), was_refused: false }
    }

    fn growing_operations(count: usize, seed: u64) -> Vec<LogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let append = |random: &mut SmallRng, bytes: Range<usize>| LogOperation::Append {
            bytes: random.random_range(bytes),
            number: random.random(),
        };
        let operation = |index: usize| match random.random_range(0..24) {
            // More than a chunk, which is a block of its own size.
            _ if index % LARGE_ENTRY_EVERY == LARGE_ENTRY_EVERY / 2 => {
                append(&mut random, EXTENT_BYTES..EXTENT_BYTES + 4000)
            }
            0..=2 => LogOperation::KeepNewest(random.random_range(0..3)),
            3 => append(&mut random, 3000..12_000),
            4..=8 => append(&mut random, 1..60),
            _ => append(&mut random, 60..1200),
        };
        (0..count).map(operation).collect()
    }

    fn growing_probes(seed: u64) -> Vec<LogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let bytes = random.random_range(1..400);
        let mut probes = vec![LogOperation::Append { bytes, number: random.random() }];
        if random.random() {
            probes.push(LogOperation::KeepNewest(random.random_range(0..3)));
        }
        probes.push(LogOperation::Append { bytes: 5, number: 1 });
        probes
    }
}

/// An open log of some kind.
#[derive(Debug)]
pub struct LiveLog<L> {
    log: L,
    /// Bytes of entries that there surely is room for.
    room_bytes: usize,
    was_refused: bool,
}

impl<L> LiveLog<L> {
    pub(crate) fn log(&self) -> &L {
        &self.log
    }
}

impl<L: Log<Modelled>> LiveLog<L> {
    /// Whether there may be no room for more entries of so many bytes in all. The operations are drawn up so that there
    /// is; after a power cut in a truncation there may be more entries than were reckoned with.
    fn may_be_full(&self, needed_bytes: usize) -> Result<bool, String> {
        let mut used_bytes = 0;
        for entry in self.log.entries() {
            used_bytes += most_bytes(entry.map_err(text)?.1.len());
        }
        Ok(used_bytes > 0 && used_bytes + needed_bytes > self.room_bytes)
    }
}

/// At least what an entry takes in any of the logs.
fn most_bytes(bytes: usize) -> usize {
    let body = (16 + bytes) * 64 / 63 + 8;
    body.next_multiple_of(64) + 64
}

/// Keeps account of the room as the operations are drawn up.
struct Account {
    entries: Vec<usize>,
    room_bytes: usize,
}

impl Account {
    /// The operations that append `entries`, with a truncation before if there may be no room.
    fn append(&mut self, entries: Vec<(usize, u8)>, operations: &mut Vec<LogOperation>) {
        let needed: usize = entries.iter().map(|(bytes, _)| most_bytes(*bytes)).sum();
        let used: usize = self.entries.iter().copied().sum();
        if used + needed > self.room_bytes {
            let keep = self.entries.len().min(usize::from(entries[0].1) % 3);
            let kept: usize = self.entries.iter().rev().take(keep).sum();
            let keep = if kept + needed > self.room_bytes { 0 } else { keep };
            operations.push(self.keep(keep));
        }
        self.entries.extend(entries.iter().map(|(bytes, _)| most_bytes(*bytes)));
        operations.push(match entries[..] {
            [(bytes, number)] => LogOperation::Append { bytes, number },
            _ => LogOperation::AppendBatch(entries),
        });
    }

    /// The operations that fill the log with one entry.
    fn fill(&mut self, bytes: usize, number: u8, operations: &mut Vec<LogOperation>) {
        operations.push(self.keep(0));
        self.entries.push(self.room_bytes);
        operations.push(LogOperation::Append { bytes, number });
    }

    /// The operations that append as much as there surely is room for.
    fn fill_up(&mut self, random: &mut SmallRng, operations: &mut Vec<LogOperation>) {
        const SHORTEST: usize = 128;
        loop {
            let used: usize = self.entries.iter().sum();
            let free = self.room_bytes.saturating_sub(used);
            if free < most_bytes(SHORTEST) {
                return;
            }
            // One may take it all, or several share it.
            let most = if random.random() { 1500 } else { self.room_bytes };
            let longest = (SHORTEST..=most).rev().find(|&bytes| most_bytes(bytes) <= free);
            self.append(vec![(longest.unwrap_or(SHORTEST), random.random())], operations);
        }
    }

    fn keep(&mut self, count: usize) -> LogOperation {
        self.entries.drain(..self.entries.len().saturating_sub(count));
        LogOperation::KeepNewest(count)
    }
}

impl<L: Log<Modelled> + 'static> Subject for LogSubject<L> {
    type Operation = LogOperation;
    type State = LogState;
    type Live = LiveLog<L>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        if L::GROWS { 4 << 20 } else { 1 << 20 }
    }

    fn prior_contents(&self) -> u8 {
        // In a ring the highest bit of each word is set, which RAWL goes by.
        if L::GROWS { 0x5A } else { 0xA5 }
    }

    fn kills(&self) -> Kills {
        if L::GROWS { Kills::Outlived } else { Kills::Untried }
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<LogOperation> {
        if L::GROWS {
            return Self::growing_operations(count, seed);
        }
        let mut random = SmallRng::seed_from_u64(seed);
        let mut account = Account { entries: Vec::new(), room_bytes: self.room_bytes() };
        let mut operations = Vec::new();
        while operations.len() < count {
            match random.random_range(0..24) {
                0 => {
                    let keep = random.random_range(0..4);
                    operations.push(account.keep(keep));
                }
                1..=3 => {
                    let count = random.random_range(2..5);
                    let entries = (0..count)
                        .map(|_| (random.random_range(1..200), random.random()))
                        .collect();
                    account.append(entries, &mut operations);
                }
                4 if let Some(bytes) = self.filling_bytes
                    && random.random() =>
                {
                    account.fill(bytes, random.random(), &mut operations);
                }
                4 => {
                    let bytes = random.random_range(700..2000);
                    account.append(vec![(bytes, random.random())], &mut operations);
                }
                5..=12 => {
                    let bytes = random.random_range(1..60);
                    account.append(vec![(bytes, random.random())], &mut operations);
                }
                _ => {
                    let bytes = random.random_range(60..500);
                    account.append(vec![(bytes, random.random())], &mut operations);
                }
            }
        }
        operations.truncate(count);
        operations
    }

    fn probes(
        &self,
        state: &LogState,
        interrupted: Option<&LogOperation>,
        seed: u64,
    ) -> Vec<LogOperation> {
        if L::GROWS {
            return Self::growing_probes(seed);
        }
        let mut random = SmallRng::seed_from_u64(seed);
        let entries = state.lengths().map(most_bytes).collect();
        let mut account = Account { entries, room_bytes: self.room_bytes() };
        let mut probes = Vec::new();
        if matches!(interrupted, Some(LogOperation::KeepNewest(_))) && random.random() {
            // Into the last of the space that the truncation was about to make free, and that the
            // recovery has made free instead.
            account.fill_up(&mut random, &mut probes);
            return probes;
        }
        // Where the interrupted append may have left something: shorter, longer, of other bits.
        let bytes = match interrupted {
            Some(LogOperation::Append { bytes, .. }) if random.random() => *bytes,
            _ => random.random_range(1..400),
        };
        account.append(vec![(bytes, random.random())], &mut probes);
        if random.random() {
            probes.push(account.keep(random.random_range(0..3)));
        }
        let batch = vec![(5, 1), (random.random_range(1..200), random.random())];
        account.append(batch, &mut probes);
        account.append(vec![(5, 1)], &mut probes);
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveLog<L>, String> {
        let pool = Arc::new(storage.into_pool());
        let log = L::create_named(&pool, ROOT, L::options(self.layout)).map_err(text)?;
        Ok(self.live(log))
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveLog<L>>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root::<L::Root>(ROOT) else { return Ok(None) };
        Ok(Some(self.live(L::open(Arc::new(pool), root).map_err(text)?)))
    }

    fn initial(&self) -> LogState {
        LogState::default()
    }

    fn apply(&self, state: &mut LogState, operation: &LogOperation) {
        match operation {
            LogOperation::Append { bytes, number } => state.append(&payload(*bytes, *number)),
            LogOperation::AppendBatch(entries) => {
                for (bytes, number) in entries {
                    state.append(&payload(*bytes, *number));
                }
            }
            LogOperation::KeepNewest(count) => state.keep_newest(*count),
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        self.sources.iter().any(|source| file.contains(source))
    }
}

impl<L: Log<Modelled>> Live<LogOperation, LogState> for LiveLog<L> {
    fn perform(&mut self, operation: &LogOperation) -> Result<(), String> {
        let done: Result<(), LogError> = match operation {
            LogOperation::Append { bytes, number } => {
                self.log.append(&payload(*bytes, *number)).map(|_| ())
            }
            LogOperation::AppendBatch(entries) => {
                let payloads: Vec<Vec<u8>> =
                    entries.iter().map(|(bytes, number)| payload(*bytes, *number)).collect();
                let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                self.log.append_batch(&payloads).map(|_| ())
            }
            LogOperation::KeepNewest(count) => {
                let end = self.log.end().number();
                let start = self.log.start().number();
                let up_to = end.saturating_sub(*count as u64).max(start);
                self.log.truncate(Position::from_number(up_to)).map(|_| ())
            }
        };
        let needed = match operation {
            LogOperation::Append { bytes, .. } => most_bytes(*bytes),
            LogOperation::AppendBatch(entries) => entries.iter().map(|it| most_bytes(it.0)).sum(),
            LogOperation::KeepNewest(_) => 0,
        };
        self.was_refused = match done {
            Err(LogError::NoRoom { .. }) if self.may_be_full(needed)? => true,
            done => done.map(|()| false).map_err(text)?,
        };
        Ok(())
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn observe(&self) -> Result<LogState, String> {
        let dropped = self.log.start().number() - Position::FIRST.number();
        let mut entries = Vec::new();
        let mut expected = self.log.start();
        for entry in self.log.entries() {
            let (position, bytes) = entry.map_err(text)?;
            if position != expected {
                return Err(format!("entry {position} where {expected} was due"));
            }
            expected = position.next();
            entries.push(digest(&bytes));
        }
        Ok(LogState::new(dropped, entries))
    }

    fn check(&self) -> Vec<String> {
        self.log.check().iter().map(ToString::to_string).collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.log.pool();
        let reachable = pool.reachable(|visitor| self.log.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.log.pool())
    }
}
