//! What a process leaves that is killed while its threads write.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lapis::{Durability, Store};

use crate::harness::*;

/// Says where a child writes, and which of its works it does.
const DIRECTORY: &str = "LAPIS_TEST_KILLED_DIRECTORY";
const WORK: &str = "LAPIS_TEST_KILLED_WORK";
const THREADS: u32 = 4;
/// Where a child that changes says which change is next.
const NEXT: &[u8] = b"next change";

/// The last number of each thread that was acknowledged.
type Acknowledged = BTreeMap<u32, u32>;

/// What is put for a number.
fn value_of(number: u32) -> Vec<u8> {
    let bytes = if number.is_multiple_of(97) { 9000 } else { 1 + number as usize % 300 };
    vec![number as u8; bytes]
}

/// Runs this test's executable as a child that does `work`.
fn child_that(work: &str, directory: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(WORK, work)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a child that does `work`, and opens what it left.
fn kill_while(work: &str, directory: &std::path::Path, after: Duration) -> (Store, Acknowledged) {
    let mut child = child_that(work, directory);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "the child ended early");
    let told = thread::spawn(move || {
        let mut acknowledged = Acknowledged::new();
        let lines = lines.map_while(Result::ok);
        // The last line may lack its end.
        for line in lines.filter_map(|line| Some(line.strip_suffix(" done")?.to_owned())) {
            let (worker, number) = line.split_once(' ').unwrap();
            acknowledged.insert(worker.parse().unwrap(), number.parse().unwrap());
        }
        acknowledged
    });
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    (open(directory), told.join().unwrap())
}

#[test]
#[ignore = "a child of the other tests"]
fn the_child() {
    let (Ok(directory), Ok(work)) = (std::env::var(DIRECTORY), std::env::var(WORK)) else { return };
    let durability = if ["eventual", "changes"].contains(&work.as_str()) {
        Durability::Eventual
    } else {
        Durability::Immediate
    };
    let mut config = config(directory.as_ref()).durability(durability);
    let has_memory = ["memory", "changes"].contains(&work.as_str());
    if has_memory {
        let bytes = if work == "changes" { 2 << 20 } else { 16 << 20 };
        config = config.persistent_memory(&directory, bytes);
    }
    let store = Store::open(config).unwrap();
    if has_memory && store.tables().is_empty() {
        let options = lapis::TableOptions::with_index(lapis::IndexKind::FastFair);
        store.create_table_with("left", &options).unwrap();
    }
    let [left, right] = ["left", "right"].map(|name| store.table_or_create(name).unwrap());
    println!("ready");
    if work == "changes" {
        return change_forever(&store, &[left, right]);
    }
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (store, left, right) = (&store, &left, &right);
            scope.spawn(move || {
                // Never the number after the last one of the round before.
                let first = 2 * left.len().unwrap() as u32 + 1000;
                for number in first.. {
                    let key = [worker.to_be_bytes(), number.to_be_bytes()].concat();
                    let value = value_of(number);
                    let put = |transaction: &mut lapis::Transaction| {
                        transaction.put(left, &key, &value)?;
                        transaction.put(right, &key, &value)
                    };
                    store.retry(put).unwrap();
                    if number % 5 == 4 {
                        left.compare_and_swap(&key, Some(&value), None).unwrap();
                    }
                    if durability == Durability::Immediate {
                        println!("{worker} {number} done");
                    }
                }
            });
        }
    });
}

/// Gives 6,000 keys values of other sizes again and again, from where the last one of these was killed.
fn change_forever(store: &Store, tables: &[lapis::Table; 2]) {
    let last =
        tables[1].get(NEXT).unwrap().map_or(0, |at| u32::from_be_bytes(at.try_into().unwrap()));
    for change in last.. {
        let number = change * 7919 % 6000;
        let value = vec![number as u8; 500 + (change + number) as usize % 2000];
        let put = |transaction: &mut lapis::Transaction| {
            transaction.put(&tables[1], NEXT, &(change + 1).to_be_bytes())?;
            tables
                .iter()
                .try_for_each(|table| transaction.put(table, &number.to_be_bytes(), &value))
        };
        store.retry(put).unwrap();
        println!("0 {change} done");
    }
}

/// Each thread's keys are there up to some number, which is not before what was acknowledged, in both tables, but for those
/// of `left` that were taken away.
fn assert_is_a_beginning(store: &Store, acknowledged: &Acknowledged) -> usize {
    let [left, right] = ["left", "right"].map(|name| contents(&store.table(name).unwrap()));
    let mut left: BTreeMap<_, _> = left.into_iter().collect();
    let mut last = BTreeMap::new();
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
        assert_eq!(*value, value_of(number));
    }
    for (worker, number) in acknowledged {
        let there = last.get(worker).map(|(number, _)| *number);
        assert!(there >= Some(*number), "{worker}: {number} was acknowledged, {there:?} is there");
    }
    assert!(left.is_empty(), "one of two tables has it");
    right.len()
}

/// Kills a child after each of these times, all in one directory. Returns what was put, and what was acknowledged last.
fn kill_after(work: &str, milliseconds: impl Iterator<Item = u64>) -> (usize, usize) {
    let directory = directory();
    let (mut found, mut told) = (0, 0);
    for (round, after) in milliseconds.enumerate() {
        let (store, acknowledged) =
            kill_while(work, directory.path(), Duration::from_millis(after));
        let now = assert_is_a_beginning(&store, &acknowledged);
        assert!(now >= found, "round {round}: {now} after {found}");
        (found, told) = (now, told + acknowledged.len());
        assert_sound(&store);
    }
    (found, told)
}

/// Bytes of a store in all three media whose child made so many changes, and was then killed, in each of so many rounds.
fn bytes_after(rounds: usize, changes: usize) -> u64 {
    let directory = directory();
    for _ in 0..rounds {
        let mut child = child_that("changes", directory.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut changed = lines.map_while(Result::ok).filter(|line| line.ends_with(" done"));
        // The child must not find its output closed before it is killed.
        assert_eq!(changed.by_ref().take(changes).count(), changes, "the child ended early");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let files = std::fs::read_dir(directory.path()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_store_that_was_killed_a_hundred_times_is_hardly_larger_than_one_that_was_killed_once() {
    let [often, once] = [bytes_after(100, 100), bytes_after(1, 10_000)];
    assert!(often * 5 <= once * 6, "{often} bytes, {once} after one kill");
}

fn kill_again_and_again(work: &str) {
    let (transactions, _) = kill_after(work, (0..4).map(|round| 40 + 60 * round));
    assert!(transactions > 0);
}

#[test]
#[ignore = "some minutes"]
fn of_two_hundred_kills_none_loses_what_was_acknowledged() {
    let mut random = 0x9E37_79B9_u64;
    let times = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        10 + (random >> 40) % 250
    });
    let (transactions, acknowledged) = kill_after("immediate", times.take(200));
    println!("200 kills: {transactions} transactions found, {acknowledged} last ones acknowledged");
    // As many as a busy machine comes to.
    assert!(acknowledged > 100, "{acknowledged}");
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
