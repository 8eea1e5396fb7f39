//! Stores as they were written to disk: one of each format that was released, and the present one.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lapis::{Clock, LOG_FILE, LeafLayout, PAGES_FILE, Store, TableOptions, TimeToLive};

use crate::harness::*;

/// The present format: pages 1, log 1.
fn present() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-1")
}

const BLOCK: usize = 4096;
/// When it was written, in 1970: some of it has expired since, and some will not.
static WRITTEN_MS: AtomicU64 = AtomicU64::new(1000);
const SHORT_LIFE: TimeToLive = TimeToLive::For(Duration::from_millis(10));
const LONG_LIFE: TimeToLive = TimeToLive::For(Duration::from_secs(3000 * 365 * 86_400));

/// Length and, each behind its number, the blocks of a file that are not zero.
fn packed(file: &[u8]) -> Vec<u8> {
    let mut packed = (file.len() as u64).to_le_bytes().to_vec();
    for (number, block) in file.chunks(BLOCK).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            packed.extend_from_slice(&(number as u64).to_le_bytes());
            packed.extend_from_slice(block);
        }
    }
    packed
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut file = vec![0; number(packed)];
    for block in packed[8..].chunks(8 + BLOCK) {
        file[number(block) * BLOCK..][..BLOCK].copy_from_slice(&block[8..]);
    }
    file
}

/// What is in the table with hashed leaves, of which there are several.
fn hashed_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..200_u8).map(|it| (vec![b'h', it], vec![it; 100])).collect()
}

/// What is in the other one, besides what was removed and what has expired.
fn expected() -> Vec<(Vec<u8>, Vec<u8>)> {
    let short = (0..60_u8).filter(|it| it % 7 != 0).map(|it| (vec![b'k', it], vec![it; 40]));
    let mut all: Vec<_> = short.collect();
    all.push((b"lives".to_vec(), vec![8; 40]));
    all.push((b"lives long".to_vec(), vec![8; 6000]));
    all.push((b"long".to_vec(), vec![9; 6000]));
    all
}

fn fill(store: &Store) {
    let options = TableOptions { leaves: LeafLayout::Hashed, ..TableOptions::default() };
    let hashed = store.create_table_with("hashed", &options).unwrap();
    let mut transaction = store.transaction().unwrap();
    hashed_entries().iter().for_each(|(key, value)| transaction.put(&hashed, key, value).unwrap());
    transaction.commit().unwrap();
    let table = store.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    for it in 0..60_u8 {
        transaction.put(&table, &[b'k', it], &[it; 40]).unwrap();
    }
    transaction.put(&table, b"long", &[9; 6000]).unwrap();
    transaction.commit().unwrap();
    for it in (0..60_u8).step_by(7) {
        table.delete(&[b'k', it]).unwrap();
    }
    for (lives, keys) in [(LONG_LIFE, ["lives", "lives long"]), (SHORT_LIFE, ["gone", "gone long"])]
    {
        for (key, bytes) in keys.into_iter().zip([40, 6000]) {
            table.put_with(key.as_bytes(), &vec![8; bytes], lives).unwrap();
        }
    }
}

#[test]
fn a_store_that_was_written_once_is_read() {
    let copy = directory();
    for name in [PAGES_FILE, LOG_FILE] {
        let file = unpacked(&std::fs::read(present().join(name)).unwrap());
        std::fs::write(copy.path().join(name), file).unwrap();
    }
    let store = open(copy.path());
    assert!(store.recovery().records > 1, "it was not closed");
    assert_eq!(contents(&store.table("t").unwrap()), expected());
    let hashed = store.table("hashed").unwrap();
    assert_eq!(hashed.leaves(), Some(LeafLayout::Hashed));
    assert_eq!(contents(&hashed), hashed_entries());
    for (key, value) in hashed_entries() {
        assert_eq!(hashed.get(&key).unwrap(), Some(value));
    }
    drop(hashed);
    assert_sound(&store);
    store.remove_expired().unwrap();
    assert_eq!(contents(&store.table("t").unwrap()), expected());
    assert_sound(&store);
    store.table("t").unwrap().put(b"more", b"1").unwrap();
    drop(store);
    assert_eq!(open(copy.path()).table("t").unwrap().len().unwrap(), expected().len() as u64 + 1);
}

#[test]
#[ignore = "writes the fixture anew: `cargo test -p lapis --test store -- --ignored write_the_fixture`"]
fn write_the_fixture() {
    let directory = directory();
    let store = Store::open(config(directory.path()).clock(Clock::Set(&WRITTEN_MS))).unwrap();
    fill(&store);
    let copy = copy_of(directory.path());
    std::fs::create_dir_all(present()).unwrap();
    for name in [PAGES_FILE, LOG_FILE] {
        let file = packed(&std::fs::read(copy.path().join(name)).unwrap());
        std::fs::write(present().join(name), file).unwrap();
    }
}
