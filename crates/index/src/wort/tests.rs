//! When headers are right and when they are stale.

use lapis_pmem::Hardware;

use super::{Header, Nibbles, Wort};
use crate::index::Index;
use crate::radix::tests::sample;
use crate::radix::{Descending, SlotWord};

/// The header of the node at the end of the way of `key`.
fn last_header(index: &Wort<Hardware, u64>, key: u64) -> (Header, Header) {
    let key = Nibbles::<u64>::of_integer(key);
    let (mut child, mut depth, mut found) = (index.child_at(index.handle.top), 0, None);
    while !child.is_leaf() {
        let position = child.position::<u64>();
        let header = Header::from_bits(
            index.handle.pool.at(child.header_place()).load(index.handle.pool.domain()),
        );
        found = Some((header, Header::of(&key, depth, position)));
        child = index.child_at(child.place(key.slot_at(position).unwrap()));
        depth = position + 1;
    }
    found.unwrap()
}

#[test]
fn a_split_leaves_both_headers_right() {
    let index = sample::<Wort<Hardware, u64>>(&[&0x1111, &0x1112]);
    let _ = index.insert(&0x2111, 1).unwrap();
    let (header, right) = last_header(&index, 0x1111);
    assert_eq!((header, right.depth()), (right, 13));
    let index = sample::<Wort<Hardware, u64>>(&[&0x1111_0000_0000_1111, &0x1111_0000_0000_1112]);
    let _ = index.insert(&0x1111_0000_0001_1111, 1).unwrap();
    let (header, right) = last_header(&index, 0x1111_0000_0000_1111);
    assert_eq!((header, right.depth()), (right, 12));
}

#[test]
fn a_removal_leaves_a_stale_header_and_the_next_insert_there_recovers_it() {
    let index = sample::<Wort<Hardware, u64>>(&[&0x1111, &0x1112, &0x2111]);
    let _ = index.remove(&0x2111).unwrap();
    let (stale, right) = last_header(&index, 0x1111);
    assert_eq!((stale.depth(), right.depth()), (13, 0));
    let _ = index.insert(&0x1113, 1).unwrap();
    assert_eq!(last_header(&index, 0x1111), (right, right));
}
