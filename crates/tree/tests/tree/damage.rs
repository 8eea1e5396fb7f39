//! Pages whose checksums are right and whose contents are not: everything is an answer or an error, and
//! everything ends.

use core::ops::Bound;
use std::sync::Arc;

use lapis_buffer::page::PAGE_HEADER_BYTES;
use lapis_buffer::{BufferManager, LogError, NoLog, PageKind};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::Hardware;
use lapis_tree::{Finding, NoStructureLog, StructureLog, Tree, TreeError, redo};
use parking_lot::Mutex;

use crate::{LAYOUTS, Random, hardware, options, pool};

type Damaged = Tree<Hardware, NoStructureLog>;

const RECORDS: u64 = 600;

fn key(number: u64) -> Vec<u8> {
    match number % 3 {
        0 => [&[b'k'; 60][..], &number.to_be_bytes()].concat(),
        _ => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
    }
}

/// A tree on a device, some bytes of which are something else.
fn damaged_tree(random: &mut Random) -> Damaged {
    let device = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let made = BufferManager::create(hardware(), device.clone(), Arc::new(NoLog), &options(24));
    let manager = Arc::new(made.unwrap());
    let leaves = LAYOUTS[random.below(2) as usize];
    let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
    for number in 0..RECORDS {
        tree.put(&key(number), &[7; 60], 0, None).unwrap();
    }
    let root = tree.root();
    manager.write_all().unwrap();
    let numbers = manager.space().unwrap().numbers();
    for _ in 0..1 + random.below(4) {
        let number = match random.below(4) {
            0 => root,
            _ => numbers[random.below(numbers.len() as u64) as usize],
        };
        let mut page = manager.fix_exclusive(number).unwrap();
        page.unswizzle_all();
        let mut page = page.write(0);
        // The node's header, or where slots and references are, or anywhere.
        let bytes = [16, 600, 4096 - PAGE_HEADER_BYTES as u64][random.below(3) as usize];
        let at = PAGE_HEADER_BYTES + random.below(bytes) as usize;
        match random.below(3) {
            0 => page.set_byte(at, random.next() as u8),
            1 => page.set_byte(at, [0, 0xff][random.below(2) as usize]),
            _ => page.set_word(at & !7, random.next() >> random.below(64)),
        }
    }
    manager.close().unwrap();
    let opened = BufferManager::open(hardware(), device, Arc::new(NoLog), &options(24)).unwrap();
    Tree::open(Arc::new(opened), NoStructureLog, root)
}

/// All that can be done to a tree. Whether something was found wrong.
fn use_all(tree: &Damaged, random: &mut Random) -> bool {
    let mut problems = 0;
    tree.check(&mut |finding| problems += u64::from(matches!(finding, Finding::Problem { .. })));
    let mut value = Vec::new();
    let mut errors: Vec<TreeError> = Vec::new();
    for _ in 0..100 {
        let key = key(random.below(2 * RECORDS));
        errors.extend(tree.get(&key, &mut value).err());
        let bytes = random.below(400) as usize;
        errors.extend(tree.put(&key, &vec![1; bytes], 0, None).err());
        let mut cursor = tree.cursor();
        errors.extend(cursor.seek(Bound::Included(&key)).err());
        errors.extend((0..60).find_map(|_| cursor.next().err()));
        errors.extend((0..90).find_map(|_| cursor.prev().err()));
        let other = self::key(random.below(RECORDS));
        errors.extend(tree.remove(&other, 0, None).err());
    }
    for number in 0..RECORDS {
        errors.extend(tree.remove(&key(number), 0, None).err());
    }
    tree.check(&mut |finding| problems += u64::from(matches!(finding, Finding::Problem { .. })));
    let freed = (0..500).map(|_| tree.free_pages(10)).find(|freed| !matches!(freed, Ok(false)));
    errors.extend(freed.and_then(Result::err));
    errors.extend(tree.free_rest().err());
    problems > 0 || !errors.is_empty()
}

#[test]
fn damaged_pages_are_answered_or_refused_and_nothing_panics_or_goes_on_for_ever() {
    let mut found = 0;
    for seed in 0..150 {
        let mut random = Random(seed);
        let tree = damaged_tree(&mut random);
        found += u64::from(use_all(&tree, &mut random));
    }
    println!("{found} of 150 are found");
    // What lies in free space, or is a byte of a value, is nobody's.
    assert!(found > 75, "{found}");
}

#[test]
fn a_page_of_another_kind_where_the_root_should_be_is_named() {
    let manager = pool(8);
    let other = manager.allocate_page(PageKind(99), |_| 0).unwrap();
    let number = other.number();
    drop(other);
    let tree = Tree::open(manager, NoStructureLog, number);
    let mut named = None;
    tree.check(&mut |finding| {
        if let Finding::Problem { page, .. } = finding {
            named = Some(page);
        }
    });
    assert_eq!(named, Some(number));
}

/// A log that keeps what it is given.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Vec<u8>>>);

impl StructureLog for Kept {
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError> {
        let mut records = self.0.lock();
        records.push(parts.concat());
        Ok(records.len() as u64)
    }
}

#[test]
fn records_that_make_no_sense_are_refused_and_nothing_panics() {
    let log = Arc::new(Kept::default());
    let tree = Tree::create(pool(24), Arc::clone(&log)).unwrap();
    for number in 0..RECORDS {
        tree.put(&key(number), &[7; 60], 0, None).unwrap();
    }
    for number in 0..RECORDS {
        tree.remove(&key(number), 0, None).unwrap();
    }
    let records = log.0.lock().clone();
    let (mut random, mut refused) = (Random(1), 0);
    for _ in 0..40 {
        let manager = pool(24);
        for (record, lsn) in records.iter().zip(1..) {
            let mut record = record.clone();
            for _ in 0..random.below(3) {
                let at = random.below(record.len().min(100) as u64) as usize;
                match random.below(8) {
                    0 => record.truncate(at),
                    _ => record[at] = random.next() as u8,
                }
                if record.is_empty() {
                    break;
                }
            }
            // A number far away would have the device grow to there.
            let is_near = record.get(2..10).is_none_or(|number| number[3..] == [0; 5]);
            refused += u64::from(is_near && redo(&manager, &record, lsn).is_err());
        }
        Tree::open(manager, NoStructureLog, tree.root()).check(&mut |_| ());
    }
    assert!(refused > 100, "{refused}");
}
