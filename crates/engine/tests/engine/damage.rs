//! Bits that flip while nobody looks: what is damaged is said, and nothing comes out that never was.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_buffer::PageKind;
use lapis_engine::{Durability, KeyRange};
use lapis_pmem::{BLOCK_BYTES, BlockDevice};

use crate::harness::{Random, Rig, contents, open, small};

const NOW: Durability = Durability::Immediate;

fn filled() -> (Rig, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (rig, table) = Rig::with_table();
    for number in 0..800_u32 {
        let bytes = if number % 100 == 0 { 5000 } else { 120 };
        let value = vec![number as u8; bytes];
        rig.engine.put(&table, &number.to_be_bytes(), &value, Durability::Eventual).unwrap();
    }
    rig.engine.sync().unwrap();
    let expected = contents(&rig.engine, "t").into_iter().collect();
    (rig, expected)
}

#[test]
fn pages_that_no_tree_has_are_told() {
    let (rig, _) = filled();
    for _ in 0..2 {
        drop(rig.engine.buffer_manager().allocate_page(PageKind(16), |_| 0).unwrap());
    }
    rig.engine.checkpoint().unwrap();
    assert_eq!(rig.engine.check(), ["2 pages are in use, and in no tree"]);
}

/// How often each outcome came, of as many stores each with flipped bits in one block of one device.
#[derive(Debug, Default)]
struct Outcomes {
    refused: u32,
    read_in_part: u32,
    read_whole: u32,
    found_by_check: u32,
}

fn flip(closed: bool, of_log: bool, times: u64) -> Outcomes {
    let (rig, expected) = filled();
    if closed {
        rig.engine.close().unwrap();
    }
    let mut outcomes = Outcomes::default();
    for seed in 0..times {
        let (pages, log) =
            (Arc::new(rig.pages.after_power_cut()), Arc::new(rig.log.after_power_cut()));
        let mut random = Random::new(seed + 1);
        let device = if of_log { &log } else { &pages };
        device.rot(random.below(device.capacity_blocks()), 1 + random.below(3) as u32, seed);
        let Ok(engine) = open(&pages, &log, &small()) else {
            outcomes.refused += 1;
            continue;
        };
        let table = match engine.table("t") {
            Ok(table) => table,
            Err(_) => panic!("the table is gone without a word"),
        };
        let mut failed = false;
        for (key, value) in &expected {
            match engine.get(&table, key) {
                Ok(Some(found)) => assert!(found == *value, "a value that never was"),
                Ok(None) => panic!("an entry is gone without a word"),
                Err(_) => failed = true,
            }
        }
        let snapshot = engine.snapshot().unwrap();
        let mut scan = snapshot.scan(&table, KeyRange::all()).unwrap();
        let scanned: Result<Vec<_>, _> = scan.by_ref().collect();
        assert!(scanned.is_err() || scanned.unwrap().into_iter().eq(expected.clone()));
        outcomes.found_by_check += u32::from(!engine.check().is_empty());
        match failed {
            true => outcomes.read_in_part += 1,
            false => outcomes.read_whole += 1,
        }
        // It can be written to, or says why not.
        let _ = engine.put(&table, b"another", b"value", NOW);
    }
    println!("closed {closed}, of the log {of_log}: {outcomes:?}");
    outcomes
}

#[test]
fn flipped_bits_in_pages_of_a_closed_store_are_found_and_cost_what_they_hit() {
    let outcomes = flip(true, false, 400);
    assert!(outcomes.read_in_part > 20 && outcomes.found_by_check >= outcomes.read_in_part);
}

#[test]
fn flipped_bits_in_pages_after_a_crash_are_found_or_repaired_from_the_log() {
    let outcomes = flip(false, false, 300);
    assert!(outcomes.read_whole > 20);
}

#[test]
fn flipped_bits_in_the_log_of_a_closed_store_harm_nobody() {
    let outcomes = flip(true, true, 150);
    assert!(outcomes.read_whole > 100);
    assert_eq!(outcomes.read_in_part, 0);
}

#[test]
fn flipped_bits_in_the_log_that_is_needed_are_refused_or_are_not_needed() {
    let outcomes = flip(false, true, 150);
    assert!(outcomes.refused > 10 && outcomes.read_in_part == 0, "{outcomes:?}");
}

#[test]
fn pages_of_a_dropped_table_that_rot_keep_no_store_from_opening() {
    let mut options = small();
    (options.buffer.frames, options.buffer.most_changed_frames) = (512, 256);
    let rig = Rig::new(options);
    let fill = |rig: &Rig, numbers: &mut dyn Iterator<Item = u32>| {
        let table = rig.engine.table("t").unwrap();
        for number in numbers {
            let key = number.to_be_bytes();
            rig.engine.put(&table, &key, &[7; 120], Durability::Eventual).unwrap();
        }
        rig.engine.sync().unwrap();
    };
    rig.engine.create_table("t").unwrap();
    fill(&rig, &mut (0..1600).step_by(2));
    rig.engine.close().unwrap();
    let rig = rig.opened_again();
    // The leaves that the device has are cut.
    fill(&rig, &mut (1..1600).step_by(2));
    let opened_rotten = || {
        let (pages, log) =
            (Arc::new(rig.pages.after_power_cut()), Arc::new(rig.log.after_power_cut()));
        let mut page = [0; BLOCK_BYTES];
        for block in 0..pages.capacity_blocks() {
            pages.read_blocks(block, &mut page).unwrap();
            // Those of trees, but for the first two: these are the catalog, and the chunks of long values.
            let number = u64::from_le_bytes(*page[8..].first_chunk().unwrap());
            if [16, 17].contains(&page[5]) && number > 2 {
                pages.rot(block, 1, number);
            }
        }
        open(&pages, &log, &options)
    };
    assert!(opened_rotten().unwrap_err().to_string().contains("checksum"));
    rig.engine.drop_table("t").unwrap();
    while rig.engine.maintain().unwrap() {}
    rig.engine.sync().unwrap();
    let engine = opened_rotten().unwrap();
    assert!(engine.table("t").is_err());
    assert!(engine.check().is_empty(), "{:?}", engine.check());
}
