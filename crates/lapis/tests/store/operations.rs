//! Single operations.

use std::io::Write;
use std::time::Duration;

use lapis::{Error, LeafLayout, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES, Store, Table, TableOptions};

use crate::harness::*;

fn table() -> Table {
    Store::in_memory().unwrap().create_table("t").unwrap()
}

#[test]
fn a_key_that_was_put_is_found_and_others_are_not() {
    let table = table();
    table.put(b"key", b"value").unwrap();
    assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
    for other in [b"ke".as_slice(), b"key\0", b"kez", b"k"] {
        assert!(table.get(other).unwrap().is_none());
    }
    table.put(b"key", b"").unwrap();
    assert_eq!(table.get(b"key").unwrap().unwrap(), b"");
}

#[test]
fn delete_removes_and_says_whether_there_was_something() {
    let table = table();
    table.put(b"key", b"value").unwrap();
    assert!(table.delete(b"key").unwrap());
    assert!(!table.delete(b"key").unwrap());
    assert!(table.get(b"key").unwrap().is_none() && table.is_empty().unwrap());
}

#[test]
fn values_of_every_size_come_back_at_once_and_after_reopening() {
    let directory = directory();
    let sizes = [0usize, 1, 400, 1000, 4095, 4096, 4097, 32_760, 1 << 20];
    let value = |size: usize| (0..size).map(|at| (at * 7 + size) as u8).collect::<Vec<_>>();
    for reopened in [false, true] {
        let store = open(directory.path());
        let table = store.table_or_create("t").unwrap();
        for size in sizes {
            let key = size.to_be_bytes();
            if !reopened {
                table.put(&key, &value(size)).unwrap();
            }
            assert_eq!(table.get(&key).unwrap().unwrap(), value(size), "{size}");
        }
        assert_sound(&store);
    }
}

#[test]
#[ignore = "takes 4 GiB of memory and disk"]
fn a_value_of_a_gibibyte_comes_back() {
    let (directory, store) = created();
    let table = store.create_table("t").unwrap();
    let mut value = vec![0x5A; MAX_VALUE_BYTES];
    value[MAX_VALUE_BYTES - 1] = 1;
    table.put(b"key", &value).unwrap();
    drop((table, store));
    let store = open(directory.path());
    assert!(store.table("t").unwrap().get(b"key").unwrap().unwrap() == value);
}

#[test]
fn keys_that_are_empty_or_too_long_are_refused_and_the_longest_is_not() {
    let table = table();
    assert!(matches!(table.put(b"", b"v"), Err(Error::EmptyKey)));
    assert!(matches!(table.get(b""), Err(Error::EmptyKey)));
    assert!(matches!(table.delete(b""), Err(Error::EmptyKey)));
    let longest = vec![1; table.largest_key_bytes()];
    assert_eq!(longest.len(), 1970);
    table.put(&longest, &[7; 5000]).unwrap();
    assert_eq!(table.get(&longest).unwrap().unwrap(), [7; 5000]);
    let longer = vec![1; longest.len() + 1];
    assert!(matches!(table.put(&longer, b"v"), Err(Error::KeyTooLong { bytes: 1971, most: 1970 })));
    assert!(table.get(&longer).unwrap().is_none());
    let error = table.put(b"key", &vec![0; MAX_VALUE_BYTES + 1]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong { .. }), "{error}");
    assert_eq!(table.len().unwrap(), 1);
}

#[test]
fn larger_pages_take_longer_keys() {
    let directory = directory();
    let config = config(directory.path()).page_bytes(64 << 10).cache_bytes(2 << 20);
    let table = Store::open(config).unwrap().create_table("t").unwrap();
    assert_eq!(table.largest_key_bytes(), 7922);
    for key in 0..20_u8 {
        table.put(&[key; 7922], &[key; 7922]).unwrap();
    }
    assert_eq!(table.get(&[7; 7922]).unwrap().unwrap(), [7; 7922]);
    assert_eq!(table.len().unwrap(), 20);
}

#[test]
fn update_changes_adds_and_removes() {
    let table = table();
    table.update(b"k", |old| Some([old.unwrap_or(b"-"), b"+"].concat())).unwrap();
    table.update(b"k", |old| Some([old.unwrap_or(b"-"), b"+"].concat())).unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"-++");
    table.update(b"k", |_| None).unwrap();
    table.update(b"other", |_| None).unwrap();
    assert!(table.is_empty().unwrap());
}

#[test]
fn compare_and_swap_changes_only_what_is_as_expected() {
    let table = table();
    assert!(!table.compare_and_swap(b"k", Some(b"a"), Some(b"b")).unwrap());
    assert!(table.compare_and_swap(b"k", None, Some(b"a")).unwrap());
    assert!(!table.compare_and_swap(b"k", None, Some(b"c")).unwrap());
    assert!(table.compare_and_swap(b"k", Some(b"a"), Some(b"b")).unwrap());
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"b");
    assert!(table.compare_and_swap(b"k", Some(b"b"), None).unwrap());
    assert!(table.is_empty().unwrap());
}

#[test]
fn ranges_take_any_bytes_and_go_both_ways() {
    let table = table();
    for key in ["a", "b", "ba", "bb", "c"] {
        table.put(key.as_bytes(), b"").unwrap();
    }
    let keys = |entries: lapis::Entries<'static>| -> Vec<String> {
        entries.map(|entry| String::from_utf8(entry.unwrap().0).unwrap()).collect()
    };
    assert_eq!(keys(table.range("b".."c").unwrap()), ["b", "ba", "bb"]);
    assert_eq!(keys(table.range(vec![b'b', b'b']..).unwrap()), ["bb", "c"]);
    assert_eq!(keys(table.range(..="b").unwrap()), ["a", "b"]);
    assert_eq!(keys(table.prefix(b"b").unwrap()), ["b", "ba", "bb"]);
    let mut both = table.iter().unwrap();
    let mut next = |back: bool| {
        let entry = if back { both.next_back() } else { both.next() };
        entry.map(|entry| String::from_utf8(entry.unwrap().0).unwrap())
    };
    assert_eq!([next(true), next(false)], [Some("c".to_owned()), Some("a".to_owned())]);
    assert_eq!(
        [next(true), next(true), next(true), next(true)].map(|it| it.is_some()),
        [true, true, true, false]
    );
    assert_eq!(next(false), None);
}

#[test]
fn an_iteration_keeps_to_the_state_of_its_beginning() {
    let table = table();
    for number in 0..1000_u32 {
        table.put(&number.to_be_bytes(), b"old").unwrap();
    }
    let entries = table.iter().unwrap();
    for number in 0..1000_u32 {
        match number % 2 {
            0 => _ = table.delete(&number.to_be_bytes()).unwrap(),
            _ => table.put(&number.to_be_bytes(), b"new").unwrap(),
        }
    }
    assert!(entries.map(|entry| entry.unwrap().1).eq(std::iter::repeat_n(b"old".to_vec(), 1000)));
    assert_eq!(table.len().unwrap(), 500);
}

#[test]
fn tables_have_names_that_can_be_printed_and_are_made_once() {
    let store = Store::in_memory().unwrap();
    for name in ["", "a\0b", &"n".repeat(MAX_TABLE_NAME_BYTES + 1)] {
        assert!(matches!(store.create_table(name), Err(Error::BadTableName)), "{name:?}");
    }
    store.create_table(&"n".repeat(MAX_TABLE_NAME_BYTES)).unwrap();
    store.create_table("t").unwrap();
    assert!(matches!(store.create_table("t"), Err(Error::TableExists { .. })));
    store.table_or_create("t").unwrap();
    assert!(matches!(store.table("u"), Err(Error::NoSuchTable { .. })));
    assert_eq!(store.tables().len(), 2);
}

#[test]
fn handles_of_a_dropped_table_refuse_even_if_another_has_its_name() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    store.drop_table("t").unwrap();
    store.create_table("t").unwrap();
    assert!(matches!(table.get(b"k"), Err(Error::Dropped { .. })));
    assert!(matches!(table.put(b"k", b"v"), Err(Error::Dropped { .. })));
    assert!(matches!(table.iter(), Err(Error::Dropped { .. })));
    assert!(store.table("t").unwrap().is_empty().unwrap());
    assert!(matches!(store.drop_table("u"), Err(Error::NoSuchTable { .. })));
}

#[test]
fn space_of_dropped_tables_is_used_again() {
    let (_directory, store) = created();
    let fill = || {
        let table = store.create_table("t").unwrap();
        let mut transaction = store.transaction().unwrap();
        for number in 0..1000_u32 {
            transaction.put(&table, &number.to_be_bytes(), &[1; 200]).unwrap();
        }
        transaction.commit().unwrap();
        store.drop_table("t").unwrap();
    };
    let in_use = || store.info(false).unwrap().bytes.allocated;
    let wait_until_freed = |most: u64| {
        let begun = std::time::Instant::now();
        while in_use() > most {
            assert!(begun.elapsed().as_secs() < 60, "{} bytes stay in use", in_use());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    // The catalog and the chunks of long values.
    let empty = 2 * 4096;
    fill();
    wait_until_freed(empty);
    let once = store.info(false).unwrap().bytes.storage;
    for _ in 0..5 {
        fill();
        wait_until_freed(empty);
    }
    assert!(store.info(false).unwrap().bytes.storage <= once * 3 / 2);
    assert_sound(&store);
}

#[test]
fn a_table_that_is_there_in_another_shape_is_not_taken_for_the_one_that_is_asked_for() {
    let store = Store::in_memory().unwrap();
    let hashed = TableOptions { leaves: LeafLayout::Hashed, ..TableOptions::default() };
    for _ in 0..2 {
        store.table_or_create_with("plain", &TableOptions::default()).unwrap();
        store.table_or_create_with("hashed", &hashed).unwrap();
    }
    let other = store.table_or_create_with("plain", &hashed);
    assert!(matches!(other, Err(Error::OtherTable { .. })));
}

#[test]
fn a_table_is_taken_for_itself_whatever_its_time_to_live() {
    let store = Store::in_memory().unwrap();
    let with = |time_to_live| TableOptions { time_to_live, ..TableOptions::default() };
    let times = [Duration::ZERO, Duration::from_micros(1500), Duration::MAX];
    for (name, time) in ["a", "b", "c"].into_iter().zip(times) {
        for _ in 0..2 {
            store.table_or_create_with(name, &with(Some(time))).unwrap();
        }
        for other in [None, Some(Duration::from_millis(2))] {
            let refused = store.table_or_create_with(name, &with(other)).unwrap_err();
            assert!(matches!(refused, Error::OtherTable { .. }), "{name}: {refused}");
        }
    }
}

#[test]
fn a_writer_takes_no_more_at_once_than_it_has_room_for() {
    let table = table();
    let value: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
    let mut writer = table.writer(b"k").unwrap();
    let mut taken = 0;
    while taken < value.len() {
        let more = writer.write(&value[taken..]).unwrap();
        assert!((1..=64 << 10).contains(&more), "{more}");
        taken += more;
        assert_eq!(writer.len(), taken as u64);
    }
    assert_eq!(writer.write(&[]).unwrap(), 0);
    writer.finish().unwrap();
    assert!(table.get(b"k").unwrap().unwrap() == value);
}

#[test]
fn a_load_refuses_an_empty_key_and_all_that_follows() {
    let store = Store::in_memory().unwrap();
    let refused = store.load_table("t", [(b"", b"value")]).unwrap_err();
    assert!(matches!(refused, Error::EmptyKey), "{refused:?}");
    let mut load = store.begin_load("t", LeafLayout::Sorted).unwrap();
    assert!(matches!(load.push(b"", b"value"), Err(Error::EmptyKey)));
    load.push(b"key", b"value").unwrap_err();
    load.finish().unwrap_err();
    assert!(matches!(store.table("t"), Err(Error::NoSuchTable { .. })));
    assert_sound(&store);
}
