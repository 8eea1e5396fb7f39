//! One transaction, and two.

use lapis_engine::{Durability, EngineError, Transaction};

use crate::harness::{Rig, contents};

const NOW: Durability = Durability::Immediate;

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does_before_the_commit() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", b"1", NOW).unwrap();
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"a", b"2").unwrap();
    assert!(transaction.remove(&table, b"b").is_ok_and(|present| !present));
    transaction.put(&table, b"c", b"3").unwrap();
    assert_eq!(transaction.get(&table, b"a").unwrap().unwrap(), b"2");
    assert_eq!(rig.engine.get(&table, b"a").unwrap().unwrap(), b"1");
    assert_eq!(rig.engine.get(&table, b"c").unwrap(), None);
    transaction.commit(NOW).unwrap();
    assert_eq!(rig.engine.get(&table, b"a").unwrap().unwrap(), b"2");
    assert_eq!(rig.engine.get(&table, b"c").unwrap().unwrap(), b"3");
}

#[test]
fn who_begins_again_and_again_may_do_so_within_it() {
    let (rig, table) = Rig::with_table();
    // Of every attempt of either, but the last, another changes what it has read.
    let changed = |transaction: &mut Transaction<_>, key: &[u8], attempts: &mut u32| {
        let before = transaction.get(&table, key)?.map_or(0, |value| value[0]);
        transaction.put(&table, key, &[before + 1])?;
        *attempts += 1;
        match *attempts < 8 {
            true => rig.engine.put(&table, key, &[100], NOW).map(|_| ()),
            false => Ok(()),
        }
    };
    let (mut outer, mut inner) = (0, 0);
    let body = |transaction: &mut Transaction<_>| {
        inner = 0;
        rig.engine.retry(|within| changed(within, b"inner", &mut inner), NOW)?;
        changed(transaction, b"outer", &mut outer)
    };
    rig.engine.retry(body, NOW).unwrap();
    assert_eq!((outer, inner), (8, 8));
    assert_eq!(rig.engine.get(&table, b"outer").unwrap().unwrap(), [101]);
}

#[test]
fn a_transaction_that_is_dropped_leaves_no_trace() {
    let (rig, table) = Rig::with_table();
    let end = rig.engine.log().end();
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"a", b"1").unwrap();
    drop(transaction);
    assert_eq!(rig.engine.log().end(), end);
    assert!(contents(&rig.engine, "t").is_empty());
}

#[test]
fn a_transaction_reads_the_state_of_its_beginning() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", b"old", NOW).unwrap();
    let transaction = rig.engine.begin().unwrap();
    rig.engine.put(&table, b"a", b"new", NOW).unwrap();
    rig.engine.put(&table, b"b", b"new", NOW).unwrap();
    assert_eq!(transaction.get(&table, b"a").unwrap().unwrap(), b"old");
    assert_eq!(transaction.get(&table, b"b").unwrap(), None);
}

#[test]
fn a_state_stays_until_all_who_read_it_have_ended() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", b"old", NOW).unwrap();
    let [ends, stays] = [(); 2].map(|()| rig.engine.snapshot().unwrap());
    drop(ends);
    for value in [b"new", b"yet"] {
        rig.engine.put(&table, b"a", value, NOW).unwrap();
    }
    assert_eq!(stays.get(&table, b"a").unwrap().unwrap(), b"old");
}

#[test]
fn who_read_what_another_has_written_since_conflicts() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    transaction.get(&table, b"a").unwrap();
    transaction.put(&table, b"b", b"1").unwrap();
    rig.engine.put(&table, b"a", b"new", NOW).unwrap();
    assert!(matches!(transaction.commit(NOW), Err(EngineError::Conflict)));
    assert_eq!(rig.engine.get(&table, b"b").unwrap(), None);
}

#[test]
fn who_read_a_range_conflicts_with_a_key_that_is_new_in_it_and_with_no_other() {
    for (key, conflicts) in [(b"m", true), (b"z", false)] {
        let (rig, table) = Rig::with_table();
        let mut transaction = rig.engine.begin().unwrap();
        assert_eq!(transaction.range(&table, b"a".as_slice()..b"n").unwrap().count(), 0);
        transaction.put(&table, b"b", b"1").unwrap();
        rig.engine.put(&table, key, b"new", NOW).unwrap();
        let outcome = transaction.commit(NOW);
        assert_eq!(matches!(outcome, Err(EngineError::Conflict)), conflicts, "{outcome:?}");
    }
}

#[test]
fn a_scan_conflicts_only_as_far_as_it_has_read() {
    let (rig, table) = Rig::with_table();
    for number in 0..500_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), b"", Durability::Eventual).unwrap();
    }
    let mut transaction = rig.engine.begin().unwrap();
    let first = transaction.range::<&[u8]>(&table, ..).unwrap().next().unwrap().unwrap();
    assert_eq!(first.0, 0_u32.to_be_bytes());
    transaction.put(&table, b"x", b"").unwrap();
    rig.engine.put(&table, &400_u32.to_be_bytes(), b"new", NOW).unwrap();
    transaction.commit(NOW).unwrap();
}

#[test]
fn writers_that_read_nothing_never_conflict() {
    let (rig, table) = Rig::with_table();
    let mut first = rig.engine.begin().unwrap();
    let mut second = rig.engine.begin().unwrap();
    first.put(&table, b"a", b"1").unwrap();
    second.put(&table, b"a", b"2").unwrap();
    second.commit(NOW).unwrap();
    first.commit(NOW).unwrap();
    assert_eq!(rig.engine.get(&table, b"a").unwrap().unwrap(), b"1");
}

#[test]
fn a_transaction_that_is_too_long_is_refused_at_the_call_and_goes_on() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    let mut number = 0_u32;
    let refused = loop {
        number += 1;
        if let Err(error) = transaction.put(&table, &number.to_be_bytes(), &[0; 500]) {
            break error;
        }
    };
    assert!(matches!(refused, EngineError::TransactionTooLong { .. }), "{refused}");
    assert!(number > 900);
    transaction.commit(NOW).unwrap();
    assert_eq!(contents(&rig.engine, "t").len() as u32, number - 1);
}

#[test]
fn a_transaction_is_as_long_as_what_it_writes_last_of_each_key() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    for number in 0..3000_u32 {
        transaction.put(&table, b"key", &vec![1; 500 + number as usize % 2]).unwrap();
    }
    let mut filled = 0_u32;
    while transaction.put(&table, &filled.to_be_bytes(), &[2; 500]).is_ok() {
        filled += 1;
    }
    assert!(filled > 900);
    // In a transaction that takes nothing more, too.
    transaction.put(&table, b"key", &[3; 500]).unwrap();
    transaction.remove(&table, &0_u32.to_be_bytes()).unwrap();
    transaction.put(&table, &0_u32.to_be_bytes(), &[2; 400]).unwrap();
    transaction.commit(NOW).unwrap();
    assert_eq!(contents(&rig.engine, "t").len() as u32, filled + 1);
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let (rig, table) = Rig::with_table();
    let most = table.largest_key_bytes();
    rig.engine.put(&table, &vec![0; most], b"", NOW).unwrap();
    let refused = rig.engine.put(&table, &vec![0; most + 1], b"", NOW).unwrap_err();
    assert!(matches!(refused, EngineError::KeyTooLong { .. }));
}

#[test]
fn eventual_and_group_commits_wait_for_no_sync() {
    let (rig, table) = Rig::with_table();
    let syncs = rig.engine.statistics().log.syncs;
    for number in 0..10_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), b"", Durability::Eventual).unwrap();
    }
    assert_eq!(rig.engine.statistics().log.syncs, syncs);
    rig.engine.put(&table, b"a", b"", NOW).unwrap();
    assert_eq!(rig.engine.statistics().log.syncs, syncs + 1);
}

#[test]
fn an_update_that_conflicts_is_begun_again() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"n", &0_u64.to_le_bytes(), NOW).unwrap();
    let add = |times: u64| {
        for _ in 0..times {
            let body = |transaction: &mut lapis_engine::Transaction<_>| {
                let now = transaction.get(&table, b"n")?.unwrap();
                let next = u64::from_le_bytes(now.try_into().unwrap()) + 1;
                transaction.put(&table, b"n", &next.to_le_bytes())
            };
            rig.engine.retry(body, Durability::Eventual).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| add(500));
        scope.spawn(|| add(500));
    });
    assert_eq!(rig.engine.get(&table, b"n").unwrap().unwrap(), 1000_u64.to_le_bytes());
}

#[test]
fn a_put_takes_its_key_its_value_and_little_else_of_the_log() {
    let (rig, table) = Rig::with_table();
    let later = Durability::Eventual;
    let first = rig.engine.put(&table, &1_u64.to_be_bytes(), &[1; 100], later).unwrap();
    let second = rig.engine.put(&table, &2_u64.to_be_bytes(), &[2; 100], later).unwrap();
    assert_eq!(second - first, 152);
}

#[test]
fn a_transaction_goes_back_to_a_savepoint_and_not_to_one_behind_it() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", b"old", NOW).unwrap();
    let mut transaction = rig.engine.begin().unwrap();
    let first = transaction.savepoint();
    transaction.put(&table, b"b", b"1").unwrap();
    let second = transaction.savepoint();
    transaction.remove(&table, b"a").unwrap();
    transaction.put(&table, b"b", &[2; 20_000]).unwrap();
    transaction.roll_back_to(&second).unwrap();
    assert_eq!(transaction.get(&table, b"a").unwrap().unwrap(), b"old");
    assert_eq!(transaction.get(&table, b"b").unwrap().unwrap(), b"1");
    transaction.put(&table, b"c", b"3").unwrap();
    transaction.roll_back_to(&first).unwrap();
    assert!(transaction.is_empty());
    assert!(matches!(transaction.roll_back_to(&second), Err(EngineError::NoSuchSavepoint)));
    transaction.put(&table, b"d", b"4").unwrap();
    transaction.roll_back_to(&first).unwrap();
    transaction.put(&table, b"e", b"5").unwrap();
    transaction.commit(NOW).unwrap();
    let keys: Vec<_> = contents(&rig.engine, "t").into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"a", b"e"]);
}

#[test]
fn a_long_value_that_a_savepoint_brings_back_is_whole_and_others_go() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"k", &[1; 20_000]).unwrap();
    let savepoint = transaction.savepoint();
    transaction.put(&table, b"k", &[2; 30_000]).unwrap();
    transaction.put(&table, b"k", b"short").unwrap();
    transaction.roll_back_to(&savepoint).unwrap();
    while rig.engine.maintain().unwrap() {}
    transaction.commit(NOW).unwrap();
    while rig.engine.maintain().unwrap() {}
    assert_eq!(contents(&rig.engine, "t"), [(b"k".to_vec(), vec![1; 20_000])]);
    assert!(rig.engine.check().is_empty(), "{:?}", rig.engine.check());
    let opened = rig.after_power_cut();
    assert_eq!(contents(&opened.engine, "t"), [(b"k".to_vec(), vec![1; 20_000])]);
}
