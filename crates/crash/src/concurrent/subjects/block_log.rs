//! The log on a block device, whose committers share syncs.

use std::sync::Arc;

use lapis_blocks::block_log::{BlockLog, BlockLogError, Durability, Lsn};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, BlockOperation};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::{DeviceFault, Storage};
use crate::subject::text;
use crate::subjects::block_log::{Medium, OPTIONS};

const BLOCKS: u64 = 6;
/// In one history of so many a flush of the SSD fails.
const FAILS_EVERY: u64 = 7;
/// In one of the first calls.
const CALLS_THAT_FAIL: u64 = 8;

/// A log that several workers use, on an SSD or in persistent memory.
#[derive(Debug, Default)]
pub struct ConcurrentBlockLog {
    in_pool: bool,
}

impl ConcurrentBlockLog {
    /// In persistent memory.
    pub fn in_pool() -> Self {
        Self { in_pool: true }
    }
}

/// An open log.
#[derive(Debug)]
pub struct SharedBlockLog {
    log: BlockLog<Modelled>,
    medium: Medium,
}

/// An operation on a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockLogAction {
    /// Appends a record of so many bytes, all of this value, and waits until it is durable.
    Append(usize, u8),
    /// The same by a ticket.
    AppendInGroup(usize, u8),
    /// Drops the record of this value and those before it, if it is there.
    DropThrough(u8),
    /// Reads what is durable.
    Read,
    /// Closes the log. What is appended from then on opens it again.
    Close,
}

/// An answer of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockLogAnswer {
    /// Done.
    Done,
    /// The values of the records, oldest first.
    Values(Vec<u8>),
    /// The device has failed: it is done or not.
    Failed,
}

impl Specification for ConcurrentBlockLog {
    type State = Vec<u8>;
    type Operation = BlockLogAction;
    type Returned = BlockLogAnswer;

    fn step(&self, state: &Vec<u8>, action: &BlockLogAction) -> (Vec<u8>, BlockLogAnswer) {
        let mut after = state.clone();
        let answer = match *action {
            BlockLogAction::Append(_, value) | BlockLogAction::AppendInGroup(_, value) => {
                after.push(value);
                BlockLogAnswer::Done
            }
            BlockLogAction::DropThrough(value) => {
                let kept = state.iter().position(|it| *it == value).map_or(0, |at| at + 1);
                after.drain(..kept);
                BlockLogAnswer::Done
            }
            BlockLogAction::Read => BlockLogAnswer::Values(after.clone()),
            BlockLogAction::Close => BlockLogAnswer::Done,
        };
        (after, answer)
    }
}

/// The durable records: where each ends, and its value.
fn records(log: &BlockLog<Modelled>) -> Result<Vec<(Lsn, u8)>, BlockLogError> {
    let mut found = Vec::new();
    let mut reader = log.read_from(log.start())?;
    while let Some(record) = reader.next_record()? {
        let is_whole = record.payload.iter().all(|&byte| byte == record.kind);
        let value = if is_whole { record.kind } else { 0 };
        found.push((reader.position(), value));
    }
    Ok(found)
}

/// The same, begun anew when records are dropped meanwhile.
fn retained(log: &BlockLog<Modelled>) -> Result<Vec<(Lsn, u8)>, BlockLogError> {
    loop {
        match records(log) {
            Err(BlockLogError::Truncated { .. }) => {}
            found => return found,
        }
    }
}

fn attempt(
    log: &BlockLog<Modelled>,
    action: &BlockLogAction,
) -> Result<BlockLogAnswer, BlockLogError> {
    let append = |bytes, value: u8| log.append(value, &[&vec![value; bytes]]);
    match *action {
        BlockLogAction::Append(bytes, value) => {
            log.commit(append(bytes, value)?, Durability::Immediate)?;
        }
        BlockLogAction::AppendInGroup(bytes, value) => {
            let ticket = log.commit(append(bytes, value)?, Durability::Group)?;
            if !ticket.is_durable() {
                ticket.wait()?;
            }
        }
        BlockLogAction::DropThrough(value) => {
            let found = retained(log)?.into_iter().find(|(_, found)| *found == value);
            if let Some((end, _)) = found {
                log.truncate_before(end)?;
            }
        }
        BlockLogAction::Read => {
            let values = retained(log)?.into_iter().map(|(_, value)| value);
            return Ok(BlockLogAnswer::Values(values.collect()));
        }
        BlockLogAction::Close => log.close()?,
    }
    Ok(BlockLogAnswer::Done)
}

type LogCall = Call<BlockLogAction, BlockLogAnswer>;

/// When a call's failure became known, if it has failed.
fn failed_at(call: &LogCall) -> Option<usize> {
    call.completed.as_ref().filter(|(_, answer)| *answer == BlockLogAnswer::Failed).map(|it| it.0)
}

/// The calls as they are judged. Of one that has failed nobody was told anything, and who made it goes on without it; but
/// after the first failure nothing is done any more.
fn unanswered_if_failed(calls: &[LogCall]) -> Vec<LogCall> {
    let first = calls.iter().filter_map(failed_at).min().unwrap_or(usize::MAX);
    let may_be_done = |call: &&LogCall| failed_at(call).is_none() || call.begin < first;
    let judged = |call: &LogCall| match failed_at(call) {
        Some(_) => Call { worker: u8::MAX - call.number as u8, completed: None, ..call.clone() },
        None => call.clone(),
    };
    calls.iter().filter(may_be_done).map(judged).collect()
}

impl ConcurrentSubject for ConcurrentBlockLog {
    type Operation = BlockLogAction;
    type Returned = BlockLogAnswer;
    type State = Vec<u8>;
    type Live = SharedBlockLog;

    fn name(&self) -> &'static str {
        if self.in_pool { "block-log:pm" } else { "block-log" }
    }

    fn pool_bytes(&self) -> usize {
        if self.in_pool { 1 << 20 } else { 0 }
    }

    fn device_blocks(&self) -> Vec<u64> {
        if self.in_pool { Vec::new() } else { vec![BLOCKS] }
    }

    fn device_faults(&self, seed: u64) -> Vec<DeviceFault> {
        let fault = DeviceFault {
            operation: 1 + (seed / FAILS_EVERY % CALLS_THAT_FAIL) as usize,
            device: 0,
            request: BlockOperation::Flush,
            after: 0,
        };
        seed.is_multiple_of(FAILS_EVERY).then_some(fault).into_iter().collect()
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<BlockLogAction> {
        let mut random = SmallRng::seed_from_u64(seed);
        let bytes = |random: &mut SmallRng| match random.random_range(0..4) {
            0 => random.random_range(600..900),
            _ => random.random_range(1..60),
        };
        let filled = random.random_range(0..8u8);
        let before = (0..filled)
            .map(|value| BlockLogAction::Append(bytes(&mut random), 1 + value))
            .collect();
        let mut value = 100;
        Plan::sharing(before, workers, operations, |_| {
            value += 1;
            match random.random_range(0..8) {
                0 => BlockLogAction::DropThrough(random.random_range(1..=filled.max(1))),
                1 => BlockLogAction::DropThrough(random.random_range(101..=value)),
                2 => BlockLogAction::Read,
                3 => BlockLogAction::AppendInGroup(bytes(&mut random), value),
                4 => BlockLogAction::Close,
                _ => BlockLogAction::Append(bytes(&mut random), value),
            }
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        let medium = Medium::create(storage, BLOCKS)?;
        let log = BlockLog::create(medium.machine.clone(), Arc::clone(&medium.device), OPTIONS);
        Ok(SharedBlockLog { log: log.map_err(text)?, medium })
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        let medium = Medium::open(storage)?.ok_or("there is no log")?;
        let log = BlockLog::open(medium.machine.clone(), Arc::clone(&medium.device));
        Ok(SharedBlockLog { log: log.map_err(text)?, medium })
    }

    fn perform(
        &self,
        live: &Self::Live,
        action: &BlockLogAction,
    ) -> Result<BlockLogAnswer, String> {
        match attempt(&live.log, action) {
            Err(BlockLogError::Failed(_)) if live.medium.device.counts().failures > 0 => {
                Ok(BlockLogAnswer::Failed)
            }
            answer => answer.map_err(text),
        }
    }

    fn observe(&self, live: &Self::Live) -> Result<Vec<u8>, String> {
        Ok(records(&live.log).map_err(text)?.into_iter().map(|(_, value)| value).collect())
    }

    fn audit(&self, live: &Self::Live) -> AuditReport {
        live.medium.reclaim_and_audit()
    }

    fn judge(&self, initial: &Vec<u8>, calls: &[LogCall], found: &Vec<u8>) -> Result<(), Offence> {
        judge_whole(self, initial, &unanswered_if_failed(calls), found)
    }

    fn changes(&self, action: &BlockLogAction) -> bool {
        !matches!(action, BlockLogAction::Read | BlockLogAction::Close)
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("blocks/src/block_log")
    }
}
