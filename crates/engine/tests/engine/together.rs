//! All that an engine does, at once: tables are made, dropped, loaded, compacted and backed up while others read and
//! write them, on schedules of the modelled machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis_device::{
    Config, Modelled, ModelledSsd, RunEnd, SchedulePolicy, SsdConfig, WorkerProgram,
};
use lapis_engine::mutants::{READERS_FORGOTTEN, VERSIONS_NOT_KEPT};
use lapis_engine::{
    BackupError, Clock, Durability, Engine, EngineError, EngineOptions, LeafLayout, Placement,
    Storage, Table, TableStructure, TimeToLive,
};
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::{Mutant, Pool, Region};
use parking_lot::Mutex;

use crate::harness::{HASHED, LOG_BLOCKS, Random};
use crate::placements;

const NAMES: [&str; 2] = ["left", "right"];
const KEYS: u64 = 4;

/// An engine, and the tables that were ever made: by its place here a table is known from others of its name.
struct Together {
    engine: Engine<Modelled>,
    now_ms: &'static AtomicU64,
    made: Mutex<Vec<Arc<Table<Modelled>>>>,
    wrong: Mutex<Option<String>>,
    done: Mutex<BTreeMap<&'static str, u64>>,
}

type Done = Result<&'static str, EngineError>;

impl Together {
    fn number_of(&self, table: &Arc<Table<Modelled>>) -> Option<u64> {
        let made = self.made.lock();
        made.iter().position(|it| Arc::ptr_eq(it, table)).map(|at| at as u64)
    }

    /// A value that says where it belongs.
    fn value(&self, table: &Arc<Table<Modelled>>, key: u64, random: &mut Random) -> Vec<u8> {
        let bytes = [16, 300, 9000, 20_000][random.below(4) as usize];
        let table = self.number_of(table).unwrap_or(u64::MAX);
        let words = [table, key].into_iter().flat_map(u64::to_le_bytes);
        words.cycle().take(bytes).collect()
    }

    /// Notes if a value does not belong where it was found.
    fn look(&self, what: &str, table: &Arc<Table<Modelled>>, key: &[u8], value: &[u8]) {
        let Some(number) = self.number_of(table) else { return };
        let key = u64::from_be_bytes(key.try_into().unwrap());
        let words = [number, key].into_iter().flat_map(u64::to_le_bytes);
        if !words.cycle().take(value.len()).eq(value.iter().copied()) {
            let found = value.iter().take(16).collect::<Vec<_>>();
            *self.wrong.lock() = Some(format!("{what}: table {number}, key {key} has {found:?}"));
        }
    }

    fn make(&self, name: &str, random: &mut Random) -> Done {
        let index = IndexOptions::default();
        let kinds = [IndexKind::FastFair, IndexKind::Cceh];
        let structure = match random.below(4) {
            0 if self.engine.pool().is_some() => {
                TableStructure::Index(kinds[random.below(2) as usize], &index)
            }
            1 => HASHED,
            _ => TableStructure::Tree(LeafLayout::Sorted),
        };
        let made = self.engine.create_table_with(name, structure, None)?;
        self.made.lock().push(made);
        Ok("made")
    }

    fn step(&self, random: &mut Random) -> Done {
        let engine = &self.engine;
        let (name, number) = (NAMES[random.below(2) as usize], random.below(KEYS));
        let (key, later) = (number.to_be_bytes(), Durability::Eventual);
        let way = random.below(24);
        if way == 0 {
            return self.make(name, random);
        }
        let table = match engine.table(name) {
            Ok(table) if self.number_of(&table).is_some() => table,
            Ok(_) => return Ok("not yet known"),
            Err(EngineError::NoSuchTable { .. }) => return self.make(name, random),
            Err(error) => return Err(error),
        };
        match way {
            1 | 2 => engine.drop_table(name).map(|()| "dropped"),
            3 => engine.checkpoint().map(|()| "checkpoint"),
            4 => engine.compact().map(|_| "compacted"),
            5 => match engine.backup(std::io::sink()) {
                Ok(_) => Ok("backed up"),
                Err(BackupError::Engine(error)) => Err(error),
                Err(error) => panic!("{error}"),
            },
            6..8 => engine.maintain().map(|_| "maintained"),
            8..10 => engine.remove(&table, &key, later).map(|_| "removed"),
            10..14 => {
                let value = self.value(&table, number, random);
                engine.put(&table, &key, &value, later).map(|_| "put")
            }
            14 => {
                let value = self.value(&table, number, random);
                self.now_ms.fetch_add(1, Ordering::Relaxed);
                let time = TimeToLive::For(Duration::from_millis(random.below(3)));
                engine.put_with(&table, &key, &value, time, later).map(|_| "put for a time")
            }
            15 => {
                let value = self.value(&table, number, random);
                let mut writer = engine.value_writer(&table, &key, TimeToLive::Forever)?;
                value.chunks(4000).try_for_each(|bytes| writer.append(bytes))?;
                writer.finish(later).map(|_| "written")
            }
            16 => {
                let Some(mut reader) = engine.value_reader(&table, &key)? else {
                    return Ok("not there");
                };
                let (mut value, mut into) = (Vec::new(), [0; 3000]);
                while let bytes @ 1.. = reader.read(&mut into)? {
                    value.extend_from_slice(&into[..bytes]);
                }
                self.look("reader", &table, &key, &value);
                Ok("read")
            }
            17 => {
                let mut transaction = engine.begin()?;
                if let Some(value) = transaction.get(&table, &key)? {
                    self.look("transaction", &table, &key, &value);
                }
                let other = random.below(KEYS);
                let value = self.value(&table, other, random);
                transaction.put(&table, &other.to_be_bytes(), &value)?;
                transaction.remove(&table, &key)?;
                transaction.commit(later).map(|_| "committed")
            }
            18 if table.is_ordered() => {
                for entry in engine.range::<&[u8]>(&table, ..)? {
                    let (key, value) = entry?;
                    self.look("range", &table, &key, &value);
                }
                Ok("scanned")
            }
            19 => {
                let snapshot = engine.snapshot()?;
                for number in 0..KEYS {
                    let key = number.to_be_bytes();
                    let first = snapshot.get(&table, &key)?;
                    let second = snapshot.get(&table, &key)?;
                    if first != second {
                        *self.wrong.lock() = Some(format!("a snapshot changes at key {number}"));
                    }
                    if let Some(value) = first {
                        self.look("snapshot", &table, &key, &value);
                    }
                }
                Ok("looked at")
            }
            20 => engine.remove_expired().map(|_| "expired"),
            _ => {
                if let Some(value) = engine.get(&table, &key)? {
                    self.look("get", &table, &key, &value);
                }
                Ok("got")
            }
        }
    }

    fn work(&self, seed: u64, steps: usize) {
        let mut random = Random::new(seed);
        for _ in 0..steps {
            let what = match self.step(&mut random) {
                Ok(what) => what,
                Err(EngineError::Dropped { .. } | EngineError::NoSuchTable { .. }) => "refused",
                Err(EngineError::TableExists { .. }) => "exists",
                Err(EngineError::Conflict) => "conflict",
                Err(error) => {
                    *self.wrong.lock() = Some(format!("{error}: {error:?}"));
                    "failed"
                }
            };
            *self.done.lock().entry(what).or_default() += 1;
        }
    }
}

/// Three workers that each do 25 things. What came of it, and how often what was done.
fn run(
    policy: &SchedulePolicy,
    seed: u64,
    placement: Placement,
    mutant: Option<Mutant>,
) -> (Result<(), String>, BTreeMap<&'static str, u64>) {
    let region = Region::anonymous(8 << 20, 8 << 20).unwrap();
    let machine = Modelled::over(&region, Config { mutant, ..Config::concurrent() });
    let ssd = |blocks| {
        Arc::new(ModelledSsd::attached_to(&machine, blocks, SsdConfig::default()).unwrap())
    };
    let storage = if placement.has_persistent_memory() {
        Storage::with_pool(ssd(1), Arc::new(Pool::create(region, machine.clone()).unwrap()))
    } else {
        Storage::ssd(ssd(1), ssd(LOG_BLOCKS))
    };
    let now_ms: &AtomicU64 = Box::leak(Box::default());
    let options = EngineOptions { clock: Clock::Set(now_ms), ..placements::options(placement) };
    let together = &Together {
        engine: Engine::create(machine.clone(), storage, &options).unwrap(),
        now_ms,
        made: Mutex::default(),
        wrong: Mutex::default(),
        done: Mutex::default(),
    };
    let working =
        |worker| -> WorkerProgram<'_> { Box::new(move || together.work(3 * seed + worker, 25)) };
    let end = machine.run_workers(policy, vec![working(0), working(1), working(2)]).end;
    let done = std::mem::take(&mut *together.done.lock());
    let wrong = together.wrong.lock().take();
    if end != RunEnd::Completed || wrong.is_some() {
        return (Err(format!("{end:?}, {wrong:?}")), done);
    }
    while together.engine.maintain().unwrap() {}
    together.engine.checkpoint().unwrap();
    let problems = together.engine.check();
    (if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }, done)
}

fn nobody_gets_what_is_anothers(seeds: u64) {
    let spitfire = "spitfire:0.2,0.9,0.2,0.5".parse().unwrap();
    for placement in [Placement::Ssd, Placement::BasicNvm, Placement::ThreeTier, spitfire] {
        let mut all: BTreeMap<_, u64> = BTreeMap::new();
        for (seed, policy) in (0..).zip(SchedulePolicy::of_seeds(seeds, 4, 20_000)) {
            let (outcome, done) = run(&policy, seed, placement, None);
            assert_eq!(outcome, Ok(()), "{placement}, {seed}, {policy:?}");
            done.into_iter().for_each(|(what, times)| *all.entry(what).or_default() += times);
        }
        println!("{placement}: {all:?}");
        assert!(all.len() > 16 && all["dropped"] > 50 && all["put"] > 100, "{all:?}");
    }
}

#[test]
fn whatever_is_done_at_once_nobody_gets_what_is_anothers() {
    nobody_gets_what_is_anothers(8);
}

#[test]
#[ignore = "thousands of schedules: minutes"]
fn in_thousands_of_schedules_nobody_gets_what_is_anothers_either() {
    nobody_gets_what_is_anothers(1500);
}

#[test]
fn what_readers_lose_who_are_forgotten_is_found() {
    for mutant in [READERS_FORGOTTEN, VERSIONS_NOT_KEPT] {
        let policies = (0..).zip(SchedulePolicy::of_seeds(200, 4, 20_000));
        let found = policies.into_iter().find_map(|(seed, policy)| {
            run(&policy, seed, Placement::Ssd, Some(mutant)).0.err().map(|what| (seed, what))
        });
        println!("{}: {found:?}", mutant.0);
        assert!(found.is_some(), "{} survived", mutant.0);
    }
}
