//! Single operations, for every kind of index.

use lapis::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::harness::*;

#[test]
fn a_key_that_was_put_is_found_and_others_are_not() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"key", b"value").unwrap();
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
        for other in [b"ke".as_slice(), b"key\0", b"kez", b"k"] {
            assert!(table.get(other).unwrap().is_none(), "{kind}");
        }
    }
}

#[test]
fn a_second_put_replaces_the_value() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"key", b"first").unwrap();
        table.put(b"key", b"second, and longer").unwrap();
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"second, and longer");
        assert_eq!(table.len().unwrap(), 1);
    }
}

#[test]
fn delete_removes_and_says_whether_there_was_something() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"key", b"value").unwrap();
        assert!(table.delete(b"key").unwrap());
        assert!(!table.delete(b"key").unwrap());
        assert!(table.get(b"key").unwrap().is_none());
        assert!(table.is_empty().unwrap());
    }
}

#[test]
fn an_empty_value_is_a_value() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"key", b"").unwrap();
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"");
        assert_eq!(contents(&table), [(b"key".to_vec(), vec![])]);
    }
}

#[test]
fn keys_that_are_prefixes_or_hold_zero_bytes_are_kept_apart() {
    let store = in_memory();
    let keys: [&[u8]; 8] = [b"\0", b"\0\0", b"a", b"a\0", b"a\0\0", b"ab", b"\xFF", b"\xFF\xFF"];
    for kind in KINDS {
        let table = table_of(&store, kind);
        for key in keys {
            table.put(key, key).unwrap();
        }
        for key in keys {
            assert_eq!(&*table.get(key).unwrap().unwrap(), key, "{kind}");
        }
        table.delete(b"a\0").unwrap();
        assert!(table.get(b"a\0\0").unwrap().is_some() && table.get(b"a").unwrap().is_some());
    }
}

#[test]
fn values_of_every_size_come_back_at_once_and_after_reopening() {
    let directory = directory();
    let sizes = [0usize, 1, 4095, 4096, 4097, 32_760, 65_536, 1 << 20];
    let value = |size: usize| (0..size).map(|at| (at * 7 + size) as u8).collect::<Vec<_>>();
    for reopened in [false, true] {
        let store = open(directory.path());
        for kind in KINDS {
            let table = table_of(&store, kind);
            for size in sizes {
                let key = size.to_be_bytes();
                if !reopened {
                    table.put(&key, &value(size)).unwrap();
                }
                assert_eq!(&*table.get(&key).unwrap().unwrap(), value(size), "{kind} {size}");
            }
        }
        assert_sound(&store);
    }
}

#[test]
#[ignore = "takes 4 GiB of memory and disk"]
fn a_value_of_a_gibibyte_comes_back() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[0]);
    let mut value = vec![0x5A; MAX_VALUE_BYTES];
    value[MAX_VALUE_BYTES - 1] = 1;
    table.put(b"key", &value).unwrap();
    drop((table, store));
    let store = open(directory.path());
    assert!(*table_of(&store, KINDS[0]).get(b"key").unwrap().unwrap() == *value);
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let table = table_of(&in_memory(), KINDS[0]);
    let error = table.put(b"key", &vec![0; MAX_VALUE_BYTES + 1]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong { bytes } if bytes == MAX_VALUE_BYTES + 1));
    assert!(table.is_empty().unwrap());
}

#[test]
fn the_longest_key_works() {
    let directory = directory();
    let key = vec![0xAB; MAX_KEY_BYTES];
    let store = open(directory.path());
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(&key, b"value").unwrap();
        table.put(&key[1..], b"shorter").unwrap();
        assert_eq!(table.get(&key).unwrap().unwrap(), b"value", "{kind}");
    }
    drop(store);
    let store = open(directory.path());
    for kind in KINDS {
        let table = table_of(&store, kind);
        assert_eq!(table.get(&key[1..]).unwrap().unwrap(), b"shorter", "{kind}");
        assert!(table.delete(&key).unwrap());
    }
    assert_sound(&store);
}

#[test]
fn keys_that_are_empty_or_too_long_are_refused_everywhere() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        assert!(matches!(table.put(b"", b"v"), Err(Error::EmptyKey)));
        assert!(matches!(table.get(b""), Err(Error::EmptyKey)));
        assert!(matches!(table.delete(b""), Err(Error::EmptyKey)));
        let long = vec![1; MAX_KEY_BYTES + 1];
        assert!(matches!(table.put(&long, b"v"), Err(Error::KeyTooLong { bytes: 65_536 })));
        assert!(matches!(table.get(&long), Err(Error::KeyTooLong { .. })));
        assert!(matches!(table.delete(&long), Err(Error::KeyTooLong { .. })));
        assert!(table.is_empty().unwrap());
    }
}
