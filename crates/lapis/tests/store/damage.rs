//! Bytes that change by themselves.

use std::path::Path;

use lapis::{Error, IndexKind, Store};

use crate::harness::*;

/// Changes the first byte of every occurrence of `pattern` in the file of a store.
fn damage(directory: &Path, pattern: &[u8]) -> usize {
    let path = pool_file(directory);
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<_> =
        (0..bytes.len() - pattern.len()).filter(|&at| bytes[at..].starts_with(pattern)).collect();
    for &place in &places {
        bytes[place] ^= 0x10;
    }
    std::fs::write(&path, bytes).unwrap();
    places.len()
}

/// A store closed cleanly whose table of each kind has a value with `pattern` that the log does not
/// have.
fn store_with(directory: &Path, pattern: &[u8]) {
    let store = open(directory);
    for kind in KINDS {
        let table = table_of(&store, kind);
        let mut value = vec![1; 9000];
        value[4000..4000 + pattern.len()].copy_from_slice(pattern);
        table.put(b"damaged", &value).unwrap();
        table.put(b"sound", &[2; 9000]).unwrap();
    }
}

#[test]
fn a_changed_byte_of_a_value_is_an_error_of_get_and_of_iteration() {
    let directory = directory();
    store_with(directory.path(), b"a pattern");
    assert_eq!(damage(directory.path(), b"a pattern"), KINDS.len());
    let store = open(directory.path());
    for kind in KINDS {
        let table = table_of(&store, kind);
        let error = table.get(b"damaged").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert_eq!(table.get(b"sound").unwrap().unwrap(), [2; 9000].as_slice());
        assert!(table.iter().unwrap().any(|entry| matches!(entry, Err(Error::Damaged { .. }))));
    }
}

#[test]
fn check_names_every_damaged_value() {
    let directory = directory();
    store_with(directory.path(), b"a pattern");
    damage(directory.path(), b"a pattern");
    let report = open(directory.path()).check();
    assert!(!report.ok);
    assert_eq!(report.problems.len(), KINDS.len(), "{:?}", report.problems);
    // In the order of the tables' names.
    let mut kinds = KINDS.map(IndexKind::name);
    kinds.sort_unstable();
    for (problem, kind) in report.problems.iter().zip(kinds) {
        assert!(problem.contains(kind) && problem.contains("damaged"), "{problem}");
    }
}

#[test]
fn a_damaged_value_can_be_replaced_and_deleted() {
    let directory = directory();
    store_with(directory.path(), b"a pattern");
    damage(directory.path(), b"a pattern");
    let store = open(directory.path());
    for kind in KINDS {
        table_of(&store, kind).put(b"damaged", b"whole again").unwrap();
    }
    assert_sound(&store);
    table_of(&store, KINDS[0]).delete(b"damaged").unwrap();
    assert_sound(&store);
}

#[test]
fn a_damaged_log_is_an_error_and_not_a_panic() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[0]);
    table.put(b"an unusual key", b"first").unwrap();
    table.put(b"another key", b"second").unwrap();
    drop((table, store));
    assert!(damage(directory.path(), b"an unusual key") >= 1);
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::Log(_)), "{error}");
}

#[test]
fn a_root_of_no_known_version_is_refused() {
    let directory = directory();
    drop(open(directory.path()));
    let path = pool_file(directory.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let root = crate::fixture::store_root(&bytes);
    bytes[root] = 99;
    std::fs::write(&path, &bytes).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::NewerVersion { found: 99, supported: 1 }), "{error}");
}
