//! Making and dropping tables.

use std::sync::Arc;

use lapis_device::ModelledSsd;
use lapis_engine::{Durability, Engine, EngineError, LeafLayout};
use lapis_pmem::{BlockDevice, Hardware};

use crate::harness::{HASHED, Rig, contents, settle, small, used_pages};

const NOW: Durability = Durability::Immediate;

#[test]
fn tables_are_there_after_a_power_cut_with_what_is_in_them() {
    let rig = Rig::new(small());
    for name in ["one", "two", "three"] {
        let table = rig.engine.create_table(name).unwrap();
        rig.engine.put(&table, name.as_bytes(), b"value", NOW).unwrap();
    }
    rig.engine.drop_table("two").unwrap();
    let rig = rig.after_power_cut();
    let names: Vec<_> = rig.engine.tables().iter().map(|table| table.name().to_owned()).collect();
    assert_eq!(names, ["one", "three"]);
    assert_eq!(contents(&rig.engine, "three"), [(b"three".to_vec(), b"value".to_vec())]);
}

#[test]
fn a_table_that_is_made_after_a_power_cut_is_no_other_after_the_next() {
    let mut rig = Rig::new(small());
    let names = ["one", "two", "three"];
    for name in names {
        let table = rig.engine.create_table(name).unwrap();
        rig.engine.put(&table, b"key", name.as_bytes(), NOW).unwrap();
        rig = rig.after_power_cut();
        for table in rig.engine.tables() {
            rig.engine.put(&table, b"more", table.name().as_bytes(), NOW).unwrap();
        }
    }
    let rig = rig.after_power_cut();
    for name in names {
        let value = name.as_bytes().to_vec();
        let expected = [(b"key".to_vec(), value.clone()), (b"more".to_vec(), value)];
        assert_eq!(contents(&rig.engine, name), expected);
    }
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_table_with_hashed_leaves_has_them_for_as_long_as_it_is_there() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table_with("t", HASHED, None).unwrap();
    let entries: Vec<_> =
        (0..3000_u32).map(|it| (it.to_be_bytes().to_vec(), vec![7; 60])).collect();
    for (key, value) in &entries {
        rig.engine.put(&table, key, value, Durability::Eventual).unwrap();
    }
    let mut load = rig.engine.begin_load("loaded", LeafLayout::Hashed).unwrap();
    entries.iter().for_each(|(key, value)| load.push(key, value).unwrap());
    load.finish().unwrap();
    let trees = rig.engine.statistics().trees;
    // What is loaded is hung in.
    assert!(trees.hashed_splits > 60 && trees.splits - trees.hashed_splits < 10, "{trees:?}");
    let rig = rig.after_power_cut();
    for name in ["t", "loaded"] {
        assert!(contents(&rig.engine, name) == entries);
        assert_eq!(rig.engine.table(name).unwrap().leaves(), Some(LeafLayout::Hashed));
    }
    let table = rig.engine.table("loaded").unwrap();
    for (key, _) in &entries {
        rig.engine.put(&table, &[&key[..], &[1]].concat(), &[7; 60], Durability::Eventual).unwrap();
    }
    for (key, _) in &entries {
        rig.engine.remove(&table, &[&key[..], &[1]].concat(), Durability::Eventual).unwrap();
        rig.engine.remove(&table, key, Durability::Eventual).unwrap();
    }
    let trees = rig.engine.statistics().trees;
    assert!(trees.hashed_splits > 20 && trees.hashed_merges > 20, "{trees:?}");
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    rig.engine.drop_table("loaded").unwrap();
    while rig.engine.maintain().unwrap() {}
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_name_is_of_one_table_and_may_be_used_again() {
    let rig = Rig::new(small());
    let old = rig.engine.create_table("t").unwrap();
    rig.engine.put(&old, b"a", b"old", NOW).unwrap();
    assert!(matches!(rig.engine.create_table("t"), Err(EngineError::TableExists { .. })));
    rig.engine.drop_table("t").unwrap();
    assert!(matches!(rig.engine.table("t"), Err(EngineError::NoSuchTable { .. })));
    rig.engine.create_table("t").unwrap();
    assert!(contents(&rig.engine, "t").is_empty());
    let refused = rig.engine.put(&old, b"a", b"", NOW);
    assert!(matches!(refused, Err(EngineError::Dropped { .. })));
    let rig = rig.after_power_cut();
    assert!(contents(&rig.engine, "t").is_empty());
}

#[test]
fn a_transaction_that_writes_to_a_dropped_table_is_refused() {
    let (rig, table) = Rig::with_table();
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"a", b"").unwrap();
    rig.engine.drop_table("t").unwrap();
    assert!(matches!(transaction.commit(NOW), Err(EngineError::Dropped { .. })));
}

#[test]
fn the_pages_of_a_dropped_table_are_used_again() {
    let rig = Rig::new(small());
    let used = || used_pages(&rig.engine);
    let mut after_first = 0;
    for round in 0..6 {
        let table = rig.engine.create_table("t").unwrap();
        for number in 0..2000_u32 {
            let value = [round; 100];
            rig.engine.put(&table, &number.to_be_bytes(), &value, Durability::Eventual).unwrap();
        }
        rig.engine.drop_table("t").unwrap();
        settle(&rig.engine);
        if round == 0 {
            after_first = used();
        }
    }
    assert!(used() <= after_first + 2, "{} pages, and {after_first} after the first", used());
}

#[test]
fn the_long_values_of_a_dropped_table_go_with_it_and_a_power_cut_on_the_way_leaves_nothing() {
    let (mut rig, table) = Rig::with_table();
    rig.engine.create_table("other").unwrap();
    for number in 0..300_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[7; 3000], Durability::Eventual).unwrap();
    }
    rig.engine.drop_table("t").unwrap();
    let mut cuts = 0;
    while rig.engine.maintain().unwrap() {
        rig.engine.sync().unwrap();
        cuts += 1;
        if cuts % 7 == 0 {
            rig = rig.after_power_cut();
        }
    }
    assert!(cuts > 50);
    rig.engine.checkpoint().unwrap();
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    let used = used_pages(&rig.engine);
    assert!(used < 10, "{used} pages");
}

#[test]
fn a_drop_that_a_power_cut_has_interrupted_half_way_is_sound_and_goes_on() {
    let (mut rig, table) = Rig::with_table();
    rig.engine.put(&table, b"long", &[7; 9000], Durability::Eventual).unwrap();
    for number in 0..8000_u32 {
        let key = number.to_be_bytes();
        rig.engine.put(&table, &key, &[7; 100], Durability::Eventual).unwrap();
    }
    rig.engine.drop_table("t").unwrap();
    let mut cuts = 0;
    while rig.engine.maintain().unwrap() {
        rig.engine.sync().unwrap();
        rig = rig.after_power_cut();
        assert_eq!(rig.engine.check(), Vec::<String>::new(), "after cut {cuts}");
        cuts += 1;
        assert!(cuts < 200, "the drop does not end");
    }
    assert!(cuts > 3, "only {cuts} cuts");
    rig.engine.checkpoint().unwrap();
    let used = used_pages(&rig.engine);
    assert!(used <= 8, "{used} pages");
}

/// All bytes of a device.
fn bytes_of(device: &ModelledSsd) -> Vec<u8> {
    let mut bytes = vec![0; device.capacity_blocks() as usize * 4096];
    device.read_blocks(0, &mut bytes).unwrap();
    bytes
}

/// Opens what there is wherever the log ends in what `work` adds to it, in steps of so many bytes, with the pages as they are
/// before. `look` is told how many steps of how many the log has of that.
fn at_each_end_of_the_log(
    rig: &Rig,
    step_bytes: usize,
    work: impl FnOnce(&Engine<Hardware>),
    look: impl Fn(&Rig, usize, usize),
) {
    let (pages, before) = (rig.pages.after_power_cut(), bytes_of(&rig.log));
    work(&rig.engine);
    rig.engine.sync().unwrap();
    let after = bytes_of(&rig.log);
    let starts = (0..before.len()).step_by(step_bytes);
    let changed: Vec<_> =
        starts.filter(|&at| before[at..][..step_bytes] != after[at..][..step_bytes]).collect();
    for kept in 0..=changed.len() {
        let mut bytes = after.clone();
        for &at in &changed[kept..] {
            bytes[at..at + step_bytes].copy_from_slice(&before[at..at + step_bytes]);
        }
        let log = rig.log.after_power_cut();
        log.write_blocks(0, &bytes).unwrap();
        log.flush().unwrap();
        let cut = Rig::over(Arc::new(pages.after_power_cut()), Arc::new(log), small());
        let problems = cut.engine.check();
        assert_eq!(problems, Vec::<String>::new(), "{kept} of {} steps", changed.len());
        look(&cut, kept, changed.len());
    }
}

#[test]
fn a_drop_is_sound_wherever_the_log_ends_behind_its_first_free_pages() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"long", &[7; 9000], Durability::Eventual).unwrap();
    for number in 0..8000_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[7; 100], Durability::Eventual).unwrap();
    }
    rig.engine.drop_table("t").unwrap();
    rig.engine.checkpoint().unwrap();
    let free_first = |engine: &Engine<_>| assert!(engine.maintain().unwrap());
    at_each_end_of_the_log(&rig, 512, free_first, |cut, kept, sectors| {
        assert!(sectors > 4, "only {sectors} sectors");
        settle(&cut.engine);
        let used = used_pages(&cut.engine);
        assert!(used <= 8, "{used} pages after {kept} sectors");
    });
}

/// The same in steps of words, of which a record has several, with all pages on the device: where `check` sees them.
fn nothing_is_lost_at_any_end_of_the_log(rig: &Rig, work: impl FnOnce(&Engine<Hardware>)) {
    at_each_end_of_the_log(rig, 8, work, |cut, kept, words| {
        assert!(words > 8, "only {words} words");
        cut.engine.checkpoint().unwrap();
        assert_eq!(cut.engine.check(), Vec::<String>::new(), "{kept} of {words} words");
    });
}

#[test]
fn no_root_is_lost_wherever_the_log_ends_while_a_table_is_made() {
    let rig = Rig::new(small());
    nothing_is_lost_at_any_end_of_the_log(&rig, |engine| _ = engine.create_table("t").unwrap());
}

#[test]
fn no_root_is_lost_wherever_the_log_ends_at_the_end_of_a_drop() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"key", b"value", NOW).unwrap();
    rig.engine.drop_table("t").unwrap();
    rig.engine.checkpoint().unwrap();
    nothing_is_lost_at_any_end_of_the_log(&rig, |engine| while engine.maintain().unwrap() {});
}
