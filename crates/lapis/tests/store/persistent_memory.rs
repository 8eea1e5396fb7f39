//! Stores with persistent memory: here an ordinary file that stands for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis::{
    Clock, Error, IndexKind, LOG_FILE, MEMORY_FILE, PAGES_FILE, SalvagedTable, Store, TableOptions,
    TimeToLive, salvage,
};
use tempfile::TempDir;

use crate::harness::*;

const BYTES: usize = 16 << 20;

#[test]
fn tables_in_trees_and_in_every_index_share_transactions_and_are_there_again() {
    let (directory, memory) = (directory(), directory());
    let config = config(directory.path()).persistent_memory(memory.path(), BYTES);
    let store = Store::open(config).unwrap();
    let tree = store.create_table("tree").unwrap();
    let mut tables = vec![tree];
    for kind in IndexKind::ALL {
        let table = store.create_table_with(kind.name(), &TableOptions::with_index(kind)).unwrap();
        assert_eq!(table.index_kind(), Some(kind));
        tables.push(table);
    }
    for round in 0..30_u8 {
        let mut transaction = store.transaction().unwrap();
        for table in &tables {
            transaction
                .put(table, &[round % 20, 7], &vec![round; 1 + usize::from(round) * 40])
                .unwrap();
            if round % 5 == 4 {
                assert!(transaction.delete(table, &[round % 20 - 1, 7]).unwrap());
            }
        }
        transaction.commit().unwrap();
    }
    tables[1].put(b"long", &[5; 100_000]).unwrap();
    let expected = contents(&tables[0]);
    drop((tables, store));
    assert!(memory.path().join(MEMORY_FILE).is_file());
    assert!(!directory.path().join(LOG_FILE).exists());

    // Where persistent memory is, the store knows.
    let store = open(directory.path());
    for table in store.tables() {
        for (key, value) in &expected {
            assert_eq!(table.get(key).unwrap().as_ref(), Some(value), "{}", table.name());
        }
        if table.is_ordered() {
            let found = table.iter().unwrap().filter(|it| it.as_ref().unwrap().0 != b"long");
            assert_eq!(found.count(), expected.len(), "{}", table.name());
        }
    }
    assert_eq!(store.table("wort").unwrap().get(b"long").unwrap().unwrap(), [5; 100_000]);
    assert_sound(&store);
}

#[test]
fn what_an_ordinary_file_keeps_is_claimed_and_no_more() {
    let directory = directory();
    let config = config(directory.path()).persistent_memory(directory.path(), BYTES);
    let store = Store::open(config).unwrap();
    let info = store.info(false).unwrap();
    assert_eq!(info.durability, "process-crash");
    assert!(info.why.contains("power"), "{}", info.why);
    let holds: Vec<_> = info.tiers.iter().map(|tier| tier.holds).collect();
    assert_eq!(holds, ["cache", "pages", "log, pages, tables"]);
    assert!(directory.path().join(MEMORY_FILE).is_file());
    let memory = info.tiers[2].memory.as_ref().unwrap();
    assert_eq!((memory.mapped_page_bytes, memory.provider.as_ref()), (4096, None));
    assert_eq!((memory.emulated, memory.flush), (false, "none (page cache)"));
}

#[test]
fn hash_tables_have_no_ranges_and_say_so() {
    let directory = directory();
    let config = config(directory.path()).persistent_memory(directory.path(), BYTES);
    let store = Store::open(config).unwrap();
    let options =
        TableOptions { expected_entries: 100, ..TableOptions::with_index(IndexKind::PClht) };
    let table = store.create_table_with("t", &options).unwrap();
    table.put(b"k", b"v").unwrap();
    assert!(!table.is_ordered());
    assert!(matches!(table.iter(), Err(Error::Unordered { .. })));
    assert!(matches!(table.prefix(b"k"), Err(Error::Unordered { .. })));
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn entries_of_indexes_expire_too() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let directory = directory();
    let config = config(directory.path()).persistent_memory(directory.path(), BYTES);
    let store = Store::open(config.clock(Clock::Set(&NOW))).unwrap();
    for kind in [IndexKind::Wort, IndexKind::PClht] {
        let table = store.create_table_with(kind.name(), &TableOptions::with_index(kind)).unwrap();
        for key in 1..=100_u8 {
            let lives = TimeToLive::For(Duration::from_millis(u64::from(key % 2) * 1000 + 5));
            table.put_with(&[key], &[key; 300], lives).unwrap();
        }
    }
    NOW.store(5, Ordering::Relaxed);
    for table in store.tables() {
        assert_eq!(table.get(&[2]).unwrap(), None);
        assert_eq!(table.get(&[3]).unwrap().unwrap(), [3; 300]);
        if table.is_ordered() {
            assert_eq!(table.len().unwrap(), 50);
        }
    }
    assert!(store.remove_expired().unwrap() <= 100, "some may be gone already");
    assert_eq!(store.remove_expired().unwrap(), 0);
    NOW.store(0, Ordering::Relaxed);
    for table in store.tables() {
        let left = (1..=100_u8).filter(|&key| table.get(&[key]).unwrap().is_some());
        assert_eq!(left.count(), 50);
    }
    assert_sound(&store);
}

#[test]
fn however_little_was_asked_for_is_enough_for_large_pages() {
    let directory = directory();
    let config = config(directory.path()).page_bytes(64 << 10).cache_bytes(2 << 20);
    let store = Store::open(config.persistent_memory(directory.path(), 1)).unwrap();
    let table = store.create_table("t").unwrap();
    for key in 0..20_u8 {
        table.put(&[key; 7922], &[key; 7922]).unwrap();
    }
    assert_eq!(table.len().unwrap(), 20);
}

#[test]
fn without_persistent_memory_a_table_in_an_index_is_refused() {
    let store = Store::in_memory().unwrap();
    let options = TableOptions::with_index(IndexKind::Wort);
    let error = store.create_table_with("t", &options).unwrap_err();
    assert!(matches!(error, Error::NoPersistentMemory), "{error}");
    assert!(store.tables().is_empty());
}

#[test]
fn what_is_there_already_is_not_taken_for_persistent_memory() {
    let (directory, other) = (directory(), directory());
    for path in [other.path(), directory.path()].map(|parent| parent.join("precious")) {
        std::fs::write(&path, b"precious").unwrap();
        let config = config(directory.path()).persistent_memory(&path, BYTES);
        let error = Store::open(config).map(drop).unwrap_err();
        assert!(matches!(error, Error::MemoryInUse { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(matches!(
            Store::open(crate::harness::config(directory.path()).create(false)),
            Err(Error::NoStore { .. })
        ));
    }
}

#[test]
fn a_creation_that_fails_once_the_memory_has_its_name_leaves_none_behind() {
    let (directory, memory) = (directory(), directory());
    // In the way of the link to the memory, which is made last but one.
    let in_the_way = directory.path().join(MEMORY_FILE);
    std::fs::create_dir(&in_the_way).unwrap();
    let config = config(directory.path()).persistent_memory(memory.path(), BYTES);
    let refused = Store::open(config.clone()).unwrap_err();
    assert!(matches!(refused, Error::Directory { .. }), "{refused}");
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
    std::fs::remove_dir(&in_the_way).unwrap();
    Store::open(config).unwrap();
}

/// The backup of a store with a table, which does something when it is read first.
struct Doing<F: FnOnce()>(Option<F>, std::io::Cursor<Vec<u8>>);

impl<F: FnOnce()> Doing<F> {
    fn new(first: F) -> Self {
        let (source, mut backup) = (Store::in_memory().unwrap(), Vec::new());
        source.create_table("t").unwrap().put(b"k", b"v").unwrap();
        source.backup(&mut backup).unwrap();
        Self(Some(first), std::io::Cursor::new(backup))
    }
}

impl<F: FnOnce()> Read for Doing<F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if let Some(first) = self.0.take() {
            first();
        }
        self.1.read(into)
    }
}

#[test]
fn what_persistent_memory_is_called_before_there_is_a_store_may_be_anybodys() {
    let (directory, memory) = (directory(), directory());
    let unfinished = memory.path().join(format!("{MEMORY_FILE}.new"));
    std::fs::write(&unfinished, b"precious").unwrap();
    let with = |path: &Path| config(directory.path()).persistent_memory(path, BYTES);
    let refused = Store::open(with(memory.path())).unwrap_err();
    let Error::MemoryUnfinished { path } = &refused else { panic!("{refused}") };
    assert_eq!(*path, unfinished);
    assert!(refused.to_string().contains("remove it"), "{refused}");
    assert_eq!(std::fs::read(&unfinished).unwrap(), b"precious");
    // In the store's directory too, but for one name, however the directory is called.
    let other = directory.path().join("other");
    std::fs::write(directory.path().join("other.new"), b"precious").unwrap();
    assert!(matches!(Store::open(with(&other)), Err(Error::MemoryUnfinished { .. })));
    std::fs::write(directory.path().join(format!("{MEMORY_FILE}.new")), b"half").unwrap();
    let again = directory.path().join("..").join(directory.path().file_name().unwrap());
    Store::open(with(&again)).unwrap();
    assert!(!directory.path().join(format!("{MEMORY_FILE}.new")).exists());
    assert_eq!(std::fs::read(directory.path().join("other.new")).unwrap(), b"precious");
}

#[test]
fn persistent_memory_takes_the_place_of_no_file_that_came_while_the_store_was_made() {
    for is_own in [false, true] {
        let (directory, elsewhere) = (directory(), directory());
        let memory = if is_own { &directory } else { &elsewhere }.path();
        let path = memory.join(MEMORY_FILE);
        let came = Doing::new(|| std::fs::write(&path, b"precious").unwrap());
        let config = config(directory.path()).persistent_memory(memory, BYTES);
        let refused = Store::restore(config, came).unwrap_err();
        assert!(matches!(&refused, Error::MemoryInUse { path: it } if *it == path), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(memory).unwrap().count(), 1);
    }
}

#[test]
fn the_directory_of_persistent_memory_is_locked_while_the_store_is_made() {
    let (directory, memory) = (directory(), directory());
    let config = config(directory.path()).persistent_memory(memory.path(), BYTES);
    let is_locked = |path: &Path| File::open(path).unwrap().try_lock().is_err();
    let is_locked = || [memory.path(), directory.path()].map(is_locked);
    let looks = Doing::new(|| assert_eq!(is_locked(), [true, true]));
    let (store, _) = Store::restore(config, looks).unwrap();
    assert_eq!(is_locked(), [false, false]);
    assert_sound(&store);
}

#[test]
fn of_many_who_create_stores_with_one_memory_one_gets_it() {
    for _ in 0..10 {
        let (stores, memory) = ([(); 4].map(|()| directory()), directory());
        let start = Barrier::new(stores.len());
        let open = |store: &TempDir| {
            start.wait();
            Store::open(config(store.path()).persistent_memory(memory.path(), BYTES))
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let openers = stores.each_ref().map(|store| scope.spawn(|| open(store)));
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        for error in opened.iter().filter_map(|opened| opened.as_ref().err()) {
            assert!(matches!(error, Error::MemoryInUse { .. }), "{error}");
        }
        assert_eq!(opened.iter().flatten().count(), 1);
    }
}

#[test]
fn who_make_stores_with_memory_in_each_others_directories_do_not_wait_for_each_other() {
    let mut directories = [(); 2].map(|()| directory());
    directories.sort_by_key(|it| it.path().metadata().map(|it| (it.dev(), it.ino())).unwrap());
    let [first, second] = directories.each_ref().map(|it| it.path());
    let open = |store, memory: &Path| Store::open(config(store).persistent_memory(memory, BYTES));
    let held = File::open(first).unwrap();
    held.lock().unwrap();
    std::thread::scope(|scope| {
        // Whichever of the two is the store's: who waits for the first one has not got the second.
        let maker = scope.spawn(|| open(second, &first.join("memory")).map(drop));
        std::thread::sleep(Duration::from_millis(100));
        let is_free = File::open(second).unwrap().try_lock().is_ok();
        held.unlock().unwrap();
        maker.join().unwrap().unwrap();
        assert!(is_free);
    });
    open(first, &second.join("memory")).unwrap();
}

#[test]
fn a_restore_that_fails_leaves_no_memory_behind() {
    let (directory, memory) = (directory(), directory());
    let source = Store::in_memory().unwrap();
    source.create_table("t").unwrap().put(b"k", b"v").unwrap();
    let mut backup = Vec::new();
    source.backup(&mut backup).unwrap();
    let config = config(directory.path()).persistent_memory(memory.path(), BYTES);
    let cut_off = &backup[..backup.len() / 2];
    assert!(Store::restore(config.clone(), cut_off).is_err());
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
    let store = Store::restore(config, &backup[..]).unwrap();
    drop(store);
    assert!(memory.path().join(MEMORY_FILE).is_file());
}

#[test]
fn memory_that_cannot_be_read_stops_the_store_and_not_the_process() {
    let directory = directory();
    let config = config(directory.path()).persistent_memory(directory.path(), BYTES);
    let store = Store::open(config.contain_memory_faults(true)).unwrap();
    let options = TableOptions::with_index(IndexKind::FastFair);
    let table = store.create_table_with("t", &options).unwrap();
    for it in 0..20_u8 {
        table.put(&[it + 1], &vec![it; 30_000]).unwrap();
    }
    let path = directory.path().join(MEMORY_FILE);
    let memory = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    memory.set_len(1 << 20).unwrap();

    let mut failures = (1..=20_u8).filter_map(|it| table.get(&[it]).err());
    let first = failures.next().expect("what is behind the first MiB cannot be read");
    let Error::BadMemory { path: named, offset } = &first else { panic!("{first}") };
    assert_eq!(named, &path);
    assert!((1 << 20..BYTES as u64).contains(offset), "{offset:#x}");
    assert!(table.put(b"k", b"v").is_err() && table.get(&[1]).is_err());
    assert!(table.iter().is_err());
    assert!(!store.check().ok);
}

#[test]
fn what_lies_in_persistent_memory_is_salvaged_too() {
    // With more or less of the newest pages there and not on the SSD.
    for pages in [20, 64, 86, 256] {
        salvage_with_persistent_memory(pages);
    }
}

/// Salvages a store that has room for so many pages in DRAM.
fn salvage_with_persistent_memory(cache_pages: usize) {
    let directory = directory();
    let config = config(directory.path()).cache_bytes(cache_pages * 4096);
    let store = Store::open(config.persistent_memory(directory.path(), BYTES)).unwrap();
    let value_of = |key: u8| vec![key; if key.is_multiple_of(50) { 30_000 } else { 300 }];
    let mut right = BTreeMap::new();
    for (name, kind) in
        [("tree", None), ("a", Some(IndexKind::Wort)), ("b", Some(IndexKind::PClht))]
    {
        let options = TableOptions { index: kind, ..TableOptions::default() };
        let table = store.create_table_with(name, &options).unwrap();
        for key in 1..=200_u8 {
            table.put(&[key], &value_of(key)).unwrap();
            right.insert((name.to_owned(), vec![key]), value_of(key));
        }
        assert!(table.delete(&[7]).unwrap());
        right.remove(&(name.to_owned(), vec![7]));
    }
    drop(store);
    let [pages, memory] = [PAGES_FILE, MEMORY_FILE].map(|name| directory.path().join(name));
    // The superblock: nobody opens that any more.
    let mut bytes = std::fs::read(&pages).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&pages, &bytes).unwrap();
    let salvage = || {
        let mut found = BTreeMap::new();
        let report = salvage(directory.path(), &mut |table, key, value| {
            let SalvagedTable::Named(name) = table else { panic!("{table}") };
            let other = found.insert((name.clone(), key.to_vec()), value.to_vec());
            assert!(other.is_none(), "a key comes twice");
            ControlFlow::Continue(())
        });
        (found, report.unwrap())
    };
    let before = std::fs::read(&memory).unwrap();
    let (found, report) = salvage();
    let found_of = format!("{} of {} with {cache_pages} pages", found.len(), right.len());
    assert!(found == right, "{found_of}: {:?}", report.lost);
    assert!(std::fs::read(&memory).unwrap() == before, "nothing is written");

    // Without a pool there is what the pages have, as of some moment: what was removed since may be there.
    std::fs::write(&memory, vec![0xEE; BYTES]).unwrap();
    let (found, report) = salvage();
    assert!(found.iter().all(|((_, key), value)| *value == value_of(key[0])));
    assert!(report.lost.iter().any(|lost| lost.to_string().contains(MEMORY_FILE)));
}

#[test]
fn a_store_whose_persistent_memory_is_gone_is_refused() {
    let (directory, memory) = (directory(), directory());
    let config = config(directory.path()).persistent_memory(memory.path(), BYTES);
    Store::open(config).unwrap().create_table("t").unwrap().put(b"k", b"v").unwrap();
    let (file, away) = (memory.path().join(MEMORY_FILE), memory.path().join("away"));
    std::fs::rename(&file, &away).unwrap();
    let error = Store::open(crate::harness::config(directory.path())).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(MEMORY_FILE), "{error}");
    std::fs::rename(&away, &file).unwrap();
    let store = open(directory.path());
    assert_eq!(store.table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
}
