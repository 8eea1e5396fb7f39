//! Histories that are cut at any point, and recovered: structure records first, then all logical records.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_buffer::mutants::{CHANGED_SINCE_NOT_LOWERED, FREED_PAGE_REUSED_EARLY};
use lapis_buffer::{BufferManager, LogError, Statistics, WriteAheadLog};
use lapis_device::{Config, Modelled, ModelledSsd, SsdConfig};
use lapis_pmem::{Mutant, Region};
use lapis_tree::mutants::{
    CUT_NOT_LOGGED, HOLE_LEFT_OPEN, LONG_FENCE_CUT, MOVED_RECORDS_NOT_LOGGED, REDO_WITHOUT_LSN_TEST,
};
use lapis_tree::{Finding, LeafLayout, Redo, StructureLog, Tree, TreeReport};
use parking_lot::Mutex;

use crate::model::forwards;
use crate::{LAYOUTS, Random, options};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Record {
    Structure(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

/// A log of which LSN n is the n-th record.
#[derive(Debug, Default)]
struct Log {
    records: Mutex<Vec<Record>>,
    /// Records that a crash leaves.
    durable: Mutex<u64>,
}

impl Log {
    fn add(&self, record: Record) -> u64 {
        let mut records = self.records.lock();
        records.push(record);
        records.len() as u64
    }

    fn end(&self) -> u64 {
        self.records.lock().len() as u64
    }

    /// Loses what is not durable, or a part of it.
    fn crash(&self, random: &mut Random) {
        let (durable, end) = (*self.durable.lock(), self.end());
        let kept = durable + random.below(end - durable + 1);
        self.records.lock().truncate(kept as usize);
        *self.durable.lock() = kept;
    }

    /// What all of its records make of nothing.
    fn state(&self) -> Model {
        let mut state = Model::new();
        for record in &*self.records.lock() {
            match record {
                Record::Put(key, value) => _ = state.insert(key.clone(), value.clone()),
                Record::Remove(key) => _ = state.remove(key),
                Record::Structure(_) => {}
            }
        }
        state
    }
}

impl StructureLog for Log {
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError> {
        Ok(self.add(Record::Structure(parts.concat())))
    }
}

impl WriteAheadLog for Log {
    fn flushed_lsn(&self) -> u64 {
        *self.durable.lock()
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        let mut durable = self.durable.lock();
        *durable = lsn.max(*durable);
        Ok(())
    }
}

/// A store: a tree over an SSD, and its log.
struct Bench {
    // Outlives the machine.
    _region: Region,
    machine: Modelled,
    device: ModelledSsd,
    log: Arc<Log>,
    manager: Arc<BufferManager<Modelled>>,
    tree: Tree<Modelled, Arc<Log>>,
    /// Before this, the log is gone.
    start: u64,
    /// Logged, and not applied yet.
    ahead: Vec<u64>,
    happened: Statistics,
}

const FRAMES: usize = 10;

impl Bench {
    fn new(mutant: Option<Mutant>, leaves: LeafLayout) -> Self {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let machine = Modelled::over(&region, Config { mutant, ..Config::default() });
        let device = ModelledSsd::new(1, SsdConfig::default()).unwrap();
        let log = Arc::new(Log::default());
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let medium = Arc::new(device.clone());
        let manager =
            BufferManager::create(machine.clone(), medium, hook, &options(FRAMES)).unwrap();
        let manager = Arc::new(manager);
        let tree = Tree::create_with(Arc::clone(&manager), Arc::clone(&log), leaves).unwrap();
        let (ahead, happened) = (Vec::new(), Statistics::default());
        Self { _region: region, machine, device, log, manager, tree, start: 0, ahead, happened }
    }

    fn apply(&self, lsn: u64) -> Result<(), String> {
        let record = self.log.records.lock()[lsn as usize - 1].clone();
        let applied = match record {
            Record::Put(key, value) => self.tree.put(&key, &value, lsn, None),
            Record::Remove(key) => self.tree.remove(&key, lsn, None).map(|_| ()),
            Record::Structure(_) => Ok(()),
        };
        applied.map_err(|error| error.to_string())
    }

    /// Applies what is ahead, in any order in which changes of one key stay in theirs.
    fn apply_some(&mut self, random: &mut Random, leave: usize) -> Result<(), String> {
        while self.ahead.len() > leave {
            let at = random.below(self.ahead.len() as u64) as usize;
            let key = self.key_of(self.ahead[at]);
            let first = (0..=at).find(|&earlier| self.key_of(self.ahead[earlier]) == key);
            let lsn = self.ahead.remove(first.unwrap_or(at));
            self.apply(lsn)?;
        }
        Ok(())
    }

    fn key_of(&self, lsn: u64) -> Vec<u8> {
        match &self.log.records.lock()[lsn as usize - 1] {
            Record::Put(key, _) | Record::Remove(key) => key.clone(),
            Record::Structure(_) => Vec::new(),
        }
    }

    /// Cuts the log as far as it may be.
    fn checkpoint(&mut self) {
        let end = self.log.end() + 1;
        let ahead = self.ahead.iter().min().copied().unwrap_or(end);
        let oldest = self.manager.oldest_change().unwrap_or(end);
        self.log.flush_to(self.log.end()).unwrap();
        self.start = self.start.max(end.min(ahead).min(oldest) - 1);
    }

    fn step(&mut self, random: &mut Random, step: u64, steps: u64) -> Result<(), String> {
        let number = random.below(400);
        let key = match number % 4 {
            0 => vec![b'z'; 100 + number as usize],
            _ => number.to_be_bytes().to_vec(),
        };
        let removes = random.below(steps) < step;
        let record = match removes {
            true => Record::Remove(key),
            false => Record::Put(key, vec![step as u8; random.below(300) as usize]),
        };
        let lsn = self.log.add(record);
        self.ahead.push(lsn);
        let leave = random.below(8) as usize;
        self.apply_some(random, leave)?;
        match random.below(24) {
            0 => _ = self.manager.write_back().map_err(|error| error.to_string())?,
            1 => self.manager.write_all().map_err(|error| error.to_string())?,
            2 => self.checkpoint(),
            3 => self.log.flush_to(self.log.end()).unwrap(),
            _ => {}
        }
        Ok(())
    }

    /// Forgets what is in memory, and a part of the log.
    fn crash(&mut self, random: &mut Random) -> Result<(), String> {
        self.ahead.clear();
        let now = self.manager.statistics();
        self.happened.evictions += now.evictions;
        self.happened.pages_written += now.pages_written;
        self.log.crash(random);
        let (machine, medium) = (self.machine.clone(), Arc::new(self.device.clone()));
        let hook = Arc::clone(&self.log) as Arc<dyn WriteAheadLog>;
        let manager = BufferManager::open(machine, medium, hook, &options(FRAMES));
        self.manager = Arc::new(manager.map_err(|error| error.to_string())?);
        let root = self.tree.root();
        self.tree = Tree::open(Arc::clone(&self.manager), Arc::clone(&self.log), root);
        Ok(())
    }

    /// Recovers, unless it crashes after so many logical records.
    fn recover(&mut self, until: u64) -> Result<bool, String> {
        let (start, end) = (self.start as usize, self.log.end() as usize);
        let records = self.log.records.lock()[start..end].to_vec();
        let mut redo = Redo::default();
        for (record, lsn) in records.iter().zip(self.start + 1..) {
            if let Record::Structure(record) = record {
                redo.record(&self.manager, record, lsn).map_err(|error| error.to_string())?;
            }
        }
        redo.end().map_err(|error| error.to_string())?;
        self.check()?;
        let mut replayed = 0;
        for (record, lsn) in records.iter().zip(self.start + 1..) {
            if !matches!(record, Record::Structure(_)) {
                self.apply(lsn)?;
                replayed += 1;
            }
            if replayed == until {
                return Ok(false);
            }
            if replayed % 16 == 0 {
                self.manager.write_back().map_err(|error| error.to_string())?;
            }
        }
        Ok(true)
    }

    fn check(&self) -> Result<TreeReport, String> {
        let mut problems = Vec::new();
        let report = self.tree.check(&mut |finding| {
            if let Finding::Problem { page, what } = finding {
                problems.push(format!("page {page}: {what}"));
            }
        });
        if problems.is_empty() { Ok(report) } else { Err(problems.join("; ")) }
    }

    fn compare(&self) -> Result<(), String> {
        let mut read = Ok(Vec::new());
        // A cursor gives up at damage, which `forwards` would panic at.
        self.check().map(|_| read = Ok::<_, String>(forwards(&self.tree)))?;
        let expected: Vec<_> = self.log.state().into_iter().collect();
        let read = read?;
        if read == expected {
            return Ok(());
        }
        Err(format!("{} records instead of {}, or other ones", read.len(), expected.len()))
    }
}

/// What happened in a history that was recovered again and again.
#[derive(Debug, Default)]
struct Happened {
    evictions: u64,
    most_leaves: u64,
    most_hashed: u64,
    /// Records that said that a page is free.
    frees: u64,
    interrupted: u64,
    cuts: u64,
}

fn run(seed: u64, mutant: Option<Mutant>) -> Result<Happened, String> {
    let leaves = LAYOUTS[seed as usize % 2];
    let (mut random, mut bench) = (Random(seed), Bench::new(mutant, leaves));
    let mut happened = Happened::default();
    for round in 0..6 {
        let steps = 60 + random.below(200);
        // Now the tree grows, now it shrinks.
        let from = if round % 2 == 1 { 2 * steps } else { 0 };
        for step in 0..steps {
            bench.step(&mut random, from + step, 3 * steps)?;
        }
        bench.apply_some(&mut random, 0)?;
        let found = bench.check()?;
        happened.most_leaves = happened.most_leaves.max(found.leaves);
        happened.most_hashed = happened.most_hashed.max(found.hashed_leaves);
        bench.crash(&mut random)?;
        let mut until = random.below(80) + 1;
        while !bench.recover(until)? {
            happened.interrupted += 1;
            bench.crash(&mut random)?;
            until *= 4;
        }
        happened.cuts += u64::from(bench.start > 0);
        bench.compare()?;
    }
    happened.evictions = bench.happened.evictions;
    let records = bench.log.records.lock();
    let is_free =
        |record: &&Record| matches!(record, Record::Structure(it) if it[it.len() - 9] == 6);
    happened.frees = records.iter().filter(is_free).count() as u64;
    Ok(happened)
}

#[test]
fn recovery_gives_what_the_log_says_wherever_it_ends() {
    let mut total = Happened::default();
    for seed in 0..40 {
        let happened = run(seed, None).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        total.evictions += happened.evictions;
        total.most_leaves = total.most_leaves.max(happened.most_leaves);
        total.most_hashed = total.most_hashed.max(happened.most_hashed);
        total.frees += happened.frees;
        total.interrupted += happened.interrupted;
        total.cuts += happened.cuts;
    }
    println!("{total:?}");
    assert!(total.evictions > 1000 && total.most_leaves > 15, "{total:?}");
    assert!(total.most_hashed > 15, "{total:?}");
    assert!(total.frees > 50 && total.interrupted > 40 && total.cuts > 40, "{total:?}");
}

/// The seed that finds a mutant, and how it shows.
fn killed(mutant: Mutant) -> (u64, String) {
    let found = (0..200).find_map(|seed| Some((seed, run(seed, Some(mutant)).err()?)));
    let found = found.unwrap_or_else(|| panic!("{} survived", mutant.0));
    println!("{}: seed {}: {}", mutant.0, found.0, found.1);
    found
}

#[test]
fn a_split_without_the_records_that_moved_is_found() {
    killed(MOVED_RECORDS_NOT_LOGGED);
}

#[test]
fn a_split_without_the_cut_is_found() {
    killed(CUT_NOT_LOGGED);
}

#[test]
fn records_of_a_hashed_leaf_that_are_not_found_any_more_are_found() {
    killed(HOLE_LEFT_OPEN);
}

#[test]
fn redo_of_what_a_page_has_is_found() {
    killed(REDO_WITHOUT_LSN_TEST);
}

/// A leaf is on the device full of short keys. Then it loses them and is split between long ones.
fn split_between_long_keys(mutant: Option<Mutant>, leaves: LeafLayout) -> Result<(), String> {
    let mut bench = Bench::new(mutant, leaves);
    let commit = |bench: &Bench, record: Record| bench.apply(bench.log.add(record));
    let short = |number: u16| number.to_be_bytes().to_vec();
    for number in 0..300 {
        commit(&bench, Record::Put(short(number), vec![1; 60]))?;
    }
    bench.manager.write_all().map_err(|error| error.to_string())?;
    bench.checkpoint();
    // The last but one of the first leaf.
    let last = if leaves == LeafLayout::Hashed { 51 } else { 53 };
    for number in 1..=last {
        commit(&bench, Record::Remove(short(number)))?;
    }
    for number in 0..9u8 {
        let key = [&short(last)[..], &[b'z'; 300], &[number]].concat();
        commit(&bench, Record::Put(key, vec![2; 200]))?;
    }
    bench.log.flush_to(bench.log.end()).map_err(|error| error.to_string())?;
    bench.crash(&mut Random(1))?;
    bench.recover(u64::MAX)?;
    bench.compare()
}

#[test]
fn a_cut_with_a_fence_for_which_an_older_page_has_no_room_is_found() {
    for leaves in LAYOUTS {
        assert_eq!(split_between_long_keys(None, leaves), Ok(()));
        let found = split_between_long_keys(Some(LONG_FENCE_CUT), leaves);
        println!("{leaves:?}: {found:?}");
        assert!(found.is_err());
    }
}

#[test]
fn a_change_out_of_order_that_does_not_hold_back_the_log_is_found() {
    killed(CHANGED_SINCE_NOT_LOWERED);
}

#[test]
fn a_freed_page_that_is_given_out_early_is_found() {
    killed(FREED_PAGE_REUSED_EARLY);
}

#[test]
fn the_end_of_a_tree_that_was_read_is_redone_from_nothing() {
    let bench = Bench::new(None, LeafLayout::Hashed);
    for number in 0..300_u64 {
        bench.tree.put(&number.to_be_bytes(), &[7; 100], 0, None).unwrap();
    }
    for number in 0..300_u64 {
        assert!(bench.tree.get(&number.to_be_bytes(), &mut Vec::new()).unwrap());
    }
    assert!(bench.manager.statistics().swizzled > 0, "nodes refer to frames");
    while !bench.tree.free_pages(1).unwrap() {}
    bench.tree.free_rest().unwrap();
    let medium = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let log = Arc::clone(&bench.log) as Arc<dyn WriteAheadLog>;
    let anew = BufferManager::create(bench.machine.clone(), medium, log, &options(FRAMES)).unwrap();
    let records = bench.log.records.lock().clone();
    let mut redo = Redo::default();
    for (record, lsn) in records.iter().zip(1..) {
        let Record::Structure(bytes) = record else { continue };
        redo.record(&anew, bytes, lsn).unwrap();
    }
    redo.end().unwrap();
    anew.close().unwrap();
    let space = anew.space().unwrap();
    space.write_freed(u64::MAX).unwrap();
    assert_eq!(space.used_pages(), 0);
}
