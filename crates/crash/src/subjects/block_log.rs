//! The log on a block device, on an SSD or in persistent memory, used as a transactional engine would.

use std::sync::Arc;

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability, Lsn};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, BlockDevice, BlockOperation, Pool, PoolDevice};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::log_state::{digest, payload};
use crate::storage::{DeviceFault, Storage};
use crate::subject::{Live, Subject, text};

/// Segments that are begun often, in a ring that comes round often.
pub(crate) const OPTIONS: BlockLogOptions =
    BlockLogOptions { identity: 0x10C, segment_bytes: 8192, batch_bytes: 16384, most_bytes: 0 };
const BLOCKS: u64 = 10;
/// What a log that grows may grow to. Before, it has room for what is retained however that lies, like all others.
const MOST_BYTES: u64 = 16 * OPTIONS.segment_bytes;
/// The same of a log that is filled.
const MOST_FILLED_BYTES: u64 = 6 * OPTIONS.segment_bytes;
const ROOT: &str = "log";
/// Payload bytes that are retained, at most: the rest is for marks and what stays free.
const RETAINED_BYTES: usize = 8192;
/// Changes of a long transaction, of so many bytes, that fill more than half of a batch; another two come behind them.
const LONG_CHANGES: usize = 16;
const LONG_CHANGE_BYTES: usize = 608;

const CHANGE: u8 = 1;
const COMMIT: u8 = 2;
/// A change whose length is nobody's business.
const FILLING: u8 = 3;

/// Bytes of a record of the log before its payload.
const RECORD_HEADER_BYTES: u64 = 24;
/// Of a record that has a position for payload, as that which commits and the last of a batch.
const POSITION_RECORD_BYTES: u64 = RECORD_HEADER_BYTES + 8;

/// An operation on a log.
#[derive(Clone, Debug)]
pub enum BlockLogOperation {
    /// Appends a change of so many bytes, made from the number, for each of these, and a record that
    /// commits them.
    Transact(Vec<(usize, u8)>),
    /// A transaction with which the log ends where a unit of the device does: a record that a crash has left there
    /// would come next.
    FillBlock,
    /// Drops all but so many of the newest transactions.
    KeepNewest(usize),
    /// Closes the log and opens it.
    Reopen,
    /// Opens the log as a process does that comes after one that was killed.
    Abandon,
    /// Makes the ring longer, if it can be.
    Grow,
}

/// Length and hash of each change of a transaction.
type Changes = Vec<(usize, u64)>;
/// Those that are retained.
type Transactions = Vec<Changes>;

/// The log, to check.
#[derive(Debug)]
pub struct BlockLogSubject {
    name: &'static str,
    fails: bool,
    in_pool: bool,
    grows: bool,
    fills: bool,
}

impl BlockLogSubject {
    /// On an SSD without faults.
    pub fn new(name: &'static str) -> Self {
        Self { name, fails: false, in_pool: false, grows: false, fills: false }
    }

    /// That grows.
    #[must_use]
    pub fn growing(self) -> Self {
        Self { grows: true, ..self }
    }

    /// That is filled until it is as long as it may be and takes nothing more.
    #[must_use]
    pub fn filling(self) -> Self {
        Self { fills: true, ..self.growing() }
    }

    /// In persistent memory.
    #[must_use]
    pub fn in_pool(self) -> Self {
        Self { in_pool: true, ..self }
    }

    /// On a device that fails to write now and then, after which the log is opened again.
    #[must_use]
    pub fn failing(self) -> Self {
        Self { fails: true, ..self }
    }
}

/// An open log.
#[derive(Debug)]
pub struct LiveBlockLog {
    log: Option<BlockLog<Modelled>>,
    medium: Medium,
    /// Whether it may be full.
    fills: bool,
    was_refused: bool,
}

/// What a log lies on.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) machine: Modelled,
    pub(crate) device: Arc<dyn BlockDevice>,
    in_pool: Option<PoolDevice<Modelled>>,
}

impl Medium {
    /// The SSD that there is, or a device of so many blocks that is made in the pool.
    pub(crate) fn create(storage: Storage, blocks: u64) -> Result<Self, String> {
        let Some(pool) = storage.pool else { return Self::ssd(storage) };
        let device = PoolDevice::create_named(&Arc::new(pool), ROOT, blocks).map_err(text)?;
        Ok(Self::pool_device(storage.machine, device))
    }

    /// The same as it was made; none if it never was.
    pub(crate) fn open(storage: Storage) -> Result<Option<Self>, String> {
        let Some(pool) = storage.pool else { return Self::ssd(storage).map(Some) };
        let device = PoolDevice::open_named(&Arc::new(pool), ROOT).map_err(text)?;
        Ok(device.map(|device| Self::pool_device(storage.machine, device)))
    }

    fn ssd(storage: Storage) -> Result<Self, String> {
        let Storage { mut devices, machine, .. } = storage;
        let device = Arc::new(devices.pop().ok_or("there is no SSD")?);
        Ok(Self { machine, device, in_pool: None })
    }

    fn pool_device(machine: Modelled, device: PoolDevice<Modelled>) -> Self {
        Self { machine, device: Arc::new(device.clone()), in_pool: Some(device) }
    }

    pub(crate) fn reclaim_and_audit(&self) -> AuditReport {
        let Some(device) = &self.in_pool else { return AuditReport::default() };
        let pool = device.pool();
        pool.reclaim_and_audit(&pool.reachable(|visitor| device.visit_blocks(visitor)))
    }

    pub(crate) fn pool(&self) -> Option<&Pool<Modelled>> {
        self.in_pool.as_ref().map(|device| &**device.pool())
    }
}

/// Contents of which the first byte is the number's alone, and the others are those of fifteen more numbers: what was torn
/// may be made whole by the next.
fn contents(bytes: usize, number: u8) -> Vec<u8> {
    let mut contents = payload(bytes, number % 16);
    contents.iter_mut().take(1).for_each(|first| *first = number);
    contents
}

/// Sizes such that records often begin where a block does.
fn change(random: &mut SmallRng) -> (usize, u8) {
    const BYTES: [usize; 6] = [0, 0, 32, 64, 128, 608];
    (BYTES[random.random_range(0..BYTES.len())], random.random())
}

fn is_long(operation: &BlockLogOperation) -> bool {
    matches!(operation, BlockLogOperation::Transact(changes) if changes.len() >= LONG_CHANGES)
}

/// The changes of a transaction that fills more than half of a batch. In the room of the last one there would be what
/// commits the others, and the end of their batch.
fn long_changes(random: &mut SmallRng) -> Vec<(usize, u8)> {
    let mut changes: Vec<_> =
        (0..LONG_CHANGES).map(|_| (LONG_CHANGE_BYTES, random.random())).collect();
    changes.push(change(random));
    changes.push((POSITION_RECORD_BYTES as usize, random.random()));
    changes
}

/// One of the operations that fill a log. What is left of it when records are dropped begins anywhere in the ring.
fn filling(random: &mut SmallRng) -> BlockLogOperation {
    match random.random_range(0..24) {
        0..=2 => BlockLogOperation::KeepNewest(random.random_range(0..6)),
        3 => BlockLogOperation::Reopen,
        4 => BlockLogOperation::Abandon,
        5 => BlockLogOperation::Grow,
        _ => {
            let mut changes: Vec<_> =
                (0..random.random_range(1..4)).map(|_| change(random)).collect();
            changes[0].0 += random.random_range(0..100) * 32;
            BlockLogOperation::Transact(changes)
        }
    }
}

impl Subject for BlockLogSubject {
    type Operation = BlockLogOperation;
    type State = Transactions;
    type Live = LiveBlockLog;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        if self.in_pool { 1 << 20 } else { 0 }
    }

    fn device_blocks(&self) -> Vec<u64> {
        if self.in_pool { Vec::new() } else { vec![BLOCKS] }
    }

    fn device_faults(&self, seed: u64) -> Vec<DeviceFault> {
        let operations = (3..200).step_by(5).filter(|_| self.fails);
        operations
            .map(|operation| DeviceFault {
                operation: operation + seed as usize % 3,
                device: 0,
                request: BlockOperation::Write,
                after: 0,
            })
            .collect()
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<BlockLogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        if self.fills {
            return (0..count).map(|_| filling(&mut random)).collect();
        }
        let mut retained: Vec<usize> = Vec::new();
        let next = |_| {
            let mut changes: Vec<_> =
                (0..random.random_range(1..5)).map(|_| change(&mut random)).collect();
            match random.random_range(0..6) {
                0 => changes[0].0 = 2976,
                // It needs nearly all of the ring.
                1..=3 if retained.is_empty() => changes = long_changes(&mut random),
                _ => {}
            }
            let bytes = changes.iter().map(|(bytes, _)| bytes + 64).sum::<usize>();
            let is_full =
                !retained.is_empty() && retained.iter().sum::<usize>() + bytes > RETAINED_BYTES;
            match random.random_range(0..12) {
                0 if !self.grows && random.random() => BlockLogOperation::Abandon,
                0 => BlockLogOperation::Reopen,
                3 if self.grows => BlockLogOperation::Grow,
                1 if !is_full => {
                    retained.push(2048);
                    BlockLogOperation::FillBlock
                }
                drops if drops == 2 || is_full => {
                    // Only an empty ring becomes shorter.
                    let kept = if self.grows { 0 } else { random.random_range(0..3) };
                    retained.drain(..retained.len().saturating_sub(kept));
                    BlockLogOperation::KeepNewest(kept)
                }
                _ => {
                    retained.push(bytes);
                    BlockLogOperation::Transact(changes)
                }
            }
        };
        (0..count).map(next).collect()
    }

    fn probes(
        &self,
        _: &Transactions,
        interrupted: Option<&BlockLogOperation>,
        seed: u64,
    ) -> Vec<BlockLogOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        // The beginning of what was interrupted once more, so that the rest of it would fit behind, and most of its bytes.
        let mut changes = match interrupted {
            Some(BlockLogOperation::Transact(changes)) => changes.clone(),
            _ => vec![change(&mut random)],
        };
        // Of a long one also all but the last, or two blocks, so that the log ends more than half of a batch behind where it
        // did. Where nothing is retained there is room for that.
        let goes_far = changes.len() > LONG_CHANGES && random.random();
        changes.truncate(if goes_far { changes.len() - 1 } else { 1 });
        changes[0].1 ^= random.random_range(1..16) << 4;
        let first = match random.random() {
            true => BlockLogOperation::FillBlock,
            false => BlockLogOperation::Transact(changes),
        };
        let mut probes = Vec::new();
        if goes_far {
            probes.push(BlockLogOperation::KeepNewest(0));
            probes.extend(matches!(first, BlockLogOperation::FillBlock).then(|| first.clone()));
        }
        // Of a log that was closed nobody looks at what is behind the end.
        probes.extend([first, BlockLogOperation::Abandon]);
        if random.random() {
            probes.push(BlockLogOperation::KeepNewest(random.random_range(0..3)));
        }
        probes.push(BlockLogOperation::Reopen);
        probes.push(BlockLogOperation::Transact(vec![change(&mut random)]));
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveBlockLog, String> {
        let medium = Medium::create(storage, BLOCKS)?;
        let most_bytes = match self {
            Self { fills: true, .. } => MOST_FILLED_BYTES,
            Self { grows: true, .. } => MOST_BYTES,
            _ => 0,
        };
        let options = BlockLogOptions { most_bytes, ..OPTIONS };
        let log = BlockLog::create(medium.machine.clone(), Arc::clone(&medium.device), options);
        Ok(LiveBlockLog {
            log: Some(log.map_err(text)?),
            medium,
            fills: self.fills,
            was_refused: false,
        })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveBlockLog>, String> {
        let Some(medium) = Medium::open(storage)? else { return Ok(None) };
        let mut live = LiveBlockLog { log: None, medium, fills: self.fills, was_refused: false };
        let opened = match live.open() {
            // What was to fail before has not come to it. The device does not fail twice in a row.
            Err(BlockLogError::Device(_)) if self.fails => live.open(),
            opened => opened,
        };
        match opened {
            Ok(()) => Ok(Some(live)),
            Err(BlockLogError::NotALog) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn initial(&self) -> Transactions {
        Vec::new()
    }

    fn apply(&self, state: &mut Transactions, operation: &BlockLogOperation) {
        match operation {
            BlockLogOperation::Transact(changes) => {
                let digests =
                    changes.iter().map(|&(bytes, number)| digest(&contents(bytes, number)));
                state.push(digests.collect());
            }
            BlockLogOperation::FillBlock => state.push(vec![digest(&[])]),
            BlockLogOperation::KeepNewest(count) => {
                state.drain(..state.len().saturating_sub(*count));
            }
            BlockLogOperation::Reopen | BlockLogOperation::Abandon | BlockLogOperation::Grow => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("blocks/src/block_log") || file.contains("pmem/src/pool_device")
    }
}

impl LiveBlockLog {
    fn open(&mut self) -> Result<(), BlockLogError> {
        self.log = None;
        let device = Arc::clone(&self.medium.device);
        self.log = Some(BlockLog::open(self.medium.machine.clone(), device)?);
        Ok(())
    }

    fn log(&self) -> Result<&BlockLog<Modelled>, String> {
        self.log.as_ref().ok_or_else(|| "the log could not be opened again".to_owned())
    }

    /// Appends the changes and the record that commits them. Each says which the first one is.
    fn transact(&self, changes: &[(usize, u8)]) -> Result<(), BlockLogError> {
        let Some(log) = &self.log else { return Ok(()) };
        let bytes: usize = changes.iter().map(|(bytes, _)| bytes + 8).sum();
        let mut room = log.reserve(changes.len() as u64 + 1, bytes as u64 + 8)?;
        let mut first = 0u64;
        for &(bytes, number) in changes {
            let lsn = room.append(CHANGE, &[&first.to_le_bytes(), &contents(bytes, number)])?;
            if first == 0 {
                first = lsn.number();
            }
        }
        let lsn = room.append(COMMIT, &[&first.to_le_bytes()])?;
        log.commit(lsn, Durability::Immediate)?;
        Ok(())
    }

    fn fill_block(&self) -> Result<(), BlockLogError> {
        let Some(log) = &self.log else { return Ok(()) };
        let others = RECORD_HEADER_BYTES + 2 * POSITION_RECORD_BYTES;
        let end = log.end().number() + others;
        let filling =
            vec![0; (end.next_multiple_of(self.medium.device.unit_bytes() as u64) - end) as usize];
        let lsn = log.append(FILLING, &[&filling])?;
        let lsn = log.append(COMMIT, &[&lsn.number().to_le_bytes()])?;
        log.commit(lsn, Durability::Immediate).map(|_| ())
    }

    fn keep_newest(&self, count: usize) -> Result<(), BlockLogError> {
        let Some(log) = &self.log else { return Ok(()) };
        let found = committed(log)?;
        let first_kept = found.len().saturating_sub(count);
        log.truncate_before(found.get(first_kept).map_or(log.durable(), |(lsn, _)| *lsn))
    }

    fn transactions(&self) -> Result<Transactions, String> {
        let found = committed(self.log()?).map_err(text)?;
        Ok(found.into_iter().map(|(_, changes)| changes).collect())
    }

    fn attempt(&mut self, operation: &BlockLogOperation) -> Result<(), BlockLogError> {
        match operation {
            BlockLogOperation::Transact(changes) => self.transact(changes),
            BlockLogOperation::FillBlock => self.fill_block(),
            BlockLogOperation::KeepNewest(count) => self.keep_newest(*count),
            BlockLogOperation::Reopen => {
                if let Some(log) = self.log.take() {
                    log.close()?;
                }
                self.open()
            }
            BlockLogOperation::Abandon => self.open(),
            BlockLogOperation::Grow => {
                let Some(log) = &self.log else { return Ok(()) };
                log.grow_beyond(log.capacity_bytes()).map(|_| ())
            }
        }
    }
}

/// The first record of each transaction that was committed, and its changes. Of what belongs to none
/// there is one without.
fn committed(log: &BlockLog<Modelled>) -> Result<Vec<(Lsn, Changes)>, BlockLogError> {
    let (mut open, mut committed) = (Vec::<(u64, Vec<_>)>::new(), Vec::new());
    let mut reader = log.read_from(log.start())?;
    while let Some(record) = reader.next_record()? {
        let (first, contents) = match record.kind {
            FILLING => (&[0; 8], &[][..]),
            _ => record.payload.split_first_chunk().unwrap_or((&[0; 8], &[])),
        };
        let first = u64::from_le_bytes(*first);
        if record.kind == COMMIT {
            let found = open.iter().position(|(lsn, _)| *lsn == first);
            let (lsn, changes) = found.map(|at| open.remove(at)).unwrap_or_default();
            committed.push((Lsn::from_number(lsn), changes));
        } else if first == 0 {
            open.push((record.lsn.number(), vec![digest(contents)]));
        } else if let Some((_, changes)) = open.iter_mut().find(|(lsn, _)| *lsn == first) {
            changes.push(digest(contents));
        } else {
            committed.push((record.lsn, Vec::new()));
        }
    }
    Ok(committed)
}

impl Live<BlockLogOperation, Transactions> for LiveBlockLog {
    fn perform(&mut self, operation: &BlockLogOperation) -> Result<(), String> {
        let before = self.transactions()?.len();
        let has_records = self.log().is_ok_and(|log| log.start() < log.end());
        let done = self.attempt(operation);
        self.was_refused = matches!(done, Err(BlockLogError::Full { .. }));
        match done {
            // A long one needs what a truncation was to free that a power cut has undone.
            Err(BlockLogError::Full { .. }) if self.fills || has_records && is_long(operation) => {
                Ok(())
            }
            // The device has failed, and does not fail twice in a row.
            Err(BlockLogError::Failed(_) | BlockLogError::Device(_)) => {
                self.open().map_err(text)?;
                let is_done = !matches!(operation, BlockLogOperation::KeepNewest(_))
                    && self.transactions()?.len() > before;
                if is_done { Ok(()) } else { self.attempt(operation).map_err(text) }
            }
            outcome => outcome.map_err(text),
        }
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn observe(&self) -> Result<Transactions, String> {
        self.transactions()
    }

    fn check(&self) -> Vec<String> {
        let log = match self.log() {
            Ok(log) => log,
            Err(what) => return vec![what],
        };
        let is_in_order = log.start() <= log.durable() && log.durable() <= log.end();
        if is_in_order { Vec::new() } else { vec![format!("{log:?} ends before it begins")] }
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        self.medium.reclaim_and_audit()
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        self.medium.pool()
    }
}
