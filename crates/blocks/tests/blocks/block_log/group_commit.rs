//! Commits that share a sync.

use std::sync::Arc;
use std::thread;

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability, Lsn};
use lapis_device::ModelledSsd;
use lapis_pmem::{
    BlockCounts, BlockDevice, BlockError, BlockQueue, DirectTransfers, FileDevice, Hardware,
};
use parking_lot::{Condvar, Mutex};

use super::faults::block_device;
use super::{Log, append, commit, contents, create, on_ssd, open, recovered, ssd};

/// A device whose flushes wait for the gate.
#[derive(Clone, Debug)]
struct Gated {
    device: ModelledSsd,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug, Default)]
struct Gate {
    is_shut: bool,
    waiting: u32,
    /// Flushes at a time, at most.
    most: u32,
}

impl Gated {
    fn new() -> Self {
        Self { device: ssd(), gate: Arc::default() }
    }

    fn inner(&self) -> &ModelledSsd {
        &self.device
    }

    fn set_shut(&self, is_shut: bool) {
        self.gate.0.lock().is_shut = is_shut;
        self.gate.1.notify_all();
    }

    /// Waits until a flush waits.
    fn await_flush(&self) {
        let mut gate = self.gate.0.lock();
        while gate.waiting == 0 {
            self.gate.1.wait(&mut gate);
        }
    }
}

block_device! { Gated, inner,
    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.device.read_blocks(first_block, into)
    }
    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        self.device.write_blocks(first_block, from)
    }
    fn flush(&self) -> Result<(), BlockError> {
        let mut gate = self.gate.0.lock();
        gate.waiting += 1;
        gate.most = gate.most.max(gate.waiting);
        self.gate.1.notify_all();
        while gate.is_shut {
            self.gate.1.wait(&mut gate);
        }
        drop(gate);
        thread::yield_now();
        let outcome = self.device.flush();
        self.gate.0.lock().waiting -= 1;
        outcome
    }
}

/// Waits until so many records have been appended.
fn await_records(log: &Log, records: u64) {
    while log.statistics().records < records {
        thread::yield_now();
    }
}

/// One thread commits, and so many others while its sync runs; what each was told.
fn commits_during_a_sync(gated: &Gated, log: &Log, others: u64) -> Vec<Result<(), BlockLogError>> {
    gated.set_shut(true);
    let commit = || {
        let lsn = log.append(1, &[b"record"])?;
        log.commit(lsn, Durability::Immediate).map(|_| ())
    };
    thread::scope(|scope| {
        let first = scope.spawn(commit);
        gated.await_flush();
        let others: Vec<_> = (0..others).map(|_| scope.spawn(commit)).collect();
        await_records(log, 1 + others.len() as u64);
        gated.set_shut(false);
        [first].into_iter().chain(others).map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_arrives_while_a_sync_runs_shares_the_next_one() {
    let gated = Gated::new();
    let log = create(gated.clone());
    let told = commits_during_a_sync(&gated, &log, 7);
    assert!(told.iter().all(Result::is_ok));
    let statistics = log.statistics();
    assert_eq!((statistics.commits, statistics.syncs), (8, 2));
    assert_eq!(contents(&log).len(), 8);
}

#[test]
fn appending_does_not_wait_for_a_sync_that_runs() {
    let gated = Gated::new();
    let log = create(gated.clone());
    append(&log, 10, 1);
    gated.set_shut(true);
    thread::scope(|scope| {
        let syncing = scope.spawn(|| log.sync());
        gated.await_flush();
        let lsn = append(&log, 10, 2).0;
        let ticket = log.commit(lsn, Durability::Group).unwrap();
        log.commit(append(&log, 10, 3).0, Durability::Eventual).unwrap();
        assert!(!ticket.is_durable() && contents(&log).is_empty());
        gated.set_shut(false);
        syncing.join().unwrap().unwrap();
        assert!(!ticket.is_durable(), "the sync had begun before");
        ticket.wait().unwrap();
    });
    assert_eq!(contents(&log).len(), 3);
    assert_eq!(log.statistics().syncs, 2);
}

#[test]
fn everybody_who_waits_for_a_sync_that_fails_is_told_so() {
    let gated = Gated::new();
    let log = create(gated.clone());
    gated.device.fail_after(lapis_pmem::BlockOperation::Flush, 0);
    for outcome in commits_during_a_sync(&gated, &log, 5) {
        assert!(matches!(outcome, Err(BlockLogError::Failed(_))), "{outcome:?}");
    }
    assert_eq!(contents(&log), []);
}

#[test]
fn no_two_flushes_run_at_a_time_of_which_one_would_be_told_of_a_failure() {
    let gated = Gated::new();
    let log = create(gated.clone());
    thread::scope(|scope| {
        for number in 0..2 {
            let log = &log;
            scope.spawn(move || (0..150).for_each(|_| _ = commit(log, 10, number)));
        }
        scope.spawn(|| {
            let mut ended = false;
            while !ended {
                ended = log.statistics().records >= 300;
                log.truncate_before(log.durable()).unwrap();
            }
        });
    });
    assert!(log.start() > Lsn::default());
    assert_eq!(gated.gate.0.lock().most, 1);
}

#[test]
fn a_ticket_is_durable_by_somebody_elses_sync() {
    let log = create(ssd());
    let ticket = log.commit(append(&log, 10, 1).0, Durability::Group).unwrap();
    assert!(!ticket.is_durable());
    commit(&log, 10, 2);
    assert!(ticket.is_durable());
    ticket.wait().unwrap();
    assert_eq!(log.statistics().syncs, 1);
}

#[test]
fn commits_of_what_is_durable_cost_no_sync() {
    let (device, log) = on_ssd();
    let (lsn, ..) = commit(&log, 10, 1);
    let counts = device.counts();
    log.commit(lsn, Durability::Immediate).unwrap();
    log.sync().unwrap();
    assert_eq!(device.counts(), counts);
    assert_eq!(log.statistics().syncs, 1);
}

#[test]
fn a_commit_costs_one_write_of_the_blocks_it_touches_and_one_flush() {
    let (device, log) = on_ssd();
    for (number, blocks) in [(0, 1), (100, 1), (4000, 2), (3000, 1)] {
        let before = device.counts();
        commit(&log, number, 1);
        let after = device.counts();
        assert_eq!(after.writes - before.writes, 1);
        assert_eq!(after.flushes - before.flushes, 1);
        assert_eq!(after.written_bytes - before.written_bytes, blocks * 4096, "{number}");
    }
    assert_eq!(log.statistics().written_bytes, 5 * 4096);
}

#[test]
fn threads_on_a_file_lose_nothing_and_keep_their_order() {
    const THREADS: u8 = 4;
    const COMMITS: u32 = 150;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let options = BlockLogOptions {
        segment_bytes: 64 << 10,
        batch_bytes: 32 << 10,
        ..BlockLogOptions::new(3)
    };
    let device = FileDevice::create(&path, 2 + 32, DirectTransfers::Never).unwrap();
    let log = BlockLog::create(Hardware::detect(), Arc::new(device), options).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for number in 0..COMMITS {
                    let filling = vec![thread; number as usize % 90];
                    let lsn = log.append(thread, &[&number.to_le_bytes(), &filling]).unwrap();
                    let durability = match number % 5 {
                        0 => Durability::Eventual,
                        1 => Durability::Group,
                        _ => Durability::Immediate,
                    };
                    let ticket = log.commit(lsn, durability).unwrap();
                    if durability == Durability::Group {
                        ticket.wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(log.statistics().records, u64::from(THREADS) * u64::from(COMMITS));
    assert!(log.statistics().syncs <= log.statistics().commits);
    log.close().unwrap();
    drop(log);
    let (found, log) = recovered(FileDevice::open(&path, DirectTransfers::Never).unwrap()).unwrap();
    for thread in 0..THREADS {
        let numbers = found.iter().filter(|(_, kind, _)| *kind == thread).map(|(.., payload)| {
            assert!(payload[4..].iter().all(|&byte| byte == thread));
            u32::from_le_bytes(*payload.first_chunk().unwrap())
        });
        assert!(numbers.eq(0..COMMITS), "thread {thread}");
    }
    drop(log);
    open(FileDevice::open(&path, DirectTransfers::IfPossible).unwrap()).unwrap();
}

#[test]
fn a_batch_tells_once_when_half_of_it_is_filled_and_can_be_written_early_then() {
    let log = create(ssd());
    let mut told = 0;
    // Five of them are more than half of 16 KiB, four are less; a batch has room for seven.
    for number in 0..7 {
        assert!(number >= 4 || !log.write_early().unwrap());
        append(&log, 2000, number);
        told += u32::from(log.take_half_full());
    }
    assert_eq!(told, 1);
    assert!(log.write_early().unwrap() && !log.write_early().unwrap());
    assert_eq!(log.durable(), log.end());
}
