//! Histories of random transactions of several threads have an order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_device::{Config, RunEnd, SchedulePolicy, WorkerProgram};
use lapis_engine::mutants::READS_NOT_VALIDATED;
use lapis_engine::{Durability, Engine, EngineError, Snapshot, Table, Transaction};
use lapis_pmem::{Domain, Hardware};
use parking_lot::Mutex;

use crate::harness::{Random, Rig, modelled, small};
use crate::history::{Anomaly, Operation, check};

const KEYS: u64 = 6;

fn list(value: Option<Vec<u8>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    value.chunks_exact(8).map(|item| u64::from_le_bytes(item.try_into().unwrap())).collect()
}

/// Lists are kept short enough for a page: a key has so many.
const LONGEST: usize = 90;

struct Workload<D: Domain> {
    engine: Engine<D>,
    table: Arc<Table<D>>,
    next: AtomicU64,
    history: Mutex<Vec<Vec<Operation>>>,
}

impl<D: Domain> Workload<D> {
    fn on(engine: &Engine<D>) -> Self {
        let table = engine.create_table("t").unwrap();
        Self { engine: engine.clone(), table, next: AtomicU64::new(1), history: Mutex::default() }
    }

    /// Whether there is an order, and how many appends it explains.
    fn judge(self) -> Result<usize, Anomaly> {
        let read = |key: u64| list(self.engine.get(&self.table, &key.to_be_bytes()).unwrap());
        let last: BTreeMap<_, _> = (0..KEYS).map(|key| (key, read(key))).collect();
        check(&self.history.into_inner(), &last)?;
        Ok(last.values().map(Vec::len).sum())
    }

    fn attempt(
        &self,
        transaction: &mut Transaction<D>,
        random: &mut Random,
    ) -> Result<Vec<Operation>, EngineError> {
        let mut done = Vec::new();
        for _ in 0..=random.below(3) {
            let key = random.below(KEYS);
            let read = list(transaction.get(&self.table, &key.to_be_bytes())?);
            done.push(Operation::Read(key, read.clone()));
            if random.below(2) == 0 && read.len() < LONGEST {
                let item = self.next.fetch_add(1, Ordering::Relaxed);
                let items = read.iter().chain([&item]).flat_map(|item| item.to_le_bytes());
                let value: Vec<u8> = items.collect();
                transaction.put(&self.table, &key.to_be_bytes(), &value)?;
                done.push(Operation::Append(key, item));
            }
        }
        // What comes after an own append to a key is no reading of others.
        let mut seen = Vec::new();
        done.retain(|operation| match operation {
            Operation::Append(key, _) => {
                seen.push(*key);
                true
            }
            Operation::Read(key, _) => !seen.contains(key),
        });
        Ok(done)
    }

    fn run(&self, seed: u64, transactions: u32) {
        let mut random = Random::new(seed);
        for _ in 0..transactions {
            loop {
                let mut transaction = self.engine.begin().unwrap();
                let done = self.attempt(&mut transaction, &mut random).unwrap();
                match transaction.commit(Durability::Eventual) {
                    Ok(_) => {
                        self.history.lock().push(done);
                        break;
                    }
                    Err(EngineError::Conflict) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn watch(&self, seed: u64, snapshots: u32) {
        let mut random = Random::new(seed);
        for _ in 0..snapshots {
            let snapshot: Snapshot<_> = self.engine.snapshot().unwrap();
            let mut done = Vec::new();
            if random.below(2) == 0 {
                let mut all: BTreeMap<u64, Vec<u64>> = (0..KEYS).map(|key| (key, vec![])).collect();
                for entry in snapshot.range::<&[u8]>(&self.table, ..).unwrap() {
                    let (key, value) = entry.unwrap();
                    all.insert(u64::from_be_bytes(key.try_into().unwrap()), list(Some(value)));
                }
                done.extend(all.into_iter().map(|(key, list)| Operation::Read(key, list)));
            } else {
                for key in 0..KEYS {
                    let value = snapshot.get(&self.table, &key.to_be_bytes()).unwrap();
                    done.push(Operation::Read(key, list(value)));
                }
            }
            self.history.lock().push(done);
        }
    }
}

#[test]
fn transactions_and_snapshots_of_several_threads_have_an_order() {
    for round in 0..8_u64 {
        let rig = Rig::new(small());
        let workload = Workload::on(&rig.engine);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let workload = &workload;
                scope.spawn(move || workload.run(1 + round * 10 + thread, 150));
            }
            scope.spawn(|| workload.watch(9 + round * 10, 60));
        });
        assert!(workload.judge().unwrap() > 100, "too few appends");
    }
}

/// Three workers of the modelled machine with transactions, and one with snapshots.
fn run_on_the_modelled_machine(config: Config, policy: &SchedulePolicy) -> Result<usize, Anomaly> {
    let (machine, engine) = modelled(config);
    let workload = Workload::on(&engine);
    let run = |seed| -> WorkerProgram<'_> {
        let workload = &workload;
        Box::new(move || workload.run(seed, 8))
    };
    let programs = vec![run(1), run(2), run(3), Box::new(|| workload.watch(4, 4))];
    assert_eq!(machine.run_workers(policy, programs).end, RunEnd::Completed, "{policy:?}");
    workload.judge()
}

/// Random schedules, and such as change workers seldom.
fn policies(seeds: u64) -> impl Iterator<Item = SchedulePolicy> {
    SchedulePolicy::of_seeds(seeds, 6, 20_000)
}

#[test]
fn transactions_and_snapshots_have_an_order_under_any_schedule() {
    let run = |policy| run_on_the_modelled_machine(Config::concurrent(), &policy).unwrap();
    let appends: usize = policies(12).map(run).sum();
    assert!(appends > 300, "{appends}");
}

#[test]
fn reads_that_are_not_validated_are_found_under_some_schedule() {
    let mutant = || Config::concurrent().committing(READS_NOT_VALIDATED);
    let found =
        policies(40).find_map(|policy| run_on_the_modelled_machine(mutant(), &policy).err());
    assert!(found.is_some());
}

/// What a transaction read of registers, and what it wrote.
#[derive(Debug)]
struct Registers {
    lsn: u64,
    read: Vec<(u64, Option<u64>)>,
    written: Vec<(u64, u64)>,
}

/// Transactions that read some registers and write others, blindly too: each write has a value of its own.
fn use_registers(engine: &Engine<Hardware>, next: &AtomicU64, seed: u64) -> Vec<Registers> {
    let (table, mut random) = (engine.table("t").unwrap(), Random::new(seed));
    let (mut history, mut last) = (Vec::new(), 0);
    while history.len() < 200 {
        let mut transaction = engine.begin().unwrap();
        let read = (0..random.below(3)).map(|_| {
            let key = random.below(KEYS);
            let value = transaction.get(&table, &key.to_be_bytes()).unwrap();
            (key, value.map(|value| u64::from_le_bytes(value.try_into().unwrap())))
        });
        let read: Vec<_> = read.collect();
        let written: BTreeMap<_, _> = (0..=random.below(2))
            .map(|_| (random.below(KEYS), next.fetch_add(1, Ordering::Relaxed)))
            .collect();
        for (key, value) in &written {
            transaction.put(&table, &key.to_be_bytes(), &value.to_le_bytes()).unwrap();
        }
        match transaction.commit(Durability::Eventual) {
            Ok(lsn) => {
                assert!(lsn > last, "a thread's transactions come in its order");
                last = lsn;
                history.push(Registers { lsn, read, written: written.into_iter().collect() });
            }
            Err(EngineError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
    history
}

/// Who writes blindly tells nobody after whom: here the order of the log is taken at its word, and explains every read.
#[test]
fn registers_are_read_as_the_order_of_the_commit_records_says() {
    for round in 0..4 {
        let rig = Rig::new(small());
        rig.engine.create_table("t").unwrap();
        let next = AtomicU64::new(1);
        let mut history: Vec<Registers> = std::thread::scope(|scope| {
            let (engine, next) = (&rig.engine, &next);
            let threads = [1, 2, 3].map(|thread| {
                scope.spawn(move || use_registers(engine, next, round * 10 + thread))
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        history.sort_by_key(|transaction| transaction.lsn);
        let mut now = BTreeMap::new();
        for transaction in &history {
            for (key, value) in &transaction.read {
                assert_eq!(now.get(key), value.as_ref(), "{transaction:?}");
            }
            now.extend(transaction.written.iter().copied());
        }
    }
}

/// A worker commits to two tables what another reads of them, key by key, by gets.
fn read_while_written(policy: &SchedulePolicy) -> Result<(), String> {
    let (machine, engine) = modelled(Config::concurrent());
    let tables = ["first", "second"].map(|name| engine.create_table(name).unwrap());
    let read = |table| engine.get(table, b"key").unwrap().map_or(0, |value| value[0]);
    let mut wrong = None;
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| {
            for round in 1..=3 {
                let mut transaction = engine.begin().unwrap();
                tables.iter().for_each(|table| transaction.put(table, b"key", &[round]).unwrap());
                transaction.commit(Durability::Immediate).unwrap();
            }
        }),
        Box::new(|| {
            for _ in 0..3 {
                let (first, second) = (read(&tables[0]), read(&tables[1]));
                if second < first {
                    wrong = Some((first, second));
                }
            }
        }),
    ];
    let end = machine.run_workers(policy, programs).end;
    if end == RunEnd::Completed && wrong.is_none() {
        Ok(())
    } else {
        Err(format!("{end:?}, {wrong:?}"))
    }
}

#[test]
fn who_gets_one_key_of_a_transaction_gets_the_others_after_it() {
    for policy in SchedulePolicy::of_seeds(100, 3, 2000) {
        assert_eq!(read_while_written(&policy), Ok(()), "{policy:?}");
    }
}
