//! Ranges, from both ends, at one state.

use lapis_engine::{Durability, KeyRange};

use crate::harness::Rig;

const LATER: Durability = Durability::Eventual;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn rig_with(count: u32) -> Rig {
    let (rig, table) = Rig::with_table();
    for number in 0..count {
        rig.engine.put(&table, &key(number), &key(number), LATER).unwrap();
    }
    rig
}

fn numbers(
    entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), lapis_engine::EngineError>>,
) -> Vec<u32> {
    entries.map(|entry| u32::from_be_bytes(entry.unwrap().0.try_into().unwrap())).collect()
}

#[test]
fn a_scan_may_go_from_both_ends_and_meets_in_the_middle() {
    let rig = rig_with(1000);
    let table = rig.engine.table("t").unwrap();
    let mut scan = rig.engine.range(&table, key(100)..key(900)).unwrap();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(entry) = scan.next() {
        front.extend(numbers([entry].into_iter()));
        for _ in 0..2 {
            back.extend(numbers(scan.next_back().into_iter()));
        }
    }
    back.reverse();
    front.extend(back);
    assert_eq!(front, (100..900).collect::<Vec<_>>());
}

#[test]
fn a_scan_backward_is_the_scan_forward_reversed() {
    let rig = rig_with(700);
    let table = rig.engine.table("t").unwrap();
    let scan = rig.engine.range(&table, ..=key(650)).unwrap();
    assert_eq!(numbers(scan.rev()), (0..=650).rev().collect::<Vec<_>>());
}

#[test]
fn a_snapshot_sees_nothing_of_what_comes_after_it() {
    let rig = rig_with(600);
    let table = rig.engine.table("t").unwrap();
    let snapshot = rig.engine.snapshot().unwrap();
    for number in 0..1200 {
        match number % 3 {
            0 => _ = rig.engine.remove(&table, &key(number), LATER).unwrap(),
            1 => _ = rig.engine.put(&table, &key(number), b"new", LATER).unwrap(),
            _ => {}
        }
        // Twice.
        rig.engine.put(&table, &key(number / 2), b"newer", LATER).unwrap();
    }
    let scan = || snapshot.scan(&table, KeyRange::all()).unwrap();
    assert_eq!(numbers(scan()), (0..600).collect::<Vec<_>>());
    assert_eq!(numbers(scan().rev()), (0..600).rev().collect::<Vec<_>>());
    for entry in scan() {
        let (key, value) = entry.unwrap();
        assert_eq!(key, value);
    }
    assert_eq!(snapshot.get(&table, &key(3)).unwrap().unwrap(), key(3));
    assert!(rig.engine.statistics().kept_versions > 0);
    drop(snapshot);
    assert_eq!(rig.engine.statistics().kept_versions, 0);
}

#[test]
fn a_transaction_scans_its_own_writes_among_the_others() {
    let rig = rig_with(100);
    let table = rig.engine.table("t").unwrap();
    let mut transaction = rig.engine.begin().unwrap();
    for number in (0..100).step_by(2) {
        transaction.remove(&table, &key(number)).unwrap();
    }
    transaction.put(&table, &key(1000), b"").unwrap();
    let expected: Vec<_> = (0..100).filter(|number| number % 2 == 1).chain([1000]).collect();
    assert_eq!(numbers(transaction.scan(&table, KeyRange::all()).unwrap()), expected);
    let scan = transaction.scan(&table, KeyRange::all()).unwrap();
    assert_eq!(numbers(scan.rev()), expected.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn ranges_that_hold_nothing_are_empty() {
    let rig = rig_with(10);
    let table = rig.engine.table("t").unwrap();
    assert_eq!(rig.engine.range(&table, key(5)..key(5)).unwrap().count(), 0);
    assert_eq!(rig.engine.range(&table, key(7)..key(5)).unwrap().count(), 0);
    assert_eq!(rig.engine.range(&table, key(10)..).unwrap().count(), 0);
    let between = (std::ops::Bound::Excluded(key(5)), std::ops::Bound::Excluded(key(6)));
    assert_eq!(rig.engine.range(&table, between).unwrap().count(), 0);
}

#[test]
fn a_prefix_is_a_range() {
    let rig = rig_with(300);
    let table = rig.engine.table("t").unwrap();
    let snapshot = rig.engine.snapshot().unwrap();
    let found = snapshot.scan(&table, KeyRange::prefix(&[0, 0, 1])).unwrap();
    assert_eq!(numbers(found), (256..300).collect::<Vec<_>>());
}
