//! What a process leaves that is killed while its threads write.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lapis::{Durability, Store};

use crate::harness::*;

/// Says where a child writes, and which of its works it does.
const DIRECTORY: &str = "LAPIS_TEST_KILLED_DIRECTORY";
const WORK: &str = "LAPIS_TEST_KILLED_WORK";
const THREADS: u32 = 4;

/// Runs this test's executable as a child that does `work`, kills it, and opens what it left.
fn kill_while(work: &str, directory: &std::path::Path, after: Duration) -> Store {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(WORK, work)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "the child ended early");
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    open(directory)
}

#[test]
#[ignore = "a child of the other tests"]
fn the_child() {
    let (Ok(directory), Ok(work)) = (std::env::var(DIRECTORY), std::env::var(WORK)) else { return };
    let durability = if work == "eventual" { Durability::Eventual } else { Durability::Immediate };
    let mut config = config(directory.as_ref()).durability(durability);
    if work == "memory" {
        config = config.persistent_memory(&directory, 16 << 20);
    }
    let store = Store::open(config).unwrap();
    if work == "memory" && store.tables().is_empty() {
        let options = lapis::TableOptions::with_index(lapis::IndexKind::FastFair);
        store.create_table_with("left", &options).unwrap();
    }
    let [left, right] = ["left", "right"].map(|name| store.table_or_create(name).unwrap());
    println!("ready");
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (store, left, right) = (&store, &left, &right);
            scope.spawn(move || {
                // Never the number after the last one of the round before.
                let first = 2 * left.len().unwrap() as u32 + 1000;
                for number in first.. {
                    let key = [worker.to_be_bytes(), number.to_be_bytes()].concat();
                    let value = vec![number as u8; 1 + number as usize % 300];
                    let put = |transaction: &mut lapis::Transaction| {
                        transaction.put(left, &key, &value)?;
                        transaction.put(right, &key, &value)
                    };
                    store.retry(put).unwrap();
                    if number % 5 == 4 {
                        left.compare_and_swap(&key, Some(&value), None).unwrap();
                    }
                }
            });
        }
    });
}

/// Each thread's keys are there up to some number, in both tables, but for those of `left` that were taken away.
fn assert_is_a_beginning(store: &Store) -> usize {
    let [left, right] = ["left", "right"].map(|name| contents(&store.table(name).unwrap()));
    let mut left: std::collections::BTreeMap<_, _> = left.into_iter().collect();
    let mut last = std::collections::BTreeMap::new();
    for (key, value) in &right {
        let [worker, number] =
            [0, 4].map(|at| u32::from_be_bytes(key[at..at + 4].try_into().unwrap()));
        let before = last.insert(worker, (number, left.contains_key(key)));
        assert!(before.is_none_or(|(before, _)| before < number), "{key:?}");
        // Unless the kill came between the two.
        if let Some((before, there)) = before.filter(|(before, _)| before + 1 == number) {
            assert!(before % 5 != 4 || !there, "what followed a removal is there, and it is not");
        }
        match left.remove(key) {
            Some(in_left) => assert_eq!(in_left, *value),
            None => assert_eq!(number % 5, 4, "one of two tables has it"),
        }
        assert_eq!(*value, vec![number as u8; 1 + number as usize % 300]);
    }
    assert!(left.is_empty(), "one of two tables has it");
    right.len()
}

fn kill_again_and_again(work: &str) {
    let directory = directory();
    let mut found = 0;
    for round in 0..4 {
        let store = kill_while(work, directory.path(), Duration::from_millis(40 + 60 * round));
        let now = assert_is_a_beginning(&store);
        assert!(now > found, "round {round}: {now} after {found}");
        found = now;
        assert_sound(&store);
    }
}

#[test]
fn a_killed_process_leaves_whole_transactions() {
    kill_again_and_again("immediate");
}

#[test]
fn a_killed_process_leaves_the_beginning_of_what_did_not_wait() {
    kill_again_and_again("eventual");
}

#[test]
fn so_it_does_with_its_log_and_a_table_in_persistent_memory() {
    kill_again_and_again("memory");
}
