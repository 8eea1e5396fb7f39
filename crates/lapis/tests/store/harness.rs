//! What the tests share: stores in temporary directories and a domain that counts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis::{Config, IndexKind, POOL_FILE, Store, StoreOptions, Table, TableOptions};
use lapis_pmem::{Domain, DomainFault, Hardware, RegionOptions, Word};
use tempfile::TempDir;

/// Every kind of index that a table can have.
pub const KINDS: [IndexKind; 3] = [IndexKind::Wort, IndexKind::FastFair, IndexKind::PClht];
/// Those that keep keys in order.
pub const ORDERED: [IndexKind; 2] = [IndexKind::Wort, IndexKind::FastFair];

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
#[derive(Clone, Debug, Default)]
pub struct Counting {
    counts: Arc<[AtomicU64; 3]>,
}

impl Counting {
    pub fn flushes(&self) -> u64 {
        self.counts[0].load(Ordering::Relaxed)
    }
    pub fn fences(&self) -> u64 {
        self.counts[1].load(Ordering::Relaxed)
    }
    /// Words loaded and lines read.
    pub fn loads(&self) -> u64 {
        self.counts[2].load(Ordering::Relaxed)
    }
    fn count(&self, what: usize, more: u64) {
        self.counts[what].fetch_add(more, Ordering::Relaxed);
    }
}

impl Domain for Counting {
    const DETERMINISTIC: bool = true;
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        self.count(2, 1);
        W::load(at, order)
    }
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        W::store(at, value, order);
    }
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        W::swap(at, value, Ordering::AcqRel)
    }
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        W::compare_exchange(at, current, new)
    }
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: the caller vouches for the destination.
        unsafe { Hardware::detect().copy(destination, source) };
    }
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as above.
        unsafe { self.copy(destination, source) };
    }
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as above.
        unsafe { destination.write_bytes(0, bytes) };
    }
    fn note_read(&self, source: *const u8, bytes: usize) {
        self.count(2, lines(source, bytes));
    }
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        self.count(0, lines(start, bytes));
    }
    fn fence(&self) {
        self.count(1, 1);
    }
    fn prefetch(&self, _at: *const u8) {}
    fn health(&self) -> Result<(), DomainFault> {
        Ok(())
    }
}

fn lines(start: *const u8, bytes: usize) -> u64 {
    ((start.addr() + bytes).div_ceil(64) - start.addr() / 64) as u64
}
