use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::BTreeMap;

use lapis_pmem::{FlushMethod, Hardware};
use proptest::prelude::*;

use super::*;
use crate::check::check_entries;
use crate::node::{Builder, Contents, insert_record, remove_record};

const BYTES: usize = 4096;

fn words(page: &[u8]) -> Vec<AtomicU64> {
    let (words, _) = page.as_chunks();
    words.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect()
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
}

fn domain() -> Hardware {
    Hardware::with_method(FlushMethod::PageCacheNone).unwrap()
}

/// A leaf in order.
fn leaf(keys: impl IntoIterator<Item = Vec<u8>>, value: &[u8]) -> Vec<u8> {
    let mut made = Builder::leaf(BYTES, (7, Entries::Hashed), b"a", Some(b"a\xff"));
    keys.into_iter().for_each(|key| made.push(&[b"a", &key[..]].concat(), value).unwrap());
    made.finish()
}

/// The same as it is on a page.
fn with_table(leaf: &[u8], room: usize) -> Vec<AtomicU64> {
    let Contents { slots, heap } = Contents::of(leaf).unwrap();
    let (words, domain) = (words(&vec![0; leaf.len()]), domain());
    let mut page = PageWrite::new(&domain, &words);
    page.copy_from(leaf.len() - heap.len(), heap);
    let (header, slots) = slots.split_at(SLOTS_AT - COUNTS_AT);
    page.copy_from(COUNTS_AT, header);
    fill_table(&mut page, slots, heap, room);
    words
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

#[test]
fn a_leaf_in_order_and_its_page_are_made_of_each_other() {
    // Heads that say nothing among them.
    let keys: Vec<_> = (0..40).map(|number| [b"ties", &key(number)[..]].concat()).collect();
    for keys in [keys, (0..90).map(key).collect(), vec![Vec::new()], Vec::new()] {
        let leaf = leaf(keys.clone(), b"value");
        let (words, domain) = (with_table(&leaf, 0), domain());
        let page = PageWrite::new(&domain, &words);
        let node = Node::new(page.read());
        for key in &keys {
            let (at, found) = node.search(key);
            assert!(found && node.value_range(at).is_some_and(|range| range.len() == 5));
            assert!(!node.search(&[&key[..], b"!"].concat()).1);
        }
        let mut image = bytes(&words);
        assert_eq!(check_table(&Node::new(&image[..])), Ok(()));
        put_in_order(&mut image);
        assert_eq!(Contents::of(&image), Contents::of(&leaf));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn a_table_has_what_was_put_and_not_removed(
        steps in proptest::collection::vec((0..6u8, 0..120u32), 1..400),
    ) {
        let (words, domain) = (with_table(&leaf((0..50).map(|at| key(2 * at)), b"value"), 0), domain());
        let mut page = PageWrite::new(&domain, &words);
        let mut model: BTreeMap<_, _> = (0..50).map(|at| (2 * at, ())).collect();
        for (step, number) in steps {
            let (node, key) = (Node::new(page.read()), key(number));
            let (at, found) = node.search(&key);
            prop_assert_eq!(found, model.contains_key(&number));
            let record = VALUE_BYTES + key.len() + 5;
            if step > 2 && !found && node.takes(record) {
                insert_record(&mut page, at, &key, b"value");
                model.insert(number, ());
            }
            if step < 3 && found {
                remove_record(&mut page, at, record);
                fill_hole(&mut page, at);
                model.remove(&number);
            }
            prop_assert_eq!(check_table(&Node::new(&bytes(&words)[..])), Ok(()));
        }
        let mut image = bytes(&words);
        put_in_order(&mut image);
        let node = Node::new(&image[..]);
        let expected: Vec<_> = model.keys().map(|number| key(*number)).collect();
        let found = (0..node.count()).map(|at| node.suffix(at).unwrap().to_vec());
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

/// A page whose table is as full as can be, and a record that lies behind its home line.
fn full_table() -> (Vec<AtomicU64>, usize) {
    let mut last = leaf([], b"value");
    for records in 1.. {
        let mut made = Builder::leaf(BYTES, (7, Entries::Hashed), b"a", Some(b"a\xff"));
        let mut all = (0..records).map(|number| [b"a", &key(number)[..]].concat());
        if all.any(|key| made.push(&key, b"value").is_err()) {
            break;
        }
        last = made.finish();
    }
    let words = with_table(&last, 0);
    let page = bytes(&words);
    let node = Node::new(&page[..]);
    let lines = node.lines();
    let is_behind = |at: &usize| {
        let line = (at - FIRST_SLOT) / LINE_SLOTS;
        node.slot(*at) != 0 && lines.home(node.slot(*at)) != line
    };
    let behind = (FIRST_SLOT..FIRST_SLOT + lines.slots).find(is_behind);
    (words, behind.expect("lines overflow"))
}

#[test]
fn a_record_behind_its_home_line_is_found_when_that_line_has_room_again() {
    let (words, behind) = full_table();
    let domain = domain();
    let mut page = PageWrite::new(&domain, &words);
    let node = Node::new(page.read());
    let (lines, slot) = (node.lines(), node.slot(behind));
    let suffix = suffix_in(&bytes(&words), 0, slot).to_vec();
    let hole = lines.slots(lines.home(slot)).start;
    remove_record(&mut page, hole, VALUE_BYTES + 4 + 5);
    assert!(!Node::new(page.read()).search(&suffix).1, "its home line has a free slot");
    assert!(check_table(&Node::new(&bytes(&words)[..])).is_err());
    fill_hole(&mut page, hole);
    assert!(Node::new(page.read()).search(&suffix).1);
    assert_eq!(check_table(&Node::new(&bytes(&words)[..])), Ok(()));
}

#[test]
fn a_table_is_made_for_a_leaf_that_is_full() {
    let words = with_table(&leaf((0..20).map(key), b"value"), 0);
    let domain = domain();
    let mut page = PageWrite::new(&domain, &words);
    let mut number = 20;
    // What fits is put without anything being made anew.
    while Node::new(page.read()).free() >= Entries::Hashed.bytes(VALUE_BYTES + 4 + 5) {
        let node = Node::new(page.read());
        let (at, found) = node.search(&key(number));
        assert!(!found && node.takes(VALUE_BYTES + 4 + 5), "{number}");
        insert_record(&mut page, at, &key(number), b"value");
        number += 1;
    }
    assert_eq!(number as usize, (BYTES - 72 - 64 - 3) / (10 + 2 + 4 + 5));
}

#[test]
fn a_table_leaves_room_for_the_record_that_it_was_made_for() {
    let words = with_table(&leaf((0..90).map(key), b"value"), 900);
    let domain = domain();
    let page = PageWrite::new(&domain, &words);
    assert!(Node::new(page.read()).takes(900));
}

#[test]
fn whatever_is_wrong_with_a_table_is_found() {
    let page = bytes(&full_table().0);
    let is_right = |page: &[u8]| {
        let (node, mut copy) = (Node::new(page), page.to_vec());
        put_in_order(&mut copy);
        let entries = || check_entries(&Node::new(&copy[..]));
        node.is_sound() && check_table(&node).and_then(|()| entries()).is_ok()
    };
    assert!(is_right(&page));
    let end = Node::new(&page[..]).slots_end();
    for slot in (TABLE_AT..end).step_by(WORD) {
        // Gone, with another hash, or twice.
        let is_free = page[slot..slot + WORD] == [0; WORD];
        let mut wrong = page.clone();
        wrong[slot + 5] ^= 4;
        assert!(!is_right(&wrong), "{slot}");
        wrong[slot..slot + WORD].fill(0);
        assert_eq!(is_right(&wrong), is_free, "{slot}");
        let to = (slot + 80 - TABLE_AT) % (end - TABLE_AT) + TABLE_AT;
        wrong.copy_from_slice(&page);
        wrong.copy_within(slot..slot + WORD, to);
        assert!(is_free || !is_right(&wrong), "{slot}");
    }
    for (at, bit) in [(32, 1), (39, 2), (39, 4), (48, 0x80), (38, 1)] {
        let mut wrong = page.clone();
        wrong[at] ^= bit;
        assert!(!is_right(&wrong), "byte {at}");
    }
}

#[test]
fn any_bytes_are_read_and_put_in_order_without_a_panic() {
    let mut random = 1u64;
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let mut page = vec![0; BYTES];
        for byte in &mut page {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            *byte = (random >> 56) as u8;
        }
        (page[38], page[39]) = (0, 6);
        if round % 2 == 0 {
            page[49] = 0;
        }
        let domain = domain();
        let words = words(&page);
        let read = PageWrite::new(&domain, &words).read();
        let (at, _) = Node::new(read).search(b"anything");
        let _ = (Node::new(read).value_range(at), check_table(&Node::new(&page[..])));
        put_in_order(&mut page);
        let node = Node::new(&page[..]);
        assert!(!node.has_table());
        let _ = (node.search(b"anything"), node.record(0), node.is_sound());
    }
}
