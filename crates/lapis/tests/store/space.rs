//! How much a store takes after many kills: what each leaves behind is found again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lapis::{IndexKind, Store, Table, TableOptions};

use crate::harness::*;

const DIRECTORY: &str = "LAPIS_TEST_SPACE_DIRECTORY";
const ROUND: &str = "LAPIS_TEST_SPACE_ROUND";
const KEYS: u64 = 700;
/// Operations of a round that comes to its end.
const OPERATIONS: u64 = 3000;

fn open_with_memory(directory: &Path) -> (Store, [Table; 2]) {
    let store = Store::open(config(directory).persistent_memory(directory, 16 << 20)).unwrap();
    if store.tables().is_empty() {
        let options = TableOptions::with_index(IndexKind::FastFair);
        store.create_table_with("index", &options).unwrap();
    }
    let tables = ["index", "tree"].map(|name| store.table_or_create(name).unwrap());
    (store, tables)
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Gives one of the keys another value, or none, in both tables: what they hold in all stays as it is.
fn change(store: &Store, tables: &[Table; 2], seed: u64) {
    let random = mixed(seed);
    let key = (random % KEYS).to_be_bytes();
    let bytes = (random >> 32) % 6000;
    let mut transaction = store.transaction().unwrap();
    for table in tables {
        match random >> 16 & 7 {
            0 => _ = transaction.delete(table, &key).unwrap(),
            _ => transaction.put(table, &key, &vec![random as u8; bytes as usize]).unwrap(),
        }
    }
    transaction.commit().unwrap();
}

#[test]
#[ignore = "a child of the other tests"]
fn the_child_that_changes() {
    let (Ok(directory), Ok(round)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else {
        return;
    };
    let (store, tables) = open_with_memory(directory.as_ref());
    println!("ready");
    let round: u64 = round.parse().unwrap();
    let mut number = round << 32;
    loop {
        change(&store, &tables, number);
        number += 1;
    }
}

fn kill_one_that_changes(directory: &Path, round: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "space::the_child_that_changes", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "the child ended early");
    thread::sleep(Duration::from_millis(5 + mixed(round) % 40));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn storage_bytes(store: &Store) -> u64 {
    store.info(false).unwrap().bytes.storage
}

/// As many rounds that end in order.
fn bytes_without_kills() -> u64 {
    let directory = directory();
    for round in 0..3 {
        let (store, tables) = open_with_memory(directory.path());
        (0..OPERATIONS).for_each(|number| change(&store, &tables, round << 32 | number));
    }
    storage_bytes(&open_with_memory(directory.path()).0)
}

fn stays_within_a_fifth_more(kills: u64) {
    let usual = bytes_without_kills();
    let directory = directory();
    for round in 0..kills {
        kill_one_that_changes(directory.path(), round);
    }
    let (store, tables) = open_with_memory(directory.path());
    (0..OPERATIONS).for_each(|number| change(&store, &tables, kills << 32 | number));
    assert_sound(&store);
    let bytes = storage_bytes(&store);
    assert!(bytes * 5 <= usual * 6, "{bytes} after {kills} kills, {usual} without");
}

#[test]
fn a_few_kills_cost_no_space() {
    stays_within_a_fifth_more(8);
}
