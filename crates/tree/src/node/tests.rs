use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapis_buffer::PageWrite;
use lapis_pmem::{FlushMethod, Hardware};

use super::*;

fn leaf(lower: &[u8], upper: Option<&[u8]>, keys: &[&[u8]]) -> Vec<u8> {
    let mut made = Builder::leaf(4096, (7, Entries::Sorted), lower, upper);
    keys.iter().for_each(|key| made.push(key, &[key.len() as u8; 3]).unwrap());
    made.finish()
}

#[test]
fn keys_with_equal_heads_are_told_apart() {
    let keys: [&[u8]; 6] = [b"", b"abcd", b"abcd\0", b"abcda", b"abcdb", b"abce"];
    let page = leaf(b"", None, &keys);
    let node = Node::new(&page[..]);
    assert!(node.is_sound());
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(node.search(key), (at, true));
        assert_eq!(node.record(at).map(|(_, value)| value), Some(&[key.len() as u8; 3][..]));
    }
    assert_eq!(node.search(b"abcd\0\0"), (3, false));
    assert_eq!(node.search(b"abcdc"), (5, false));
    assert_eq!(node.search(b"b"), (6, false));
}

#[test]
fn what_fences_have_in_common_is_not_in_the_records() {
    let page = leaf(b"user/100", Some(b"user/200"), &[b"user/100", b"user/15", b"user/1999"]);
    let node = Node::new(&page[..]);
    assert_eq!((node.prefix(), node.suffix(1)), (&b"user/"[..], Some(&b"15"[..])));
    assert_eq!(node.key(2).as_deref(), Some(&b"user/1999"[..]));
    assert_eq!(node.suffix_of(b"use"), None);
    assert!(node.is_within_fences(b"user/100") && !node.is_within_fences(b"user/200"));
    assert!(!node.is_within_fences(b"user/0"));
}

#[test]
fn separators_are_as_short_as_can_be() {
    assert_eq!(separator(b"", b"lapis"), b"l");
    assert_eq!(separator(b"lap", b"lapis"), b"lapi");
    assert_eq!(separator(b"lapis", b"lazuli"), b"laz");
}

#[test]
fn a_full_node_takes_no_more_and_contents_are_read_as_they_were_written() {
    let mut made = Builder::leaf(4096, (7, Entries::Sorted), b"", None);
    let mut count: u32 = 0;
    while made.push(&count.to_be_bytes(), &[7; 90]).is_ok() {
        count += 1;
    }
    assert_eq!(count as usize, (4096 - SLOTS_AT) / (8 + 2 + 4 + 90));
    let page = made.finish();
    let contents = Contents::of(&page).unwrap();
    assert_eq!(contents.checked(4096), Some(contents));
    let torn = Contents { slots: &contents.slots[..contents.slots.len() - 8], ..contents };
    assert_eq!(torn.checked(4096), None);
    assert_eq!(contents.checked(2048), None);
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let mut random = 1u64;
    for _ in 0..2000 {
        let mut page = vec![0; 4096];
        for byte in &mut page {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            *byte = (random >> 56) as u8;
        }
        let node = Node::new(&page[..]);
        let (at, _) = node.search(b"anything");
        let _ = (node.is_sound(), node.entry_bytes(), node.free(), node.key(at), node.record(at));
        let _ = (node.upper(), node.lower().len(), node.child(at), node.is_within_fences(b"x"));
    }
}

#[test]
fn where_a_child_went_nothing_is_left_that_names_a_frame() {
    const FRAME: u64 = 1 << 63;
    let mut made = Builder::inner(4096, (7, 1), (b"", None), FRAME);
    for (child, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
        made.push_child(key, FRAME + child as u64).unwrap();
    }
    let page = made.finish();
    let (words, _) = page.as_chunks();
    let words: Vec<_> =
        words.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect();
    let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
    let mut page = PageWrite::new(&domain, &words);
    remove_child(&mut page, 1, 1);
    let left = words.iter().filter(|word| word.load(Relaxed) >= FRAME).count();
    assert_eq!((left, Node::new(page.read()).references()), (3, 3));
}
