//! What the tests share: stores in temporary directories and a domain that counts.

use std::path::Path;

use lapis::{Config, IndexKind, POOL_FILE, Store, StoreOptions, Table, TableOptions};
use lapis_pmem::{Domain, PersistCounts, RegionOptions, Watched};
use tempfile::TempDir;

/// Every kind of index that a table can have.
pub const KINDS: [IndexKind; IndexKind::ALL.len()] = IndexKind::ALL;

/// Those whose tables can be scanned in order.
pub fn ordered() -> impl Iterator<Item = IndexKind> {
    KINDS.into_iter().filter(|kind| kind.is_ordered())
}

/// A directory that goes away with the test.
pub fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A small store in a directory.
pub fn config(directory: &Path) -> Config {
    Config::new(directory)
        .initial_bytes(1 << 20)
        .capacity_bytes(1 << 32)
        .options(StoreOptions { log_segment_bytes: 1 << 16 })
}

/// How the pool of [`config`] is mapped.
pub fn region_options() -> RegionOptions {
    RegionOptions { reserve_bytes: 1 << 32, ..Default::default() }
}

pub fn open(directory: &Path) -> Store {
    Store::open(config(directory)).unwrap()
}

/// The file of the store in a directory.
pub fn pool_file(directory: &Path) -> std::path::PathBuf {
    directory.join(POOL_FILE)
}

/// A store in memory.
pub fn in_memory() -> Store {
    Store::in_memory(1 << 20).unwrap()
}

pub fn table_of(store: &Store, kind: IndexKind) -> Table {
    store.table_or_create(&kind.to_string(), &TableOptions::with_index(kind)).unwrap()
}

/// Lets go of a store as a crash of its process would.
pub fn crash(store: Store) {
    store.pool().abandon();
    drop(store);
}

/// All entries of a table, in the order it gives them.
pub fn contents<D: Domain>(table: &Table<D>) -> Vec<(Vec<u8>, Vec<u8>)> {
    table
        .iter()
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key, value.into())))
        .collect::<Result<_, _>>()
        .unwrap()
}

pub fn assert_sound<D: Domain>(store: &Store<D>) {
    let report = store.check();
    assert!(report.ok, "{:?}", report.problems);
}

/// Hardware that counts flushed lines, fences and loads.
pub type Counting = Watched<PersistCounts>;
