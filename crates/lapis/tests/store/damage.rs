//! Bytes that nobody wrote.

use std::time::{Duration, Instant};

use lapis::{Durability, LOG_FILE, PAGES_FILE, Store, TableOptions};

use crate::harness::*;

fn filled(directory: &std::path::Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = open(directory);
    let table = store.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    for number in 0..800_u32 {
        transaction.put(&table, &number.to_be_bytes(), &[number as u8; 100]).unwrap();
    }
    transaction.commit().unwrap();
    table.put(b"long", &[3; 9000]).unwrap();
    contents(&table)
}

/// Whatever comes of it, entries that are read are right.
fn read_all(directory: &std::path::Path, right: &[(Vec<u8>, Vec<u8>)]) -> (bool, bool) {
    let Ok(store) = Store::open(config(directory)) else { return (false, true) };
    let problems = store.check().problems;
    let Ok(table) = store.table("t") else { return (false, !problems.is_empty()) };
    let (mut whole, mut found) = (true, 0);
    for entry in table.iter().unwrap() {
        match entry {
            Ok(entry) => {
                assert!(right.contains(&entry), "wrong data: {:?}", entry.0);
                found += 1;
            }
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                whole = false;
                break;
            }
        }
    }
    assert!(!whole || found == right.len(), "{found} entries, and no error");
    (whole, !problems.is_empty())
}

/// Damages a copy of a store so many times; returns how often that was named, and how often all could be read.
fn damage(turns: u64, damage: impl Fn(&mut [u8], u64)) -> (u32, u32) {
    let made = directory();
    let right = filled(made.path());
    let (mut named, mut read, mut random) = (0, 0, 0x9E37_79B9_u64);
    for turn in 0..turns {
        let copy = copy_of(made.path());
        let name = if turn % 4 == 0 { LOG_FILE } else { PAGES_FILE };
        let path = copy.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(turn);
        damage(&mut bytes, random >> 20);
        std::fs::write(&path, bytes).unwrap();
        let (whole, problem) = read_all(copy.path(), &right);
        (named, read) = (named + u32::from(problem), read + u32::from(whole));
    }
    (named, read)
}

#[test]
fn a_flipped_bit_anywhere_is_no_wrong_data_and_no_panic() {
    let (named, _) = damage(120, |bytes, random| {
        let at = random as usize % bytes.len();
        bytes[at] ^= 1 << (random % 8);
    });
    assert!(named > 10, "only {named} of 120 were named");
}

#[test]
#[ignore = "some minutes"]
fn of_a_thousand_flipped_pages_none_is_wrong_data() {
    let (named, read) = damage(1000, |bytes, random| {
        let page = random as usize % (bytes.len() / 4096) * 4096;
        bytes[page..page + 4096].iter_mut().for_each(|byte| *byte = !*byte);
    });
    println!("1000 flipped pages: {named} named, {read} stores read whole");
    // Most pages of the files have nothing in them yet.
    assert!(named > 50, "only {named} of 1000 were named");
}

#[test]
fn a_file_that_is_cut_short_is_refused_or_named() {
    let made = directory();
    let right = filled(made.path());
    for name in [PAGES_FILE, LOG_FILE] {
        for blocks in [0, 1, 2, 10] {
            let copy = copy_of(made.path());
            let path = copy.path().join(name);
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(blocks * 4096)
                .unwrap();
            let (whole, named) = read_all(copy.path(), &right);
            assert!(!whole && named, "{name} of {blocks} blocks");
        }
    }
}

#[test]
fn a_log_of_another_store_is_refused() {
    let (one, other) = (directory(), directory());
    filled(one.path());
    let right = filled(other.path());
    std::fs::copy(one.path().join(LOG_FILE), other.path().join(LOG_FILE)).unwrap();
    read_all(other.path(), &right);
}

#[test]
fn a_table_that_cannot_be_read_keeps_no_other_from_becoming_durable() {
    let (directory, store) = created();
    let hour = Some(Duration::from_secs(3600));
    let options = TableOptions { time_to_live: hour, ..TableOptions::default() };
    let expiring = store.create_table_with("expiring", &options).unwrap();
    for number in 0..500_u32 {
        expiring.put(&number.to_be_bytes(), &b"marked".repeat(20)).unwrap();
    }
    store.create_table("other").unwrap();
    drop((expiring, store));
    let pages = directory.path().join(PAGES_FILE);
    let mut bytes = std::fs::read(&pages).unwrap();
    let marks = bytes.windows(6).enumerate().filter(|(_, it)| it == b"marked");
    let marks: Vec<_> = marks.map(|(at, _)| at).collect();
    marks.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&pages, bytes).unwrap();

    let store = open(directory.path());
    let other = store.table("other").unwrap();
    // The thread in the background has come upon the damage by then.
    std::thread::sleep(Duration::from_millis(500));
    let mut transaction = store.transaction().unwrap();
    transaction.put(&other, b"a", b"1").unwrap();
    let committed = transaction.commit_with(Durability::Eventual).unwrap();
    let given_up = Instant::now() + Duration::from_secs(20);
    while !committed.is_durable() {
        assert!(Instant::now() < given_up, "not durable yet");
        std::thread::sleep(Duration::from_millis(10));
    }
}
