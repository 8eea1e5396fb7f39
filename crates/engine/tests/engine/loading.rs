//! Tables that are made of entries in order.

use lapis_engine::{Durability, EngineError, LeafLayout};

use crate::harness::{Rig, contents, open, settle, small, used_pages};

const NOW: Durability = Durability::Immediate;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entries(count: u32) -> Entries {
    let value =
        |number: u32| vec![number as u8; if number.is_multiple_of(50) { 4000 } else { 100 }];
    (0..count).map(|number| (number.to_be_bytes().to_vec(), value(number))).collect()
}

#[test]
fn a_loaded_table_has_its_entries_and_goes_on_as_others_do() {
    let rig = Rig::new(small());
    let loaded = entries(3000);
    let table = rig.engine.load_table("t", loaded.clone()).unwrap();
    assert!(contents(&rig.engine, "t") == loaded);
    rig.engine.remove(&table, &loaded[50].0, NOW).unwrap();
    rig.engine.put(&table, &loaded[51].0, b"another", NOW).unwrap();
    while rig.engine.maintain().unwrap() {}
    let expected = contents(&rig.engine, "t");
    let rig = rig.after_power_cut();
    assert!(contents(&rig.engine, "t") == expected);
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_load_is_longer_than_the_log() {
    let rig = Rig::new(small());
    let loaded = entries(30_000);
    rig.engine.load_table("t", loaded.iter().map(|(key, value)| (key, value))).unwrap();
    assert!(rig.engine.log().end().number() > 2 * rig.engine.log().capacity_bytes());
    let rig = rig.after_power_cut();
    assert!(contents(&rig.engine, "t") == loaded);
}

#[test]
fn a_load_that_fails_leaves_no_table_and_no_page() {
    let rig = Rig::new(small());
    rig.engine.load_table("first", entries(10)).unwrap();
    let used = || used_pages(&rig.engine);
    settle(&rig.engine);
    let before = used();
    let mut disordered = entries(1000);
    disordered.push((vec![0], vec![]));
    assert!(matches!(rig.engine.load_table("t", disordered), Err(EngineError::Tree(_))));
    let mut long = entries(1000);
    long.push((vec![0xFF; 5000], vec![]));
    assert!(matches!(rig.engine.load_table("t", long), Err(EngineError::KeyTooLong { .. })));
    assert!(matches!(rig.engine.table("t"), Err(EngineError::NoSuchTable { .. })));
    // Somebody panics, say.
    let mut load = rig.engine.begin_load("t", LeafLayout::Sorted).unwrap();
    entries(500).iter().for_each(|(key, value)| load.push(key, value).unwrap());
    drop(load);
    let taken = rig.engine.load_table("first", entries(1));
    assert!(matches!(taken, Err(EngineError::TableExists { .. })));
    assert!(used() > before + 30);
    settle(&rig.engine);
    assert!(used() <= before + 2, "{} of {before}", used());
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_load_that_refused_an_entry_takes_no_more_and_makes_no_table() {
    let rig = Rig::new(small());
    let used = || used_pages(&rig.engine);
    settle(&rig.engine);
    let before = used();
    let longer = rig.engine.load_table("longer", entries(1)).unwrap().largest_key_bytes() + 1;
    rig.engine.drop_table("longer").unwrap();
    // The second one has a long value, whose chunks are written before its key is looked at.
    let refused = [(vec![0; longer], 1), (vec![0], 50_000)];
    for (at, (key, bytes)) in refused.into_iter().enumerate() {
        let mut load = rig.engine.begin_load("t", LeafLayout::Sorted).unwrap();
        entries(100).iter().for_each(|(key, value)| load.push(key, value).unwrap());
        let error = load.push(&key, &vec![7; bytes]).unwrap_err();
        let is_right = match error {
            EngineError::KeyTooLong { .. } => at == 0,
            EngineError::Tree(_) => at == 1,
            _ => false,
        };
        assert!(is_right, "{error:?}");
        let error = load.push(&[0xFF], &[]).unwrap_err();
        assert!(matches!(error, EngineError::LoadFailed), "{error:?}");
        let error = load.finish().unwrap_err();
        assert!(matches!(error, EngineError::LoadFailed), "{error:?}");
        assert!(matches!(rig.engine.table("t"), Err(EngineError::NoSuchTable { .. })));
    }
    settle(&rig.engine);
    assert!(used() <= before + 2, "{} of {before}", used());
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_power_cut_during_a_load_leaves_all_of_it_or_nothing_at_all() {
    let loaded = entries(1200);
    let whole = Rig::new(small());
    while whole.engine.maintain().unwrap() {}
    let empty = used_pages(&whole.engine);
    for cut_at in [0, 1, 60, 400, 1199] {
        let rig = Rig::new(small());
        let mut left = None;
        let watched = loaded.iter().enumerate().map(|(at, (key, value))| {
            if at == cut_at {
                rig.engine.sync().unwrap();
                left = Some((rig.pages.after_power_cut(), rig.log.after_power_cut()));
            }
            (key, value)
        });
        rig.engine.load_table("t", watched).unwrap();
        let (pages, log) = left.unwrap();
        let engine = open(&pages.into(), &log.into(), &small()).unwrap();
        assert!(engine.tables().is_empty());
        settle(&engine);
        assert_eq!(engine.check(), Vec::<String>::new());
        let used = used_pages(&engine);
        assert!(used <= empty + 2, "{used} of {empty}, cut at {cut_at}");
    }
}
