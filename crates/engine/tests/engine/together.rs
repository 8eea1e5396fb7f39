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
    Snapshot, Storage, Table, TableStructure, TimeToLive, verify_backup,
};
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::{Mutant, Pool, Region};
use parking_lot::Mutex;

use crate::harness::{HASHED, LOG_BLOCKS, Random, settle};
use crate::placements;

const NAMES: [&str; 2] = ["left", "right"];
const KEYS: u64 = 4;

/// An engine, and the tables that were ever made: by its number a table is known from others of its name.
struct Together {
    engine: Engine<Modelled>,
    now_ms: &'static AtomicU64,
    made: Mutex<Vec<(Arc<Table<Modelled>>, u64)>>,
    numbers: AtomicU64,
    wrong: Mutex<Option<String>>,
    done: Mutex<BTreeMap<&'static str, u64>>,
}

type Done = Result<&'static str, EngineError>;

/// What somebody reads again and again: a table in a state, and what it had there.
type Held = Option<(Snapshot<Modelled>, Arc<Table<Modelled>>, Vec<Option<Vec<u8>>>)>;

/// A value that says to which table and key it belongs.
fn value_in(table: u64, key: u64, random: &mut Random) -> Vec<u8> {
    let bytes = [16, 300, 9000, 20_000][random.below(4) as usize];
    let words = [table, key].into_iter().flat_map(u64::to_le_bytes);
    words.cycle().take(bytes).collect()
}

impl Together {
    fn number_of(&self, table: &Arc<Table<Modelled>>) -> Option<u64> {
        let made = self.made.lock();
        made.iter().find(|(it, _)| Arc::ptr_eq(it, table)).map(|(_, number)| *number)
    }

    /// A value that says where it belongs.
    fn value(&self, table: &Arc<Table<Modelled>>, key: u64, random: &mut Random) -> Vec<u8> {
        value_in(self.number_of(table).unwrap_or(u64::MAX), key, random)
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
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.made.lock().push((made, number));
        Ok("made")
    }

    fn load(&self, name: &str, random: &mut Random) -> Done {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let entries = (0..KEYS).map(|key| (key.to_be_bytes(), value_in(number, key, random)));
        let made = self.engine.load_table(name, entries)?;
        self.made.lock().push((made, number));
        Ok("loaded")
    }

    /// What a state has of a table.
    fn all(
        &self,
        snapshot: &Snapshot<Modelled>,
        table: &Arc<Table<Modelled>>,
    ) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let all = (0..KEYS).map(|number| {
            let key = number.to_be_bytes();
            let value = snapshot.get(table, &key)?;
            value.iter().for_each(|value| self.look("snapshot", table, &key, value));
            Ok(value)
        });
        all.collect()
    }

    /// Begins to read a state, or reads it again.
    fn look_again(&self, table: &Arc<Table<Modelled>>, held: &mut Held) -> Done {
        let Some((snapshot, table, before)) = held.as_ref() else {
            let snapshot = self.engine.snapshot()?;
            let all = self.all(&snapshot, table)?;
            *held = Some((snapshot, Arc::clone(table), all));
            return Ok("snapshot");
        };
        match self.all(snapshot, table) {
            Ok(now) if now == *before => {}
            Ok(_) => *self.wrong.lock() = Some("a snapshot changes".to_owned()),
            Err(error) => {
                *held = None;
                return Err(error);
            }
        }
        Ok("snapshot again")
    }

    fn step(&self, random: &mut Random, held: &mut Held) -> Done {
        let engine = &self.engine;
        let (name, number) = (NAMES[random.below(2) as usize], random.below(KEYS));
        let (key, later) = (number.to_be_bytes(), Durability::Eventual);
        let way = random.below(26);
        match way {
            0 => return self.make(name, random),
            1 => return self.load(name, random),
            2 if random.below(2) == 0 => *held = None,
            _ => {}
        }
        let table = match engine.table(name) {
            Ok(table) if self.number_of(&table).is_some() => table,
            Ok(_) => return Ok("not yet known"),
            Err(EngineError::NoSuchTable { .. }) if random.below(2) == 0 => {
                return self.load(name, random);
            }
            Err(EngineError::NoSuchTable { .. }) => return self.make(name, random),
            Err(error) => return Err(error),
        };
        match way {
            2 | 24 => engine.drop_table(name).map(|()| "dropped"),
            3 => engine.checkpoint().map(|()| "checkpoint"),
            4 => engine.compact().map(|_| "compacted"),
            5 => {
                let mut backup = Vec::new();
                let made = engine.backup(&mut backup).and_then(|_| verify_backup(&backup[..]));
                match made {
                    Ok(_) => Ok("backed up"),
                    Err(BackupError::Engine(error)) => Err(error),
                    Err(error) => panic!("{error}"),
                }
            }
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
            19 | 21 | 22 => self.look_again(&table, held),
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
        let (mut random, mut held) = (Random::new(seed), None);
        for _ in 0..steps {
            let what = match self.step(&mut random, &mut held) {
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

/// A clock is for ever: who looks for leaks finds it here.
static CLOCKS: Mutex<Vec<&AtomicU64>> = Mutex::new(Vec::new());

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
    CLOCKS.lock().push(now_ms);
    let options = EngineOptions { clock: Clock::Set(now_ms), ..placements::options(placement) };
    let together = &Together {
        engine: Engine::create(machine.clone(), storage, &options).unwrap(),
        now_ms,
        made: Mutex::default(),
        numbers: AtomicU64::new(0),
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
    settle(&together.engine);
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
        let mut policies = (0..).zip(SchedulePolicy::of_seeds(200, 4, 20_000));
        let found = policies.find_map(|(seed, policy)| {
            run(&policy, seed, Placement::Ssd, Some(mutant)).0.err().map(|what| (seed, what))
        });
        println!("{}: {found:?}", mutant.0);
        assert!(found.is_some(), "{} survived", mutant.0);
    }
}
