//! Entries that expire, by a clock that the tests set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapis_engine::{
    Clock, Durability, Engine, EngineOptions, KeyRange, Table, TableStructure, TimeToLive,
};
use lapis_pmem::Hardware;

use crate::harness::*;

const LATER: Durability = Durability::Eventual;
const TEN: TimeToLive = TimeToLive::For(Duration::from_millis(10));

/// Of all scenes, which engines want for ever: no leak, for those who look for some.
static CLOCKS: Mutex<Vec<&AtomicU64>> = Mutex::new(Vec::new());

struct Scene {
    rig: Rig,
    now: &'static AtomicU64,
}

fn options(now: &'static AtomicU64) -> EngineOptions {
    EngineOptions { clock: Clock::Set(now), ..small() }
}

impl Scene {
    fn new() -> Self {
        let now: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(1000)));
        CLOCKS.lock().unwrap().push(now);
        Self { rig: Rig::new(options(now)), now }
    }

    fn engine(&self) -> &Engine<Hardware> {
        &self.rig.engine
    }

    fn at(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn after_power_cut(&self) -> Self {
        Self { rig: self.rig.after_power_cut(), now: self.now }
    }

    fn keys(&self, table: &Arc<Table<Hardware>>) -> Vec<Vec<u8>> {
        let scan = || self.engine().snapshot().unwrap().scan(table, KeyRange::all()).unwrap();
        let keys = |entries: Vec<_>| {
            let keys = entries.into_iter().map(Result::unwrap);
            keys.map(|(key, _): (Vec<u8>, Vec<u8>)| key).collect::<Vec<_>>()
        };
        let forward = keys(scan().collect());
        let mut backward = keys(scan().rev().collect());
        backward.reverse();
        assert_eq!(forward, backward);
        forward
    }

    fn assert_sound(&self) {
        assert_eq!(self.engine().check(), Vec::<String>::new());
    }
}

#[test]
fn what_has_expired_is_neither_read_nor_scanned_and_the_rest_is() {
    let scene = Scene::new();
    let table = scene.engine().create_table("t").unwrap();
    for key in 0..200_u8 {
        let lives = if key % 3 == 0 { TimeToLive::OfTable } else { TEN };
        // Every seventh is long.
        let value = vec![key; if key % 7 == 0 { 5000 } else { 50 }];
        scene.engine().put_with(&table, &[key], &value, lives, LATER).unwrap();
    }
    scene.at(1009);
    assert_eq!(scene.keys(&table).len(), 200);
    scene.at(1010);
    let left: Vec<_> = (0..200_u8).filter(|key| key % 3 == 0).map(|key| vec![key]).collect();
    assert_eq!(scene.keys(&table), left);
    for key in 0..200_u8 {
        let value = vec![key; if key % 7 == 0 { 5000 } else { 50 }];
        let value = (key % 3 == 0).then_some(value);
        assert_eq!(scene.engine().get(&table, &[key]).unwrap(), value);
        let transaction = scene.engine().begin().unwrap();
        assert_eq!(transaction.get(&table, &[key]).unwrap(), value);
    }
    let scene = scene.after_power_cut();
    assert_eq!(scene.keys(&scene.engine().table("t").unwrap()), left);
}

#[test]
fn an_expired_entry_is_as_if_removed_for_who_writes() {
    let scene = Scene::new();
    let table = scene.engine().create_table("t").unwrap();
    scene.engine().put_with(&table, b"k", b"1", TEN, LATER).unwrap();
    scene.at(1010);
    assert!(!scene.engine().remove(&table, b"k", LATER).unwrap());
    scene.engine().put_with(&table, b"k", b"2", TEN, LATER).unwrap();
    scene.at(1019);
    assert_eq!(scene.engine().get(&table, b"k").unwrap().unwrap(), b"2");
    // A put without a time is for ever, whatever was there.
    scene.engine().put(&table, b"k", b"3", LATER).unwrap();
    scene.at(u64::MAX - 1);
    assert_eq!(scene.engine().get(&table, b"k").unwrap().unwrap(), b"3");
}

#[test]
fn a_transaction_sees_its_own_writes_expire_with_the_rest_of_its_state_or_not_at_all() {
    let scene = Scene::new();
    let table = scene.engine().create_table("t").unwrap();
    scene.engine().put_with(&table, b"a", b"1", TEN, LATER).unwrap();
    let snapshot = scene.engine().snapshot().unwrap();
    let mut transaction = scene.engine().begin().unwrap();
    transaction.put_with(&table, b"b", b"2", TEN).unwrap();
    for now in [1000, 1010] {
        scene.at(now);
        assert!(snapshot.get(&table, b"a").unwrap().is_some(), "one time for each reader");
        assert!(transaction.get(&table, b"a").unwrap().is_some());
        assert!(transaction.get(&table, b"b").unwrap().is_some());
        assert_eq!(transaction.scan(&table, KeyRange::all()).unwrap().count(), 2);
    }
    // Even when it is taken away.
    assert_eq!(scene.engine().remove_expired().unwrap(), 1);
    assert!(snapshot.get(&table, b"a").unwrap().is_some());
    assert!(scene.engine().snapshot().unwrap().get(&table, b"a").unwrap().is_none());
    assert!(transaction.commit(LATER).is_err(), "what it read has been changed");
}

#[test]
fn a_table_gives_its_entries_a_time_that_survives_and_that_an_entry_may_overrule() {
    let scene = Scene::new();
    let time = Duration::from_millis(5);
    scene.engine().create_table_with("t", TableStructure::default(), Some(time)).unwrap();
    let scene = scene.after_power_cut();
    let table = scene.engine().table("t").unwrap();
    assert_eq!(table.time_to_live(), Some(time));
    scene.engine().put(&table, b"a", b"", LATER).unwrap();
    scene.engine().put_with(&table, b"b", b"", TEN, LATER).unwrap();
    scene.engine().put_with(&table, b"c", b"", TimeToLive::Forever, LATER).unwrap();
    // The catalog's entry is written anew, and loses nothing.
    scene.engine().put_with(&table, b"d", &[1; 9000], TimeToLive::Forever, LATER).unwrap();
    scene.engine().sync().unwrap();
    let scene = scene.after_power_cut();
    let table = scene.engine().table("t").unwrap();
    assert_eq!(table.time_to_live(), Some(time));
    for (now, left) in [(1004, 4), (1005, 3), (1010, 2)] {
        scene.at(now);
        assert_eq!(scene.keys(&table).len(), left);
    }
    scene.assert_sound();
}

#[test]
fn what_has_expired_is_taken_away_by_the_way_with_the_chunks_of_long_values() {
    let scene = Scene::new();
    let table = scene.engine().create_table("t").unwrap();
    let empty = scene.engine().buffer_manager().space().unwrap().numbers().len();
    for key in 0..3000_u32 {
        let value = vec![7; if key % 100 == 0 { 9000 } else { 100 }];
        scene.engine().put_with(&table, &key.to_be_bytes(), &value, TEN, LATER).unwrap();
    }
    scene.engine().put(&table, b"stays", b"", LATER).unwrap();
    scene.engine().sync().unwrap();
    // T3: who opens it knows that there are such entries.
    let scene = scene.after_power_cut();
    scene.at(1010);
    let used = || scene.engine().buffer_manager().space().unwrap().numbers().len();
    let full = used();
    for round in 0..10_000 {
        if used() <= empty + 8 {
            break;
        }
        if !scene.engine().maintain().unwrap() {
            scene.at(1010 + 100 * round);
        }
        scene.engine().checkpoint().unwrap();
    }
    assert!(used() <= empty + 8, "{} pages of {full}, {empty} at first", used());
    assert_eq!(scene.engine().remove_expired().unwrap(), 0);
    assert_eq!(scene.keys(&scene.engine().table("t").unwrap()), [b"stays"]);
    scene.assert_sound();
}

#[test]
fn what_has_expired_in_a_table_that_says_how_long_is_taken_away_by_the_way() {
    let scene = Scene::new();
    let (engine, lives) = (scene.engine(), Some(Duration::from_millis(10)));
    let table = engine.create_table_with("t", TableStructure::default(), lives).unwrap();
    let empty = engine.buffer_manager().space().unwrap().numbers().len();
    for key in 0..3000_u32 {
        engine.put(&table, &key.to_be_bytes(), &[7; 100], LATER).unwrap();
    }
    let used = || engine.buffer_manager().space().unwrap().numbers().len();
    engine.checkpoint().unwrap();
    assert!(used() > empty + 50);
    for round in 0..10_000 {
        scene.at(1010 + 100 * round);
        engine.maintain().unwrap();
        if used() <= empty + 8 {
            break;
        }
        engine.checkpoint().unwrap();
    }
    assert!(used() <= empty + 8, "{} pages, {empty} at first", used());
}

#[test]
fn a_clock_that_is_set_back_shows_what_was_not_taken_away() {
    let scene = Scene::new();
    let table = scene.engine().create_table("t").unwrap();
    scene.engine().put_with(&table, b"k", b"v", TEN, LATER).unwrap();
    scene.at(1010);
    assert!(scene.engine().get(&table, b"k").unwrap().is_none());
    scene.at(1009);
    assert!(scene.engine().get(&table, b"k").unwrap().is_some());
    scene.at(1010);
    assert_eq!(scene.engine().remove_expired().unwrap(), 1);
    scene.at(1009);
    assert!(scene.engine().get(&table, b"k").unwrap().is_none());
}

#[test]
fn what_is_renewed_while_the_expired_is_taken_away_stays() {
    let scene = Scene::new();
    let (engine, table) = (scene.engine(), scene.engine().create_table("t").unwrap());
    let ends = AtomicBool::new(false);
    for key in 0..100_u8 {
        engine.put_with(&table, &[key], b"old", TEN, LATER).unwrap();
    }
    scene.at(1010);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut taken = 0;
            while !ends.load(Ordering::Acquire) {
                taken += engine.remove_expired().unwrap();
            }
            taken
        });
        for key in (0..100_u8).rev() {
            engine.put(&table, &[key], b"new", LATER).unwrap();
            std::thread::yield_now();
        }
        ends.store(true, Ordering::Release);
        taking.join().unwrap()
    });
    assert_eq!(scene.keys(&table).len(), 100);
    scene.assert_sound();
}

#[test]
fn a_backup_keeps_times() {
    let scene = Scene::new();
    let time = Duration::from_millis(5);
    let table =
        scene.engine().create_table_with("t", TableStructure::default(), Some(time)).unwrap();
    scene.engine().put(&table, b"a", b"1", LATER).unwrap();
    scene.engine().put_with(&table, b"b", &[2; 9000], TEN, LATER).unwrap();
    scene.engine().put_with(&table, b"c", b"3", TimeToLive::Forever, LATER).unwrap();
    let mut backup = Vec::new();
    assert_eq!(scene.engine().backup(&mut backup).unwrap().entries, 3);
    let restored = Scene { rig: Rig::new(options(scene.now)), now: scene.now };
    restored.engine().restore(&*backup).unwrap();
    let restored = restored.after_power_cut();
    let table = restored.engine().table("t").unwrap();
    assert_eq!(table.time_to_live(), Some(time));
    assert_eq!(restored.keys(&table).len(), 3);
    restored.at(1005);
    assert_eq!(restored.keys(&table), [b"b", b"c"]);
    restored.at(1010);
    assert_eq!(restored.keys(&table), [b"c"]);
    assert_eq!(restored.engine().remove_expired().unwrap(), 2);
    restored.assert_sound();
    assert_eq!(scene.engine().backup(&mut Vec::new()).unwrap().entries, 1);
}
