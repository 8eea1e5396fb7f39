//! Logs of every kind, through their common trait.

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_blocks::log::{Log, LogError, Position};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Link, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::pop_log::{LogState, digest, payload};
use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const ROOT: &str = "log";

/// An operation on a log that has a capacity.
#[derive(Clone, Debug)]
pub enum RingOperation {
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

/// A log of some kind, to check.
#[derive(Clone, Debug)]
pub struct LogSubject<L: Log<Modelled>> {
    name: &'static str,
    /// Parts of the paths of its source files.
    sources: &'static [&'static str],
    options: L::Options,
    /// Bytes of entries that it surely has room for.
    room_bytes: usize,
    /// An entry that fills the empty log to its last byte.
    filling_bytes: Option<usize>,
    log: PhantomData<fn() -> L>,
}

impl<L: Log<Modelled>> LogSubject<L> {
    /// A log with these options, which has room for `capacity_bytes`, in the source files whose
    /// paths contain one of `sources`. An entry of `filling_bytes` takes all of an empty log.
    pub fn new(
        name: &'static str,
        sources: &'static [&'static str],
        options: L::Options,
        capacity_bytes: usize,
        filling_bytes: Option<usize>,
    ) -> Self {
        // The line that the oldest entry is in and the line of the end are not to be had.
        let room_bytes = capacity_bytes - 128;
        Self { name, sources, options, room_bytes, filling_bytes, log: PhantomData }
    }
}

/// An open log of some kind.
#[derive(Debug)]
pub struct LiveRing<L> {
    log: L,
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
    fn append(&mut self, entries: Vec<(usize, u8)>, operations: &mut Vec<RingOperation>) {
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
            [(bytes, number)] => RingOperation::Append { bytes, number },
            _ => RingOperation::AppendBatch(entries),
        });
    }

    /// The operations that fill the log with one entry.
    fn fill(&mut self, bytes: usize, number: u8, operations: &mut Vec<RingOperation>) {
        operations.push(self.keep(0));
        self.entries.push(self.room_bytes);
        operations.push(RingOperation::Append { bytes, number });
    }

    /// The operations that append as much as there surely is room for.
    fn fill_up(&mut self, random: &mut SmallRng, operations: &mut Vec<RingOperation>) {
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

    fn keep(&mut self, count: usize) -> RingOperation {
        self.entries.drain(..self.entries.len().saturating_sub(count));
        RingOperation::KeepNewest(count)
    }
}

impl<L: Log<Modelled> + 'static> Subject for LogSubject<L>
where
    L::Options: Sync,
{
    type Operation = RingOperation;
    type State = LogState;
    type Live = LiveRing<L>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        1 << 20
    }

    fn prior_contents(&self) -> u8 {
        // The highest bit of each word is set.
        0xA5
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<RingOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut account = Account { entries: Vec::new(), room_bytes: self.room_bytes };
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
        interrupted: Option<&RingOperation>,
        seed: u64,
    ) -> Vec<RingOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let entries = state.lengths().map(most_bytes).collect();
        let mut account = Account { entries, room_bytes: self.room_bytes };
        let mut probes = Vec::new();
        if matches!(interrupted, Some(RingOperation::KeepNewest(_))) && random.random() {
            // Into the last of the space that the truncation was about to make free, and that the
            // recovery has made free instead.
            account.fill_up(&mut random, &mut probes);
            return probes;
        }
        // Where the interrupted append may have left something: shorter, longer, of other bits.
        let bytes = match interrupted {
            Some(RingOperation::Append { bytes, .. }) if random.random() => *bytes,
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

    fn create(&self, storage: Storage) -> Result<LiveRing<L>, String> {
        let pool = storage.into_pool();
        let root = L::create(&pool, self.options.clone()).map_err(text)?;
        let root = pool.fence(root);
        let link = root.link();
        let _committed = pool.publish_root(ROOT, 0, root).map_err(text)?.persist();
        Ok(LiveRing { log: L::open(Arc::new(pool), link).map_err(text)? })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveRing<L>>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root::<L::Root>(ROOT) else { return Ok(None) };
        Ok(Some(LiveRing { log: L::open(Arc::new(pool), root).map_err(text)? }))
    }

    fn initial(&self) -> LogState {
        LogState::default()
    }

    fn apply(&self, state: &mut LogState, operation: &RingOperation) {
        match operation {
            RingOperation::Append { bytes, number } => state.append(&payload(*bytes, *number)),
            RingOperation::AppendBatch(entries) => {
                for (bytes, number) in entries {
                    state.append(&payload(*bytes, *number));
                }
            }
            RingOperation::KeepNewest(count) => state.keep_newest(*count),
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        self.sources.iter().any(|source| file.contains(source))
    }
}

impl<L: Log<Modelled>> Live<RingOperation, LogState> for LiveRing<L> {
    fn perform(&mut self, operation: &RingOperation) -> Result<(), String> {
        let done: Result<(), LogError> = match operation {
            RingOperation::Append { bytes, number } => {
                self.log.append(&payload(*bytes, *number)).map(|_| ())
            }
            RingOperation::AppendBatch(entries) => {
                let payloads: Vec<Vec<u8>> =
                    entries.iter().map(|(bytes, number)| payload(*bytes, *number)).collect();
                let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                self.log.append_batch(&payloads).map(|_| ())
            }
            RingOperation::KeepNewest(count) => {
                let end = self.log.end().number();
                let start = self.log.start().number();
                let up_to = end.saturating_sub(*count as u64).max(start);
                self.log.truncate(Position::from_number(up_to)).map(|_| ())
            }
        };
        done.map_err(text)
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
        let root: Option<Link<L::Root>> = pool.root(ROOT);
        let traced = pool.trace(|tracer| {
            if root.is_none() {
                tracer.problem("the root is gone");
            }
            self.log.trace(tracer);
        });
        if pool.needs_reclaim() {
            pool.reclaim(&traced);
        }
        pool.audit(&traced)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.log.pool())
    }
}
