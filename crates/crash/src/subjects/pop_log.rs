//! The PopLog.

use std::sync::Arc;

use lapis_blocks::log::{Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Link, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const ROOT: &str = "log";

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
    /// Drops all but so many of the newest entries.
    KeepNewest(usize),
}

/// What a log holds: the number of entries ever dropped, and the retained ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogState {
    dropped: u64,
    /// Length and hash.
    entries: Vec<(usize, u64)>,
}

impl LogState {
    pub(super) fn new(dropped: u64, entries: Vec<(usize, u64)>) -> Self {
        Self { dropped, entries }
    }

    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().map(|(length, _)| *length)
    }

    pub(super) fn append(&mut self, contents: &[u8]) {
        self.entries.push(digest(contents));
    }

    pub(super) fn keep_newest(&mut self, count: usize) {
        let drop = self.entries.len().saturating_sub(count);
        self.entries.drain(..drop);
        self.dropped += drop as u64;
    }
}

/// The PopLog, to check.
#[derive(Debug)]
pub struct PopLogSubject {
    name: &'static str,
    placement: Placement,
}

impl PopLogSubject {
    /// One whose entries lie like that.
    pub fn new(name: &'static str, placement: Placement) -> Self {
        Self { name, placement }
    }
}

/// An open log.
#[derive(Debug)]
pub struct LiveLog {
    log: PopLog<Modelled>,
}

/// Contents of every shape: dense, sparse, all zero, all ones.
pub(super) fn payload(bytes: usize, number: u8) -> Vec<u8> {
    match number % 4 {
        0 => vec![0; bytes],
        1 => vec![0xFF; bytes],
        2 => (0..bytes).map(|at| if at % 64 == 40 { number | 1 } else { 0 }).collect(),
        _ => (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ number).collect(),
    }
}

impl Subject for PopLogSubject {
    type Operation = LogOperation;
    type State = LogState;
    type Live = LiveLog;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        4 << 20
    }

    fn prior_contents(&self) -> u8 {
        0x5A
    }

    fn outlives_kills(&self) -> bool {
        true
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<LogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|_| match random.random_range(0..24) {
                0..=2 => LogOperation::KeepNewest(random.random_range(0..3)),
                3 => LogOperation::Append {
                    bytes: random.random_range(3000..6000),
                    number: random.random(),
                },
                4..=8 => LogOperation::Append {
                    bytes: random.random_range(1..60),
                    number: random.random(),
                },
                _ => LogOperation::Append {
                    bytes: random.random_range(60..1200),
                    number: random.random(),
                },
            })
            .collect()
    }

    fn probes(&self, _: &LogState, _: Option<&LogOperation>, seed: u64) -> Vec<LogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut probes = vec![LogOperation::Append {
            bytes: random.random_range(1..400),
            number: random.random(),
        }];
        if random.random() {
            probes.push(LogOperation::KeepNewest(random.random_range(0..3)));
        }
        probes.push(LogOperation::Append { bytes: 5, number: 1 });
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveLog, String> {
        let pool = storage.into_pool();
        let options =
            PopLogOptions { segment_bytes: 4096, spare_segments: 2, placement: self.placement };
        let root = PopLog::create(&pool, options).map_err(text)?;
        let root = pool.fence(root);
        let link = root.link();
        let _committed = pool.publish_root(ROOT, 0, root).map_err(text)?.persist();
        Ok(LiveLog { log: PopLog::open(Arc::new(pool), link).map_err(text)? })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveLog>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root::<PopLogRoot>(ROOT) else { return Ok(None) };
        Ok(Some(LiveLog { log: PopLog::open(Arc::new(pool), root).map_err(text)? }))
    }

    fn initial(&self) -> LogState {
        LogState::default()
    }

    fn apply(&self, state: &mut LogState, operation: &LogOperation) {
        match *operation {
            LogOperation::Append { bytes, number } => {
                state.append(&payload(bytes, number));
            }
            LogOperation::KeepNewest(count) => state.keep_newest(count),
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        // Streamed entries go through the sink of the logs in a ring.
        file.contains("blocks/src/pop_log")
            || self.placement == Placement::Streamed && file.contains("blocks/src/ring_log/ring.rs")
    }
}

pub(super) fn digest(contents: &[u8]) -> (usize, u64) {
    (contents.len(), xxhash_rust::xxh3::xxh3_64(contents))
}

impl Live<LogOperation, LogState> for LiveLog {
    fn perform(&mut self, operation: &LogOperation) -> Result<(), String> {
        match *operation {
            LogOperation::Append { bytes, number } => {
                self.log.append(&payload(bytes, number)).map(|_| ()).map_err(text)
            }
            LogOperation::KeepNewest(count) => {
                let end = self.log.end().number();
                let start = self.log.start().number();
                let up_to = end.saturating_sub(count as u64).max(start);
                self.log.truncate(Position::from_number(up_to)).map(|_| ()).map_err(text)
            }
        }
    }

    fn observe(&self) -> Result<LogState, String> {
        let first = Position::FIRST.number();
        let mut state =
            LogState { dropped: self.log.start().number() - first, entries: Vec::new() };
        let mut expected = self.log.start();
        for entry in self.log.iter() {
            let (position, bytes) = entry.map_err(text)?;
            if position != expected {
                return Err(format!("entry {position} where {expected} was due"));
            }
            expected = position.next();
            state.entries.push(digest(&bytes));
        }
        Ok(state)
    }

    fn check(&self) -> Vec<String> {
        self.log.check().iter().map(ToString::to_string).collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.log.pool();
        let root: Option<Link<PopLogRoot>> = pool.root(ROOT);
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
