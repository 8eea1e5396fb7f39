//! What can be read of damaged devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_blocks::block_log::Recovery;
use lapis_buffer::SpaceOptions;
use lapis_device::{BlockDamage, ModelledSsd};
use lapis_engine::{
    Durability, EngineOptions, Lost, SalvageReport, SalvagedTable, Storage, salvage,
};
use lapis_pmem::{BLOCK_BYTES, BlockDevice};

use crate::harness::{HASHED, Random, Rig, hardware, open, settle, small};

const NOW: Durability = Durability::Immediate;
const LATER: Durability = Durability::Eventual;

type Key = (String, Vec<u8>);
/// The last value that each key had, and all that it ever had.
type Written = BTreeMap<Key, (Option<Vec<u8>>, BTreeSet<Vec<u8>>)>;

/// Two tables, the leaves of one hashed, written to in several rounds; the last one is in the log alone.
fn filled(closed: bool) -> (Rig, Written) {
    let (rig, written) = filled_with(small());
    if closed {
        rig.engine.close().unwrap();
    }
    (rig, written)
}

fn filled_with(options: EngineOptions) -> (Rig, Written) {
    let rig = Rig::new(options);
    let (mut written, mut random) = (Written::new(), Random::new(5));
    rig.engine.create_table("one").unwrap();
    rig.engine.create_table_with("two", HASHED, None).unwrap();
    for round in 0..3_u32 {
        for _ in 0..500 {
            let name = ["one", "two"][random.below(2) as usize];
            let table = rig.engine.table(name).unwrap();
            let key = (random.below(700) as u32).to_be_bytes();
            let of = written.entry((name.to_owned(), key.to_vec())).or_default();
            if random.below(6) == 0 {
                rig.engine.remove(&table, &key, LATER).unwrap();
                of.0 = None;
                continue;
            }
            let bytes = if random.below(40) == 0 { 3000 } else { 40 + random.below(80) as usize };
            let value = [&round.to_le_bytes()[..], &vec![key[3]; bytes]].concat();
            rig.engine.put(&table, &key, &value, LATER).unwrap();
            of.0 = Some(value.clone());
            of.1.insert(value);
        }
        if round < 2 {
            settle(&rig.engine);
        }
    }
    rig.engine.sync().unwrap();
    (rig, written)
}

type Found = BTreeMap<(SalvagedTable, Vec<u8>), Vec<u8>>;

fn salvaged(pages: &Arc<ModelledSsd>, log: &Arc<ModelledSsd>) -> (Found, SalvageReport) {
    let mut found = Found::new();
    let mut tell = |table: &SalvagedTable, key: &[u8], value: &[u8]| {
        let other = found.insert((table.clone(), key.to_vec()), value.to_vec());
        assert!(other.is_none(), "a key comes twice");
        ControlFlow::Continue(())
    };
    let (pages, log) = (Arc::clone(pages) as Arc<dyn BlockDevice>, Arc::clone(log) as _);
    let report = salvage(hardware(), &Storage::ssd(pages, log), &mut tell);
    assert_eq!(report.entries, found.len() as u64);
    (found, report)
}

fn devices(rig: &Rig) -> (Arc<ModelledSsd>, Arc<ModelledSsd>) {
    (Arc::new(rig.pages.after_power_cut()), Arc::new(rig.log.after_power_cut()))
}

/// Every value is one that the key had (G1). Returns how many keys are missing or have an older one.
fn check_values(found: &Found, written: &Written) -> (usize, usize) {
    for ((table, key), value) in found {
        let mut of = written.iter().filter(|((name, of), _)| {
            of == key && !matches!(table, SalvagedTable::Named(table) if table != name)
        });
        assert!(of.any(|(_, (_, all))| all.contains(value)), "{table}: a value that never was");
    }
    let (mut missing, mut older) = (0, 0);
    for ((name, key), (last, _)) in written {
        match (last, found.get(&(SalvagedTable::Named(name.clone()), key.clone()))) {
            (Some(last), Some(found)) if found != last => older += 1,
            (None, Some(_)) => older += 1,
            (Some(_), None) => missing += 1,
            _ => {}
        }
    }
    (missing, older)
}

#[test]
fn of_whole_devices_everything_is_read_and_nothing_is_written() {
    for closed in [true, false] {
        let (rig, written) = filled(closed);
        let (pages, log) = devices(&rig);
        let (found, report) = salvaged(&pages, &log);
        assert_eq!(report.lost, []);
        assert_eq!(check_values(&found, &written), (0, 0));
        assert_eq!((pages.counts().writes, log.counts().writes), (0, 0));
        assert!(open(&pages, &log, &small()).is_ok());
    }
}

#[test]
fn a_record_of_a_page_that_was_never_given_out_is_refused_and_costs_nothing() {
    const STRUCTURE: u8 = 1;
    const MAKE: u8 = 1;
    let (rig, written) = filled(false);
    let (pages, log) = devices(&rig);
    let mut recovery = Recovery::begin(hardware(), Arc::clone(&log) as _).unwrap();
    let mut made = Vec::new();
    while let Some(record) = recovery.next_record().unwrap() {
        // Behind the number of the format comes what becomes of a page, and which.
        if record.kind == STRUCTURE && record.payload[1] == MAKE {
            made = record.payload.to_vec();
        }
    }
    made[2..10].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let appended = recovery.finish().unwrap();
    appended.append(STRUCTURE, &[&made]).unwrap();
    appended.sync().unwrap();
    drop(appended);
    let (found, report) = salvaged(&pages, &log);
    assert_eq!(report.lost, []);
    assert_eq!(check_values(&found, &written), (0, 0));
    let refused = open(&pages, &log, &small()).unwrap_err().to_string();
    assert!(refused.contains(&format!("page {} lies far behind", 1_u64 << 40)), "{refused}");
}

#[test]
fn it_stops_when_it_is_told_to() {
    let (rig, _) = filled(true);
    let mut told = 0;
    let mut tell = |_: &SalvagedTable, _: &[u8], _: &[u8]| {
        told += 1;
        if told == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let report = salvage(hardware(), &Storage::ssd(rig.pages.clone(), rig.log.clone()), &mut tell);
    assert_eq!((told, report.entries, report.stopped), (10, 10, true));
}

/// What came of so many stores, in each of which some bits of some blocks were flipped.
#[derive(Debug, Default)]
struct Outcomes {
    nothing_lost: u32,
    missing: usize,
    older: usize,
    nameless: usize,
}

fn flipped(closed: bool, of_log: bool, stores: u64) -> Outcomes {
    let (rig, written) = filled(closed);
    let mut outcomes = Outcomes::default();
    for seed in 1..=stores {
        let (pages, log) = devices(&rig);
        let mut random = Random::new(seed);
        let device = if of_log { &log } else { &pages };
        for block in 0..=random.below(3) {
            let at = random.below(device.capacity_blocks());
            device.rot(at, 1 + random.below(3) as u32, seed + block);
        }
        let (found, report) = salvaged(&pages, &log);
        let (missing, older) = check_values(&found, &written);
        assert!(missing + older == 0 || !report.lost.is_empty(), "lost without a word");
        if !of_log {
            let all: Vec<_> = report.lost.iter().filter(|lost| lost.table.is_none()).collect();
            assert!(older == 0 || !all.is_empty(), "older without a word: {:?}", report.lost);
        }
        outcomes.nothing_lost += u32::from(missing + older == 0);
        outcomes.missing += missing;
        outcomes.older += older;
        let is_nameless =
            |(table, _): &&(SalvagedTable, Vec<u8>)| !matches!(table, SalvagedTable::Named(_));
        outcomes.nameless += found.keys().filter(is_nameless).count();
    }
    println!("closed {closed}, of the log {of_log}: {outcomes:?}");
    outcomes
}

#[test]
fn flipped_bits_in_pages_cost_the_leaves_that_they_hit() {
    let outcomes = flipped(true, false, 300);
    assert!(outcomes.nothing_lost > 50 && outcomes.missing > 100, "{outcomes:?}");
}

#[test]
fn flipped_bits_in_pages_cost_less_while_the_log_has_what_they_had() {
    let outcomes = flipped(false, false, 200);
    assert!(outcomes.nothing_lost > 50, "{outcomes:?}");
}

#[test]
fn flipped_bits_in_the_log_of_a_closed_store_cost_nothing() {
    let outcomes = flipped(true, true, 100);
    assert_eq!((outcomes.missing, outcomes.older), (0, 0), "{outcomes:?}");
}

#[test]
fn flipped_bits_in_the_log_cost_what_came_behind_them() {
    let outcomes = flipped(false, true, 200);
    assert!(outcomes.older > 0, "{outcomes:?}");
}

/// Overwrites the page that these keys are in, or another one that is chosen by what it says of itself.
fn overwrite(pages: &ModelledSsd, of: impl Fn(&[u8]) -> bool) -> usize {
    let mut block = vec![0; BLOCK_BYTES];
    let mut overwritten = 0;
    for at in 0..pages.capacity_blocks() {
        pages.read_blocks(at, &mut block).unwrap();
        if block.starts_with(b"LPAG") && of(&block) {
            pages.write_blocks(at, &vec![0xEE; BLOCK_BYTES]).unwrap();
            overwritten += 1;
        }
    }
    overwritten
}

fn kind_of(page: &[u8]) -> u8 {
    page[5]
}

fn number_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[8..16].try_into().unwrap())
}

#[test]
fn without_any_inner_page_all_entries_are_found_under_their_tables() {
    let (rig, written) = filled(true);
    let (pages, log) = devices(&rig);
    assert!(overwrite(&pages, |page| kind_of(page) == 17) > 1);
    let (found, report) = salvaged(&pages, &log);
    assert_eq!(check_values(&found, &written), (0, 0));
    assert!(report.lost.iter().all(|lost| lost.keys.is_none()), "{:?}", report.lost);
    assert!(!report.lost.is_empty());
}

#[test]
fn without_the_catalog_all_entries_are_found_and_no_names() {
    let (rig, written) = filled(true);
    let (pages, log) = devices(&rig);
    overwrite(&pages, |page| kind_of(page) == 16 && number_of(page) == 1);
    let (found, report) = salvaged(&pages, &log);
    assert!(!report.lost.is_empty());
    let values = written.values().filter(|(last, _)| last.is_some()).count();
    assert_eq!(found.len(), values);
    check_values(&found, &written);
    let tables: BTreeSet<_> = found.keys().map(|(table, _)| table).collect();
    assert_eq!(tables.len(), 2);
    assert!(tables.iter().all(|table| matches!(table, SalvagedTable::Nameless(_))));
}

#[test]
fn without_superblock_journal_and_maps_all_entries_are_found() {
    let (rig, written) = filled(true);
    let (pages, log) = devices(&rig);
    assert!(overwrite(&pages, |page| kind_of(page) < 16) >= 3);
    let (found, report) = salvaged(&pages, &log);
    let (missing, _) = check_values(&found, &written);
    assert_eq!(missing, 0);
    assert!(report.lost.iter().any(|lost| lost.why.contains("in use")), "{:?}", report.lost);
}

/// Pages of a batch.
const BATCH_PAGES: usize = 8;

/// How a store came to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    /// All that was written is on the medium.
    Killed,
    /// What was written last is in the journal and not in place, and the log does not have it any more.
    PowerCut,
}

/// What is lost when one block cannot be read, which is in one of these pages of the device: keys that are missing, those with
/// an older value, and what the salvage says of it.
fn lost_without_blocks(
    page_bytes: usize,
    end: End,
    of_pages: impl Iterator<Item = usize>,
) -> Vec<(usize, usize, Vec<Lost>)> {
    let mut options = small();
    options.buffer.space = SpaceOptions { page_bytes, batch_pages: BATCH_PAGES };
    let (rig, written) = filled_with(options);
    match end {
        End::Closed => rig.engine.close().unwrap(),
        End::Killed => rig.pages.flush().unwrap(),
        End::PowerCut => rig.engine.checkpoint().unwrap(),
    }
    let page_blocks = page_bytes / BLOCK_BYTES;
    let blocks = of_pages.flat_map(|page| page * page_blocks..(page + 1) * page_blocks);
    let lost = blocks.map(|block| {
        let (pages, log) = devices(&rig);
        pages.damage_block(block as u64, BlockDamage::UntilWritten);
        let (found, report) = salvaged(&pages, &log);
        let (missing, older) = check_values(&found, &written);
        (missing, older, report.lost)
    });
    lost.collect()
}

#[test]
fn no_block_of_superblock_journal_and_map_that_cannot_be_read_costs_an_entry() {
    for page_bytes in [4096, 8192, 16384] {
        for end in [End::Closed, End::Killed] {
            let all = 0..=2 * (1 + BATCH_PAGES) + 1;
            for (block, lost) in lost_without_blocks(page_bytes, end, all).iter().enumerate() {
                assert_eq!((lost.0, lost.1), (0, 0), "{page_bytes}, {end:?}, {block}: {lost:?}");
            }
        }
    }
}

#[test]
fn copies_in_the_journal_are_found_without_their_descriptor() {
    let descriptors = [1, 2 + BATCH_PAGES];
    for page_bytes in [4096, 8192, 16384] {
        let end = End::PowerCut;
        for lost in lost_without_blocks(page_bytes, end, descriptors.into_iter()) {
            assert_eq!((lost.0, lost.1), (0, 0), "{page_bytes}: {lost:?}");
        }
    }
}

#[test]
fn a_copy_in_the_journal_that_was_all_there_was_of_a_page_costs_that_page() {
    let copies = 2 + BATCH_PAGES + 1..=1 + 2 * (1 + BATCH_PAGES) - 1;
    let mut missing = 0;
    for lost in lost_without_blocks(4096, End::PowerCut, copies) {
        assert!(lost.0 + lost.1 < 50, "{lost:?}");
        assert!(lost.0 + lost.1 == 0 || !lost.2.is_empty(), "lost without a word");
        missing += lost.0;
    }
    assert!(missing > 0);
}

#[test]
fn a_lost_leaf_is_named_by_its_table_its_keys_and_its_page() {
    let (rig, written) = filled(true);
    let (pages, log) = devices(&rig);
    let (before, _) = salvaged(&pages, &log);
    // A leaf of the table "two", in the middle of its keys.
    let table = SalvagedTable::Named("two".to_owned());
    let value = &before[&(
        table.clone(),
        before.keys().filter(|(of, _)| *of == table).nth(100).unwrap().1.clone(),
    )];
    let has = |page: &[u8]| kind_of(page) == 16 && page.windows(value.len()).any(|it| it == value);
    assert!(overwrite(&pages, has) > 0);
    let (found, report) = salvaged(&pages, &log);
    let lost: Vec<_> = report.lost.iter().filter(|lost| lost.keys.is_some()).collect();
    assert!(!lost.is_empty());
    let (missing, older) = check_values(&found, &written);
    assert!(missing > 5 && older == 0, "{missing}");
    for key in before.keys().filter(|key| !found.contains_key(key)) {
        let names_it = |lost: &&&Lost| {
            lost.table.as_ref() == Some(&key.0)
                && lost.page.is_some()
                && lost.keys.as_ref().is_some_and(|keys| keys.contains(&key.1))
        };
        assert!(lost.iter().any(|lost| names_it(&lost)), "{key:?} in none of {lost:?}");
    }
}

#[test]
fn devices_that_hold_anything_are_read_without_a_panic() {
    let (rig, _) = filled(true);
    for seed in 1..40_u64 {
        let (pages, log) = devices(&rig);
        let mut random = Random::new(seed);
        for device in [&pages, &log] {
            for _ in 0..1 + random.below(200) {
                let (at, bytes) = (random.below(device.capacity_blocks()), random.below(256) as u8);
                device.write_blocks(at, &vec![bytes; BLOCK_BYTES]).unwrap();
            }
        }
        salvaged(&pages, &log);
    }
    let empty = Arc::new(ModelledSsd::new(8, lapis_device::SsdConfig::default()).unwrap());
    let (found, report) = salvaged(&empty, &empty);
    assert!(found.is_empty() && report.lost.len() >= 2);
}

#[test]
fn a_page_whose_contents_the_log_has_whole_is_made_again_by_opening() {
    let (rig, table) = Rig::with_table();
    for number in 0..60_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[7; 100], NOW).unwrap();
    }
    rig.engine.buffer_manager().write_all().unwrap();
    let (pages, log) = devices(&rig);
    // Leaves that splits have made: the log was never cut.
    assert!(overwrite(&pages, |page| kind_of(page) == 16 && number_of(page) > 3) > 0);
    let engine = open(&pages, &log, &small()).unwrap();
    assert_eq!(crate::harness::contents(&engine, "t").len(), 60);
    assert_eq!(engine.check(), Vec::<String>::new());
}
