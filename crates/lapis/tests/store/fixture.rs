//! Stores as the present version of the format is written: once released they can be read for ever.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lapis::{Config, Error, IndexKind, Store, StoreOptions};
use lapis_pmem::{EXTENT_BYTES, MIN_POOL_BYTES};

use crate::harness::*;

fn fixture(kind: IndexKind) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    PathBuf::from(directory).join(format!("store-v1-{kind}.lapis"))
}

/// A store whose one table this kind of index holds.
pub fn image(kind: IndexKind) -> Vec<u8> {
    std::fs::read(fixture(kind)).unwrap_or_else(|error| {
        panic!(
            "there is no store of {kind} ({error}); write one with `cargo test -p lapis --test store \
             write_the_fixtures -- --ignored`"
        )
    })
}

/// Where the root of the store lies in an image of its pool.
pub fn store_root(image: &[u8]) -> usize {
    let entries = image[512..4096].chunks(64);
    let entry = entries.into_iter().find(|entry| entry.starts_with(b"store\0")).unwrap();
    u64::from_le_bytes(entry[56..].try_into().unwrap()) as usize
}

/// What each of its tables holds.
fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut entries: BTreeMap<Vec<u8>, Vec<u8>> = [
        (b"a".as_slice(), b"one byte".as_slice()),
        (b"ab", b"a is a prefix of it"),
        (b"ab\0", b"a zero byte at the end"),
        (b"\0", b"nothing but a zero byte"),
        (b"\0\0a", b"zero bytes in front"),
        (b"\xFF\xFF\xFF\xFF", b"\0\xFF\0\xFF"),
        (b"empty", b""),
        ("größe".as_bytes(), "übung".as_bytes()),
    ]
    .map(|(key, value)| (key.to_vec(), value.to_vec()))
    .into();
    entries.insert(b"long".to_vec(), (0..33_000u32).map(|at| (at * 7 / 5) as u8).collect());
    entries.insert(vec![b'k'; 40], b"a long key".to_vec());
    for number in 0..60u32 {
        entries.insert(number.to_be_bytes().to_vec(), number.to_le_bytes().to_vec());
    }
    entries
}

/// The fixture of a kind, opened as a store.
fn opened(kind: IndexKind) -> (tempfile::TempDir, Store) {
    let directory = directory();
    std::fs::write(pool_file(directory.path()), image(kind)).unwrap();
    let store = open(directory.path());
    (directory, store)
}

#[test]
#[ignore = "writes the fixtures; from the first release on formats are what they are"]
fn write_the_fixtures() {
    for kind in KINDS {
        write(kind);
    }
}

fn write(kind: IndexKind) {
    let directory = directory();
    let config = Config::new(directory.path())
        .initial_bytes(MIN_POOL_BYTES)
        .options(StoreOptions { log_segment_bytes: 4096 });
    let store = Store::open(config).unwrap();
    let table = table_of(&store, kind);
    table.put(b"gone", b"deleted again").unwrap();
    for (key, value) in expected() {
        table.put(&key, b"replaced").unwrap();
        table.put(&key, &value).unwrap();
    }
    table.delete(b"gone").unwrap();
    drop((table, store));
    // Without the room to grow that the store keeps: chunks from the high-water mark on are blank.
    let mut image = std::fs::read(pool_file(directory.path())).unwrap();
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let used_bytes = word(80) as usize * EXTENT_BYTES;
    assert!(image[used_bytes..].iter().all(|&byte| byte == 0));
    image.truncate(used_bytes);
    image[88..96].copy_from_slice(&(used_bytes as u64).to_le_bytes());
    std::fs::write(fixture(kind), image).unwrap();
}

#[test]
fn a_store_of_the_present_version_has_exactly_what_was_put_into_it() {
    for kind in KINDS {
        let (_directory, store) = opened(kind);
        assert!(store.info(false).opened_clean);
        assert_eq!(store.tables().len(), 1);
        let table = store.table(&kind.to_string()).unwrap();
        assert_eq!(table.index_kind(), kind);
        let mut found = contents(&table);
        if !table.is_ordered() {
            found.sort();
        }
        assert_eq!(found, expected().into_iter().collect::<Vec<_>>(), "{kind}");
        for (key, value) in expected() {
            assert_eq!(table.get(&key).unwrap().unwrap(), value.as_slice());
        }
        assert_sound(&store);
    }
}

#[test]
fn a_store_of_the_present_version_can_be_written_to() {
    for kind in KINDS {
        let (_directory, store) = opened(kind);
        let table = table_of(&store, kind);
        for number in 0..300u32 {
            table.put(&[b"new ", number.to_be_bytes().as_slice()].concat(), b"v").unwrap();
        }
        assert!(table.delete(b"ab").unwrap());
        assert_eq!(table.len().unwrap(), expected().len() as u64 + 299);
        assert_sound(&store);
    }
}

#[test]
fn a_newer_version_of_the_pool_is_refused_and_untouched() {
    let directory = directory();
    let mut image = image(IndexKind::Wort);
    image[8] = 2;
    std::fs::write(pool_file(directory.path()), &image).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::File { .. }) && text.contains("version 2"), "{text}");
    assert_eq!(std::fs::read(pool_file(directory.path())).unwrap(), image);
}

#[test]
fn a_newer_version_of_the_store_is_refused() {
    let directory = directory();
    let mut image = image(IndexKind::Wort);
    let root = store_root(&image);
    assert_eq!(image[root..root + 8], 1u64.to_le_bytes());
    image[root] = 2;
    std::fs::write(pool_file(directory.path()), &image).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::NewerVersion { found: 2, supported: 1 }), "{error}");
}
