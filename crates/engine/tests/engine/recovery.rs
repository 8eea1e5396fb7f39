//! What is there after a power cut, and after an end without a close.

use std::collections::BTreeMap;
use std::time::Duration;

use lapis_engine::{Durability, EngineOptions};

use crate::harness::{Random, Rig, contents, small};

const NOW: Durability = Durability::Immediate;
const LATER: Durability = Durability::Eventual;

#[test]
fn what_was_acknowledged_is_there_after_each_of_many_power_cuts() {
    let mut rig = Rig::new(small());
    rig.engine.create_table("t").unwrap();
    let mut expected = BTreeMap::new();
    let mut random = Random::new(3);
    for _ in 0..12 {
        let table = rig.engine.table("t").unwrap();
        for _ in 0..300 {
            let key = random.below(600).to_be_bytes().to_vec();
            if random.below(4) == 0 {
                rig.engine.remove(&table, &key, NOW).unwrap();
                expected.remove(&key);
            } else {
                let value = vec![random.below(256) as u8; random.below(300) as usize];
                rig.engine.put(&table, &key, &value, NOW).unwrap();
                expected.insert(key, value);
            }
        }
        rig = rig.after_power_cut();
        let found: BTreeMap<_, _> = contents(&rig.engine, "t").into_iter().collect();
        assert_eq!(found, expected);
        assert!(rig.engine.recovery().records > 0);
    }
}

#[test]
fn a_recovery_counts_each_transaction_and_each_write_once() {
    let after = |puts: u8| {
        let (rig, table) = Rig::with_table();
        (0..puts).for_each(|key| _ = rig.engine.put(&table, &[key], b"value", NOW).unwrap());
        let mut transaction = rig.engine.begin().unwrap();
        (0..puts).for_each(|key| transaction.put(&table, &[key], b"other").unwrap());
        transaction.commit(NOW).unwrap();
        let report = *rig.after_power_cut().engine.recovery();
        [report.transactions, report.writes]
    };
    let [without, with] = [after(0), after(5)];
    assert_eq!([with[0] - without[0], with[1] - without[1]], [5 + 1, 5 + 5]);
}

#[test]
fn a_log_that_was_cut_many_times_lacks_nothing() {
    let (rig, table) = Rig::with_table();
    let mut expected = BTreeMap::new();
    let mut random = Random::new(5);
    for round in 0..40_000_u32 {
        let key = random.below(3000).to_be_bytes().to_vec();
        let value = [round as u8; 150].to_vec();
        rig.engine.put(&table, &key, &value, LATER).unwrap();
        expected.insert(key, value);
    }
    rig.engine.sync().unwrap();
    let statistics = rig.engine.statistics();
    assert!(statistics.checkpoints > 3 && statistics.buffer.evictions > 100, "{statistics:?}");
    let rig = rig.after_power_cut();
    let found: BTreeMap<_, _> = contents(&rig.engine, "t").into_iter().collect();
    assert_eq!(found, expected);
}

#[test]
fn the_log_is_cut_before_it_would_take_longer_than_asked_to_do_it_again() {
    // Of a log of less than a MiB there is no checkpoint; and what is not durable is not done again.
    const MOST: u64 = (1 << 20) + 3 * (64 << 10);
    let longest = |most| {
        let rig = Rig::new(EngineOptions { most_time_to_redo: most, ..small() });
        let table = rig.engine.create_table("t").unwrap();
        let puts = (0..16_000_u64).map(|round| {
            rig.engine.put(&table, &(round % 3000).to_be_bytes(), &[7; 150], LATER).unwrap();
            rig.engine.log().end().number() - rig.engine.log().start().number()
        });
        puts.max().unwrap()
    };
    assert!(longest(Some(Duration::ZERO)) < MOST);
    assert!(longest(None) > MOST && longest(Some(Duration::from_secs(60))) > MOST);
}

#[test]
fn what_waits_for_no_sync_is_lost_from_the_end_only() {
    let (rig, table) = Rig::with_table();
    let mut most = 0;
    for number in 0..2000_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[1; 100], LATER).unwrap();
        if number % 500 == 250 {
            let rig = rig.after_power_cut();
            let found = contents(&rig.engine, "t").len() as u32;
            assert!(found <= number + 1 && found >= most);
            most = found;
            let found: Vec<_> = contents(&rig.engine, "t").into_iter().map(|it| it.0).collect();
            let expected: Vec<_> = (0..found.len() as u32).map(|it| it.to_be_bytes()).collect();
            assert_eq!(found, expected);
        }
    }
    rig.engine.sync().unwrap();
    assert_eq!(contents(&rig.after_power_cut().engine, "t").len(), 2000);
}

#[test]
fn a_transaction_of_many_records_is_there_whole_or_not_at_all() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    for number in 0..1500_u32 {
        transaction.put(&table, &number.to_be_bytes(), &[7; 150]).unwrap();
    }
    assert!(contents(&rig.after_power_cut().engine, "t").is_empty());
    transaction.commit(NOW).unwrap();
    assert_eq!(contents(&rig.after_power_cut().engine, "t").len(), 1500);
}

#[test]
fn a_log_that_is_cut_keeps_all_parts_of_a_transaction() {
    let (rig, table) = Rig::with_table();
    for round in 0..12_u8 {
        let mut transaction = rig.engine.begin().unwrap();
        for number in 0..1500_u32 {
            transaction.put(&table, &number.to_be_bytes(), &[round; 150]).unwrap();
        }
        transaction.commit(NOW).unwrap();
        let rig = rig.after_power_cut();
        let found = contents(&rig.engine, "t");
        assert_eq!(found.len(), 1500);
        assert!(found.iter().all(|(_, value)| *value == [round; 150]));
    }
    assert!(rig.engine.statistics().checkpoints > 1);
}

#[test]
fn after_a_close_there_is_nothing_to_redo() {
    let (rig, table) = Rig::with_table();
    for number in 0..500_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[1; 100], LATER).unwrap();
    }
    rig.engine.close().unwrap();
    let rig = rig.opened_again();
    assert_eq!(rig.engine.recovery().records, 0, "{:?}", rig.engine.recovery());
    assert_eq!(contents(&rig.engine, "t").len(), 500);
}

#[test]
fn an_end_without_a_close_loses_nothing_that_was_acknowledged() {
    let (rig, table) = Rig::with_table();
    for number in 0..500_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[1; 100], NOW).unwrap();
    }
    drop(table);
    assert_eq!(contents(&rig.opened_again().engine, "t").len(), 500);
}
