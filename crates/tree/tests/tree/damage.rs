//! Pages whose checksums are right and whose contents are not: everything is an answer or an error, and
//! everything ends.

use core::ops::Bound;
use std::sync::Arc;

use lapis_buffer::page::PAGE_HEADER_BYTES;
use lapis_buffer::{BufferError, BufferManager, LogError, NoLog, PageKind, PageNumber, SpaceError};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, Hardware};
use lapis_tree::{
    CompactionPlace, Entry, Finding, LeafCopy, NoStructureLog, Redo, StructureLog, Tree, TreeError,
};
use parking_lot::Mutex;

use crate::model::forwards;
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
        let (manager, mut redo) = (pool(24), Redo::default());
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
            refused += u64::from(is_near && redo.record(&manager, &record, lsn).is_err());
        }
        Tree::open(manager, NoStructureLog, tree.root()).check(&mut |_| ());
    }
    assert!(refused > 100, "{refused}");
}

/// Keys that are answered to be not there.
fn lost<'k, L: StructureLog>(
    tree: &Tree<Hardware, L>,
    keys: impl Iterator<Item = &'k Vec<u8>>,
) -> usize {
    keys.filter(|key| matches!(tree.get(key, &mut Vec::new()), Ok(false))).count()
}

#[test]
fn a_split_that_the_node_above_cannot_take_loses_no_key() {
    for leaves in LAYOUTS {
        let manager = pool(64);
        let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
        let root = || manager.fix_exclusive(tree.root()).unwrap();
        let mut there = Vec::new();
        let refused = loop {
            let key = [&[b'k'; 60][..], &Random(there.len() as u64).next().to_be_bytes()].concat();
            // The root says that it has room, which it has not.
            if tree.statistics().growths > 0 {
                root().write(0).set_quarter(36, 2000);
            }
            if let Err(error) = tree.put(&key, &[7; 60], 0, None) {
                break error;
            }
            there.push(key);
        };
        assert!(matches!(refused, TreeError::Damaged { page, .. } if page == tree.root()));
        assert!(there.len() > 300, "{refused} after {}", there.len());
        assert_eq!(lost(&tree, there.iter()), 0, "of {}: {refused}", there.len());
        let read = |key: &&Vec<u8>| matches!(tree.get(key, &mut Vec::new()), Ok(true));
        assert_eq!(there.iter().filter(read).count(), there.len());
        // The page that was to be the right one is nobody's again.
        let used = manager.space().unwrap().used_pages();
        assert_eq!(used, 2 + tree.statistics().splits);
    }
}

#[test]
fn a_page_that_was_moved_stays_where_it_is_though_its_old_place_cannot_be_freed() {
    let manager = pool(64);
    let low = manager.allocate_page(PageKind(99), |_| 0).unwrap();
    let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
    let keys: Vec<_> = (0..RECORDS).map(key).collect();
    keys.iter().for_each(|key| tree.put(key, &[7; 60], 0, None).unwrap());
    manager.free_page(low, 0).unwrap();
    manager.write_all().unwrap();
    let mut parent = manager.fix_exclusive(tree.root()).unwrap();
    parent.unswizzle_all();
    let offset = parent.read().references().next().unwrap();
    let first = parent.child_number(offset).unwrap();
    drop(parent);
    // The space has it free already.
    manager.space().unwrap().free(first, 0).unwrap();
    let highest = PageNumber::new(1).unwrap();
    let moved = tree.move_one_page(highest, &mut CompactionPlace::default());
    assert!(moved.is_err(), "{moved:?}");
    assert_eq!((lost(&tree, keys.iter()), forwards(&tree).len()), (0, keys.len()));
}

/// Makes all that a device has of a tree's page another.
fn rot(device: &ModelledSsd, number: PageNumber) {
    for block in 0..device.capacity_blocks() {
        let mut page = [0; BLOCK_BYTES];
        device.read_blocks(block, &mut page).unwrap();
        if [16, 17].contains(&page[5]) && page[8..16] == number.get().to_le_bytes() {
            page[2000] ^= 1;
            device.write_blocks(block, &page).unwrap();
        }
    }
}

#[test]
fn pages_that_rot_are_freed_again_all_the_same() {
    let (device, log) =
        (Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap()), Arc::new(Kept::default()));
    let made = BufferManager::create(hardware(), device.clone(), Arc::new(NoLog), &options(64));
    let manager = Arc::new(made.unwrap());
    let tree = Tree::create(Arc::clone(&manager), Arc::clone(&log)).unwrap();
    for number in 0..RECORDS {
        let lsn = log.0.lock().len() as u64;
        tree.put(&key(number), &[7; 60], lsn, None).unwrap();
    }
    manager.close().unwrap();
    let (before, numbers) = (log.0.lock().len(), manager.space().unwrap().numbers());
    while !tree.free_pages(4).unwrap() {}
    tree.free_rest().unwrap();
    // Nothing of that was written.
    drop((tree, manager));
    let open = || BufferManager::open(hardware(), device.clone(), Arc::new(NoLog), &options(64));
    let manager = open().unwrap();
    let is_leaf = |number: &&PageNumber| {
        manager.fix_exclusive(**number).unwrap().read().references().next().is_none()
    };
    let leaf = *numbers.iter().find(is_leaf).unwrap();
    drop(manager);
    rot(&device, leaf);
    let manager = open().unwrap();
    assert!(manager.fix_exclusive(leaf).is_err());
    let mut redo = Redo::default();
    for (record, lsn) in log.0.lock().iter().zip(1..).skip(before) {
        redo.record(&manager, record, lsn).unwrap();
    }
    redo.end().unwrap();
    assert_eq!(manager.space().unwrap().oldest_freed(), Some(before as u64 + 1));
    manager.space().unwrap().write_freed(u64::MAX).unwrap();
    assert_eq!(manager.space().unwrap().used_pages(), 0);
}

#[test]
fn a_page_that_rots_may_lack_changes_if_the_log_frees_it_and_else_is_named_in_the_end() {
    let (device, log) =
        (Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap()), Arc::new(Kept::default()));
    let made = BufferManager::create(hardware(), device.clone(), Arc::new(NoLog), &options(256));
    let manager = Arc::new(made.unwrap());
    let tree = Tree::create(Arc::clone(&manager), Arc::clone(&log)).unwrap();
    let put = |number| {
        let lsn = log.0.lock().len() as u64;
        tree.put(&key(number), &[7; 60], lsn, None).unwrap();
    };
    (0..RECORDS).for_each(put);
    manager.close().unwrap();
    let (before, numbers) = (log.0.lock().len(), manager.space().unwrap().numbers());
    // Leaves are cut, and hung in.
    (RECORDS..2 * RECORDS).for_each(put);
    let split = log.0.lock().len();
    assert!(split > before + 5);
    while !tree.free_pages(4).unwrap() {}
    tree.free_rest().unwrap();
    // Nothing of that was written.
    drop((tree, manager));
    numbers.iter().for_each(|&number| rot(&device, number));
    let records = log.0.lock().clone();
    let redone_until = |end: usize| {
        let opened =
            BufferManager::open(hardware(), device.clone(), Arc::new(NoLog), &options(256));
        let (manager, mut redo) = (opened.unwrap(), Redo::default());
        for (record, lsn) in records.iter().zip(1..).take(end).skip(before) {
            redo.record(&manager, record, lsn).unwrap();
        }
        redo.end().map(|()| manager)
    };
    let damage = redone_until(split).map(|_| ()).unwrap_err();
    let named = |damage: &TreeError| match damage {
        TreeError::Buffer(BufferError::Space(SpaceError::Page { number, .. })) => Some(*number),
        _ => None,
    };
    assert!(named(&damage).is_some_and(|number| numbers.contains(&number)), "{damage}");
    let manager = redone_until(records.len()).unwrap();
    manager.space().unwrap().write_freed(u64::MAX).unwrap();
    assert_eq!(manager.space().unwrap().used_pages(), 0);
}

#[test]
fn who_comes_to_a_damaged_leaf_goes_on_where_he_was_once_it_is_whole() {
    let manager = pool(64);
    let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
    let mut keys: Vec<_> = (0..RECORDS).map(key).collect();
    keys.iter().for_each(|key| tree.put(key, &[7; 60], 0, None).unwrap());
    keys.sort();
    // A leaf in the middle, and what its header says of its heap.
    let mut leaf = LeafCopy::default();
    let middle = &keys[keys.len() / 2];
    tree.copy_leaf(&mut leaf, Bound::Included(middle)).unwrap();
    let (lower, upper) = (leaf.lower().to_vec(), leaf.upper().unwrap().to_vec());
    let belongs = |key: &Vec<u8>| lower <= *key && *key < upper;
    let mut root = manager.fix_exclusive(tree.root()).unwrap();
    root.unswizzle_all();
    let below: Vec<_> =
        root.read().references().filter_map(|offset| root.child_number(offset)).collect();
    drop(root);
    let is_it = |number: &&PageNumber| {
        let page = manager.fix_exclusive(**number).unwrap();
        let mut bytes = vec![0; page.read().bytes()];
        page.read().copy_to(0, &mut bytes);
        bytes.ends_with(&[&lower[..], &upper[..]].concat())
    };
    let number = *below.iter().find(is_it).unwrap();
    let set_heap = |heap| {
        let mut page = manager.fix_exclusive(number).unwrap();
        let was = page.read().quarter(34);
        page.write(0).set_quarter(34, heap);
        was
    };
    let is_next = |found: Result<Option<Entry<'_>>, TreeError>, key: Option<&Vec<u8>>| {
        assert_eq!(found.unwrap().map(|(key, _)| key), key.map(|key| &key[..]));
    };
    let (begin, end) =
        (keys.iter().position(belongs).unwrap(), keys.iter().rposition(belongs).unwrap() + 1);

    let (mut cursor, heap) = (tree.cursor(), set_heap(u16::MAX));
    keys[..begin].iter().for_each(|key| is_next(cursor.next(), Some(key)));
    (0..2).for_each(|_| assert!(cursor.next().is_err()));
    set_heap(heap);
    keys[begin..].iter().for_each(|key| is_next(cursor.next(), Some(key)));
    is_next(cursor.next(), None);

    // The same backwards, once it has turned.
    set_heap(u16::MAX);
    keys[end..].iter().rev().for_each(|key| is_next(cursor.prev(), Some(key)));
    (0..2).for_each(|_| assert!(cursor.prev().is_err()));
    is_next(cursor.next(), Some(&keys[end]));
    is_next(cursor.prev(), Some(&keys[end]));
    assert!(cursor.seek(Bound::Included(middle)).is_err());
    assert!(tree.copy_leaf(&mut leaf, Bound::Included(middle)).is_err() && leaf.is_empty());
    set_heap(heap);
    is_next(cursor.next(), Some(middle));
    is_next(cursor.prev(), Some(middle));
    cursor.seek(Bound::Excluded(&keys[end])).unwrap();
    keys[..=end].iter().rev().for_each(|key| is_next(cursor.prev(), Some(key)));
    is_next(cursor.prev(), None);
}

#[test]
fn a_damaged_record_is_come_to_again_and_not_gone_past() {
    let manager = pool(8);
    let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
    let keys: Vec<_> = (0..9_u64).map(|number| number.to_be_bytes()).collect();
    keys.iter().for_each(|key| tree.put(key, &[7; 60], 0, None).unwrap());
    // The fifth slot's offset: its record lies at the end of the page and beyond.
    let offset_at = PAGE_HEADER_BYTES + 16 + 8 * 4;
    let set_offset = |offset| {
        let mut page = manager.fix_exclusive(tree.root()).unwrap();
        let was = page.read().quarter(offset_at);
        page.write(0).set_quarter(offset_at, offset);
        was
    };
    let was = set_offset(4090);
    let (mut up, mut down) = (tree.cursor(), tree.cursor());
    down.seek_end().unwrap();
    keys[..4].iter().for_each(|key| assert_eq!(up.next().unwrap().unwrap().0, key));
    keys[5..].iter().rev().for_each(|key| assert_eq!(down.prev().unwrap().unwrap().0, key));
    for _ in 0..3 {
        assert!(matches!(up.next(), Err(TreeError::Damaged { .. })));
        assert!(matches!(down.prev(), Err(TreeError::Damaged { .. })));
    }
    // From where it is, each goes back as it came.
    assert_eq!(up.prev().unwrap().unwrap().0, keys[3]);
    assert_eq!(down.next().unwrap().unwrap().0, keys[5]);
    set_offset(was);
}
