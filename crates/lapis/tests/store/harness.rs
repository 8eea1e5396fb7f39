//! What the tests share: small stores in temporary directories.

use std::path::Path;

use lapis::{Config, LOG_FILE, PAGES_FILE, Store, Table};
use tempfile::TempDir;

/// A directory that goes away with the test.
pub fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A small store in a directory: 64 pages of 4 KiB in DRAM.
pub fn config(directory: &Path) -> Config {
    Config::new(directory).page_bytes(4096).cache_bytes(64 * 4096).log_bytes(1 << 20)
}

pub fn open(directory: &Path) -> Store {
    Store::open(config(directory)).unwrap()
}

/// A new store, and the directory that it is in.
pub fn created() -> (TempDir, Store) {
    let directory = directory();
    let store = open(directory.path());
    (directory, store)
}

/// What is on the disk while the store is open, as another store: what a killed process leaves.
pub fn copy_of(directory: &Path) -> TempDir {
    let copy = self::directory();
    for name in [PAGES_FILE, LOG_FILE] {
        std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// All entries of a table, in the order it gives them.
pub fn contents(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    table.iter().unwrap().collect::<Result<_, _>>().unwrap()
}

pub fn assert_sound(store: &Store) {
    let report = store.check();
    assert!(report.ok, "{:?}", report.problems);
}
