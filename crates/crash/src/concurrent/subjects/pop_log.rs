//! The PopLog.

use lapis_blocks::log::{LogError, Position};
use lapis_blocks::pop_log::PopLog;
use lapis_device::Modelled;
use lapis_pmem::AuditReport;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subject::{Live, Subject, text};
use crate::subjects::{LiveLog, LogState, LogSubject};

/// A log that several workers use.
#[derive(Debug)]
pub struct ConcurrentPopLog {
    /// What one worker is checked by.
    pub alone: LogSubject<PopLog<Modelled>>,
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

impl Specification for ConcurrentPopLog {
    type State = LogState;
    type Operation = LogAction;
    type Returned = LogAnswer;

    fn step(&self, state: &LogState, action: &LogAction) -> (LogState, LogAnswer) {
        let mut after = state.clone();
        let end = state.end();
        let answer = match *action {
            LogAction::Append(bytes, value) => {
                after.append(&vec![value; bytes]);
                LogAnswer::At(end)
            }
            LogAction::Truncate(to) if to > end => LogAnswer::BeyondEnd,
            LogAction::Truncate(to) => {
                after.keep_newest((end - to) as usize);
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
    type State = LogState;
    type Live = LiveLog<PopLog<Modelled>>;

    fn name(&self) -> &'static str {
        self.alone.name()
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
        self.alone.create(storage)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        self.alone.open(storage)?.ok_or_else(|| "the root is gone".to_owned())
    }

    fn perform(&self, live: &Self::Live, action: &LogAction) -> Result<LogAnswer, String> {
        let log = live.log();
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

    fn observe(&self, live: &Self::Live) -> Result<LogState, String> {
        live.observe()
    }

    fn problems(&self, live: &Self::Live) -> Vec<String> {
        live.check()
    }

    fn audit(&self, live: &Self::Live) -> AuditReport {
        live.reclaim_and_audit()
    }

    fn judge(
        &self,
        initial: &LogState,
        calls: &[Call<LogAction, LogAnswer>],
        found: &LogState,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn changes(&self, action: &LogAction) -> bool {
        *action != LogAction::End
    }

    fn owns_source(&self, file: &str) -> bool {
        self.alone.owns_source(file)
    }
}
