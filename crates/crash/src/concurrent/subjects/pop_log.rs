//! The PopLog.

use std::sync::Arc;

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Link};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::whole::judge_whole;
use crate::concurrent::history::Call;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subject::text;

const ROOT: &str = "log";

/// A log that several workers use.
#[derive(Debug)]
pub struct ConcurrentPopLog {
    /// The name of the subject.
    pub name: &'static str,
    /// How its entries lie.
    pub placement: Placement,
}

/// An operation on a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Appends an entry of so many bytes, all of this value.
    Append(usize, u8),
    /// Drops what is before this position.
    Truncate(u64),
    /// Asks for the position that the next entry will have.
    End,
}

/// An answer of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAnswer {
    /// The position of the new entry.
    At(u64),
    /// Done.
    Truncated,
    /// There is no such position yet.
    BeyondEnd,
    /// The position that the next entry will have.
    Next(u64),
}

/// The position of the oldest entry, and the length and value of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogContents {
    start: u64,
    entries: Vec<(usize, u8)>,
}

impl Specification for ConcurrentPopLog {
    type State = LogContents;
    type Operation = LogAction;
    type Returned = LogAnswer;

    fn step(&self, state: &LogContents, action: &LogAction) -> (LogContents, LogAnswer) {
        let mut after = state.clone();
        let end = state.start + state.entries.len() as u64;
        let answer = match *action {
            LogAction::Append(bytes, value) => {
                after.entries.push((bytes, value));
                LogAnswer::At(end)
            }
            LogAction::Truncate(to) if to > end => LogAnswer::BeyondEnd,
            LogAction::Truncate(to) => {
                let dropped = to.saturating_sub(state.start);
                after.entries.drain(..dropped as usize);
                after.start += dropped;
                LogAnswer::Truncated
            }
            LogAction::End => LogAnswer::Next(end),
        };
        (after, answer)
    }
}

impl ConcurrentSubject for ConcurrentPopLog {
    type Operation = LogAction;
    type Returned = LogAnswer;
    type State = LogContents;
    type Live = PopLog<Modelled>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        2 << 20
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<LogAction> {
        let mut random = SmallRng::seed_from_u64(seed);
        let append = |value: u8, random: &mut SmallRng| {
            let bytes = match random.random_range(0..4) {
                0 => random.random_range(1500..2500),
                1 => random.random_range(1..50),
                _ => random.random_range(50..400),
            };
            LogAction::Append(bytes, value)
        };
        let filled = random.random_range(0..12u8);
        let before = (0..filled).map(|value| append(value, &mut random)).collect();
        let mut value = 100;
        Plan::sharing(before, workers, operations, |_| {
            value += 1;
            let furthest = u64::from(filled) + operations as u64 + 2;
            match random.random_range(0..6) {
                0 => LogAction::Truncate(random.random_range(1..furthest)),
                1 => LogAction::End,
                _ => append(value, &mut random),
            }
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        let pool = storage.into_pool();
        let options =
            PopLogOptions { segment_bytes: 4096, spare_segments: 2, placement: self.placement };
        let root = PopLog::create(&pool, options).map_err(text)?;
        let root = pool.fence(root);
        let link = root.link();
        let _committed = pool.publish_root(ROOT, 0, root).map_err(text)?.persist();
        PopLog::open(Arc::new(pool), link).map_err(text)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        let pool = storage.into_pool();
        let root = pool.root::<PopLogRoot>(ROOT).ok_or("the root is gone")?;
        PopLog::open(Arc::new(pool), root).map_err(text)
    }

    fn perform(&self, log: &Self::Live, action: &LogAction) -> Result<LogAnswer, String> {
        match *action {
            LogAction::Append(bytes, value) => {
                log.append(&vec![value; bytes]).map(|at| LogAnswer::At(at.number())).map_err(text)
            }
            LogAction::Truncate(to) => match log.truncate(Position::from_number(to)) {
                Ok(_) => Ok(LogAnswer::Truncated),
                Err(LogError::BeyondEnd { .. }) => Ok(LogAnswer::BeyondEnd),
                Err(error) => Err(error.to_string()),
            },
            LogAction::End => Ok(LogAnswer::Next(log.end().number())),
        }
    }

    fn observe(&self, log: &Self::Live) -> Result<LogContents, String> {
        let mut entries = Vec::new();
        for entry in log.iter() {
            let (position, bytes) = entry.map_err(text)?;
            let value = bytes.first().copied().unwrap_or(0);
            if bytes.iter().any(|&byte| byte != value) {
                return Err(format!("the entry at {position} is torn"));
            }
            entries.push((bytes.len(), value));
        }
        Ok(LogContents { start: log.start().number(), entries })
    }

    fn problems(&self, log: &Self::Live) -> Vec<String> {
        log.check().iter().map(ToString::to_string).collect()
    }

    fn audit(&self, log: &Self::Live) -> AuditReport {
        let pool = log.pool();
        let root: Option<Link<PopLogRoot>> = pool.root(ROOT);
        let traced = pool.trace(|tracer| {
            if root.is_none() {
                tracer.problem("the root is gone");
            }
            log.trace(tracer);
        });
        if pool.needs_reclaim() {
            pool.reclaim(&traced);
        }
        pool.audit(&traced)
    }

    fn judge(
        &self,
        initial: &LogContents,
        calls: &[Call<LogAction, LogAnswer>],
        found: &LogContents,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn changes(&self, action: &LogAction) -> bool {
        *action != LogAction::End
    }

    fn owns_source(&self, file: &str) -> bool {
        // Streamed entries go through the sink of the logs in a ring.
        file.contains("blocks/src/pop_log")
            || self.placement == Placement::Streamed && file.contains("blocks/src/ring_log/ring.rs")
    }
}
