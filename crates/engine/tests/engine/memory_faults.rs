//! Persistent memory of which a part cannot be read, and can again: by a file that is shorter for a while.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapis_device::ModelledSsd;
use lapis_engine::{
    BackupError, Durability, Engine, EngineError, EngineOptions, IndexKind, IndexOptions,
    Placement, Storage,
};
use lapis_pmem::{Domain, Hardware, Pool, RegionOptions};

use crate::harness::assert_sound;
use crate::placements::options;

const NOW: Durability = Durability::Immediate;
const KEYS: u8 = 40;
const STEP_BYTES: u64 = 256 << 10;

/// An engine in three tiers that was cut off, with a tree and a table in every kind of index.
struct Machine {
    directory: tempfile::TempDir,
    options: EngineOptions,
    pages: ModelledSsd,
    /// What the file holds.
    memory: Vec<u8>,
}

fn value(key: u8) -> Vec<u8> {
    vec![key; 20 * usize::from(key)]
}

fn contained() -> RegionOptions {
    RegionOptions { reserve_bytes: 64 << 20, contain_faults: true, ..RegionOptions::default() }
}

/// The end of the file, which is missing.
struct Missing(File, u64, Vec<u8>);

impl Missing {
    fn behind(path: &Path, at: u64) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut end = vec![0; (file.metadata().unwrap().len() - at) as usize];
        file.read_exact_at(&mut end, at).unwrap();
        file.set_len(at).unwrap();
        Self(file, at, end)
    }

    fn bring_back(self) {
        self.0.write_all_at(&self.2, self.1).unwrap();
    }
}

impl Machine {
    fn new() -> Self {
        let (directory, options) = (tempfile::tempdir().unwrap(), options(Placement::ThreeTier));
        let pages = ModelledSsd::new(1, Default::default()).unwrap();
        let path = directory.path().join("pool");
        let pool = Arc::new(Pool::create_file(&path, 12 << 20, &contained()).unwrap());
        let on_pages = Arc::new(pages.after_power_cut());
        let storage = Storage::with_pool(Arc::clone(&on_pages) as _, Arc::clone(&pool));
        let engine = Engine::create(pool.domain().clone(), storage, &options).unwrap();
        engine.create_table("tree").unwrap();
        for kind in IndexKind::ALL {
            engine.create_index_table(kind.name(), kind, &IndexOptions::DEFAULT).unwrap();
        }
        for table in engine.tables() {
            for key in 1..=KEYS {
                engine.put(&table, &[key], b"before", NOW).unwrap();
                engine.put(&table, &[key], &value(key), NOW).unwrap();
            }
        }
        // As a power cut leaves it: blocks are leaked, the log is to be replayed.
        let memory = std::fs::read(&path).unwrap();
        Self { options, pages: on_pages.after_power_cut(), memory, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// The machine as it was cut off, its SSD too.
    fn boot(&self) -> Arc<ModelledSsd> {
        std::fs::write(self.path(), &self.memory).unwrap();
        Arc::new(self.pages.after_power_cut())
    }

    /// Opens the pool, and the engine when `before` has seen to the pool.
    fn open<T>(
        &self,
        pages: &Arc<ModelledSsd>,
        before: impl FnOnce() -> T,
    ) -> (T, Result<Engine<Hardware>, EngineError>) {
        let pool = Arc::new(Pool::open_file(&self.path(), &contained()).unwrap());
        let storage = Storage::with_pool(Arc::clone(pages) as _, Arc::clone(&pool));
        (before(), Engine::open(pool.domain().clone(), storage, &self.options))
    }

    /// Where the file may end.
    fn ends(&self) -> impl Iterator<Item = u64> {
        (1..self.memory.len() as u64 / STEP_BYTES).map(|step| step * STEP_BYTES)
    }
}

fn is_of_memory(error: &EngineError) -> bool {
    matches!(error, EngineError::Memory(_)) || error.to_string().contains("cannot be read")
}

fn assert_whole(engine: &Engine<Hardware>, dropped: Option<&str>) {
    for table in engine.tables() {
        for key in 1..=KEYS {
            let found = engine.get(&table, &[key]).unwrap();
            assert_eq!(found, Some(value(key)), "{} {key}", table.name());
        }
    }
    let tables = 1 + IndexKind::ALL.len() - usize::from(dropped.is_some());
    assert_eq!(engine.tables().len(), tables);
    assert_sound(engine);
}

#[test]
fn an_engine_that_could_not_read_its_memory_when_it_was_opened_opens_when_it_can() {
    let machine = Machine::new();
    let (mut failed, mut opened) = (0, 0);
    for end in machine.ends() {
        let pages = machine.boot();
        let (missing, engine) = machine.open(&pages, || Missing::behind(&machine.path(), end));
        match engine {
            // Nothing of what is missing was needed.
            Ok(engine) => {
                opened += 1;
                drop(engine);
            }
            Err(error) => {
                failed += 1;
                assert!(is_of_memory(&error), "{error}");
            }
        }
        missing.bring_back();
        let ((), engine) = machine.open(&pages, || ());
        assert_whole(&engine.unwrap(), None);
    }
    assert!(failed > 5 && opened > 0, "{failed} failed, {opened} did not");
}

#[test]
fn a_search_for_lost_blocks_that_cannot_read_the_memory_takes_none() {
    let machine = Machine::new();
    let mut failed = 0;
    for end in machine.ends() {
        let pages = machine.boot();
        let ((), engine) = machine.open(&pages, || ());
        let engine = engine.unwrap();
        let missing = Missing::behind(&machine.path(), end);
        if let Err(error) = engine.find_leaked_memory() {
            failed += 1;
            assert!(is_of_memory(&error), "{error}");
            assert!(engine.maintain().is_err() && engine.create_table("more").is_err());
        }
        drop(engine);
        missing.bring_back();
        let ((), engine) = machine.open(&pages, || ());
        assert_whole(&engine.unwrap(), None);
    }
    assert!(failed > 5, "{failed} failed");
}

#[test]
fn a_backup_where_memory_cannot_be_read_is_whole_or_none() {
    let machine = Machine::new();
    let mut failed = 0;
    // Without order: their keys are collected before any is read.
    let hashed = [IndexKind::PClht, IndexKind::Cceh, IndexKind::LevelHash];
    for (end, kind) in hashed.iter().flat_map(|kind| machine.ends().map(move |end| (end, kind))) {
        let pages = machine.boot();
        let ((), engine) = machine.open(&pages, || ());
        let engine = engine.unwrap();
        for other in engine.tables().iter().filter(|table| table.name() != kind.name()) {
            engine.drop_table(other.name()).unwrap();
        }
        let missing = Missing::behind(&machine.path(), end);
        match engine.backup(&mut Vec::new()) {
            Ok(report) => assert_eq!(report.entries, u64::from(KEYS), "{kind}"),
            Err(BackupError::Engine(error)) => {
                failed += 1;
                assert!(is_of_memory(&error), "{error}");
            }
            Err(other) => panic!("{other}"),
        }
        drop(engine);
        missing.bring_back();
    }
    assert!(failed > 5, "{failed} failed");
}

#[test]
fn a_long_value_whose_chunks_cannot_be_read_is_an_error_of_memory_and_no_damage() {
    let long = |key: u8| vec![key; 150_000];
    let (mut failed, mut read) = (0, 0);
    // Among the pages, which come behind the log.
    for end in (2 << 20..3 << 20).step_by(16 << 10) {
        let (directory, later) = (tempfile::tempdir().unwrap(), Durability::Eventual);
        let path = directory.path().join("pool");
        let pool = Arc::new(Pool::create_file(&path, 12 << 20, &contained()).unwrap());
        let pages = Arc::new(ModelledSsd::new(1, Default::default()).unwrap());
        let storage = Storage::with_pool(pages, Arc::clone(&pool));
        // What is changed is in persistent memory, and nowhere else.
        let options = options(Placement::BasicNvm);
        let engine = Engine::create(pool.domain().clone(), storage, &options).unwrap();
        let table = engine.create_table("long").unwrap();
        (1..=4).for_each(|key| _ = engine.put(&table, &[key], &long(key), later).unwrap());
        engine.sync().unwrap();
        let _missing = Missing::behind(&path, end);
        for key in 1..=4 {
            match engine.get(&table, &[key]) {
                Ok(found) => {
                    read += 1;
                    assert!(found == Some(long(key)));
                    // Or zeroes were looked at for a part of it.
                    assert_eq!(pool.domain().health(), Ok(()));
                }
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error, EngineError::Memory(_)), "{error}");
                    break;
                }
            }
        }
    }
    assert!(failed > 5 && read > 0, "{failed} failed, {read} were read");
}

#[test]
fn a_table_that_is_made_or_dropped_where_memory_cannot_be_read_takes_no_other_with_it() {
    let machine = Machine::new();
    let mut failed = 0;
    for (end, kind) in machine.ends().zip(IndexKind::ALL.iter().cycle()) {
        let pages = machine.boot();
        let ((), engine) = machine.open(&pages, || ());
        let engine = engine.unwrap();
        let missing = Missing::behind(&machine.path(), end);
        let change = || -> Result<(), EngineError> {
            engine.drop_table(kind.name())?;
            while engine.maintain()? {}
            engine.create_index_table("more", *kind, &IndexOptions::DEFAULT)?;
            engine.drop_table("more")?;
            engine.close()
        };
        if let Err(error) = change() {
            failed += 1;
            assert!(is_of_memory(&error), "{error}");
            assert!(engine.checkpoint().is_err() && engine.compact().is_err());
        }
        drop(engine);
        missing.bring_back();
        let ((), engine) = machine.open(&pages, || ());
        let engine = engine.unwrap();
        // It may be gone or not.
        if engine.table("more").is_ok() {
            engine.drop_table("more").unwrap();
        }
        let dropped = engine.table(kind.name()).is_err().then_some(kind.name());
        assert_whole(&engine, dropped);
    }
    assert!(failed > 5, "{failed} failed");
}
