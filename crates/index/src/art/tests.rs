//! How nodes grow, shrink and are reused, and whose headers are stale.

use lapis_pmem::Hardware;

use super::Art;
use super::node::{Body16, Body48, Child, Kind};
use super::policy::Policy;
use crate::art_cow::CopyOnWrite;
use crate::index::Index;
use crate::radix::tests::{Tree, sample, words};
use crate::radix::{Byte, Descending, Digits, Header, SlotWord};
use crate::woart::WriteOptimal;

type Numbers<P> = Art<Hardware, u64, P>;
type Strings<P> = Art<Hardware, [u8], P>;

/// The top node.
fn top<T: Tree<Word = Child>>(index: &T) -> Child {
    index.child_at(index.handle().top)
}

/// The kind that the top node has after each key that is inserted, then after each that is removed.
fn kinds<P: Policy>() -> (Vec<Kind>, Vec<Kind>) {
    let index: Numbers<P> = sample(&[]);
    let keys: Vec<u64> = (0..256).map(|byte| byte * 151 % 256).collect();
    let grown = keys.iter().map(|key| {
        let _ = index.insert(key, !key).unwrap();
        assert_eq!(index.check(), [""; 0]);
        let top = top(&index);
        if top.is_leaf() { Kind::Four } else { top.kind() }
    });
    let grown = grown.collect();
    let shrunk = keys[..255].iter().map(|key| {
        let _ = index.remove(key).unwrap();
        assert_eq!(index.check(), [""; 0]);
        let some = keys.iter().step_by(if cfg!(miri) { 37 } else { 1 });
        assert!(some.into_iter().all(|other| index.get(other).is_none_or(|value| value == !other)));
        let top = top(&index);
        if top.is_leaf() { Kind::Four } else { top.kind() }
    });
    (grown, shrunk.collect())
}

fn a_node_grows_and_shrinks_through_all_kinds<P: Policy>() {
    let (grown, shrunk) = kinds::<P>();
    for (count, kind) in (1..).zip(grown) {
        let expected = match count {
            ..=4 => Kind::Four,
            5..=16 => Kind::Sixteen,
            17..=48 => Kind::FortyEight,
            _ => Kind::Full,
        };
        assert_eq!(kind, expected, "with {count} keys");
    }
    for (count, kind) in (1..=255).rev().zip(shrunk) {
        let expected = match count {
            ..=3 => Kind::Four,
            4..=12 => Kind::Sixteen,
            13..=37 => Kind::FortyEight,
            _ => Kind::Full,
        };
        assert_eq!(kind, expected, "with {count} keys left");
    }
}

#[test]
fn a_node_of_woart_grows_and_shrinks_through_all_kinds() {
    a_node_grows_and_shrinks_through_all_kinds::<WriteOptimal>();
}

#[test]
fn a_node_of_art_cow_grows_and_shrinks_through_all_kinds() {
    a_node_grows_and_shrinks_through_all_kinds::<CopyOnWrite>();
}

/// What a power cut between the store of a child and that of its number leaves: children that no
/// number leads to.
#[test]
fn children_that_no_number_leads_to_do_not_keep_a_node_from_being_filled() {
    let keys: Vec<u64> = (0..20).collect();
    let index: Numbers<WriteOptimal> = sample(&keys.iter().collect::<Vec<_>>());
    let node: &Body48 = index.body(top(&index));
    for child in &node.children[20..] {
        child.store(index.domain(), 0xDEAD_0001);
    }
    for key in 20..48 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert_eq!((top(&index).kind(), index.check()), (Kind::FortyEight, vec![]));
    assert!((20..48).all(|key| index.get(&key) == Some(key)));
}

#[test]
fn keys_whose_bit_is_not_set_do_not_count() {
    let index: Numbers<WriteOptimal> = sample(&[&0, &1, &2, &3, &4]);
    let node: &Body16 = index.body(top(&index));
    // Entry 5 got a key and a child, but a power cut came before its bit.
    node.keys[0].store(index.domain(), node.keys[0].load(index.domain()) | 9 << 40);
    node.children[5].store(index.domain(), node.children[0].load(index.domain()));
    assert_eq!((index.get(&9), index.check()), (None, vec![]));
    let _ = index.insert(&9, 90).unwrap();
    assert_eq!((index.get(&9), index.statistics().entries), (Some(90), 6));
}

#[test]
fn a_key_that_counts_twice_is_reported() {
    let index: Numbers<WriteOptimal> = sample(&[&0, &1, &2, &3, &4]);
    let node: &Body16 = index.body(top(&index));
    node.keys[0].store(index.domain(), node.keys[0].load(index.domain()) & !0xFF);
    node.keys[0].store(index.domain(), node.keys[0].load(index.domain()) | 1);
    assert!(index.check().iter().any(|problem| problem.starts_with("I9")), "{:?}", index.check());
}

/// Whether the header of each node is right where the node is.
fn headers_are_right<P: Policy>(index: &Numbers<P>) -> bool {
    let key_of = |child| index.key_of_leaf(index.any_leaf(child).unwrap()).unwrap();
    let is_right = |child: Child, depth| {
        let right = Header::<Byte>::of(&key_of(child), depth, child.position::<u64>());
        index.header_bits(child) == right.bits()
    };
    let all = words(index, index.handle.top);
    all.iter().filter(|(_, child)| !child.is_leaf()).all(|&(_, node)| {
        let below = index.contents(node).children.into_iter().map(|(_, child)| child);
        let depth = node.position::<u64>() + 1;
        below.filter(|child| !child.is_leaf()).all(|child| is_right(child, depth))
            && (node != top(index) || is_right(node, 0))
    })
}

/// A key that shares prefixes of several lengths with others.
fn prefixed(number: u64) -> u64 {
    (number % 7) << 48 | (number % 11) << 24 | (number % 3)
}

fn keys_that_share_prefixes(index: &impl Index<Hardware, u64>) {
    for number in 0..500u64 {
        let _ = index.insert(&prefixed(number), 1).unwrap();
    }
}

#[test]
fn headers_of_art_cow_are_always_right() {
    let index: Numbers<CopyOnWrite> = sample(&[]);
    keys_that_share_prefixes(&index);
    assert!(headers_are_right(&index));
    for number in (0..500u64).filter(|number| number % 11 != 4) {
        let _ = index.remove(&prefixed(number)).unwrap();
        assert!(headers_are_right(&index), "after {number}");
    }
}

#[test]
fn a_removal_from_woart_leaves_a_stale_header_and_the_next_insert_there_recovers_it() {
    let index: Numbers<WriteOptimal> = sample(&[&0x1111, &0x1112, &0x2111]);
    assert!(headers_are_right(&index));
    let _ = index.remove(&0x2111).unwrap();
    assert!(!headers_are_right(&index));
    let _ = index.insert(&0x1113, 1).unwrap();
    assert!(headers_are_right(&index));
}

#[test]
fn a_split_of_either_tree_leaves_headers_right() {
    let woart: Numbers<WriteOptimal> = sample(&[]);
    let art_cow: Numbers<CopyOnWrite> = sample(&[]);
    keys_that_share_prefixes(&woart);
    keys_that_share_prefixes(&art_cow);
    assert!(headers_are_right(&woart) && headers_are_right(&art_cow));
}

/// The mean depths of Table 1 (d), on fewer keys with as many levels: all keys of a dense set share
/// the bytes in front, sparse ones part at the first byte by which they can.
fn depths_are_those_of_bytes<P: Policy>() {
    let index: Numbers<P> = sample(&[]);
    (1..=65_536u64).for_each(|key| _ = index.insert(&key, key).unwrap());
    // Three bytes tell them apart, of which the first is the same for all but one.
    assert!((2.99..3.0 + 1e-9).contains(&index.statistics().mean_depth));
    let index: Numbers<P> = sample(&[]);
    for number in 0..4096u64 {
        let _ = index.insert(&(number << 52 | (number * 0x9E37_79B9) >> 4), 1).unwrap();
    }
    assert_eq!(index.statistics().mean_depth, 2.0);
}

#[test]
fn depths_are_those_of_trees_of_bytes() {
    depths_are_those_of_bytes::<WriteOptimal>();
    depths_are_those_of_bytes::<CopyOnWrite>();
}

#[test]
fn a_key_that_ends_at_a_node_is_its_first_child() {
    let index: Strings<CopyOnWrite> = sample(&[b"ab".as_slice(), b"ab\0", b"abc", b"a"]);
    let mut keys = Vec::new();
    index.for_each(&mut |key, _| {
        keys.push(key.to_vec());
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(keys, [b"a".to_vec(), b"ab".to_vec(), b"ab\0".to_vec(), b"abc".to_vec()]);
    let key = Digits::<[u8], Byte>::of_bytes(b"ab");
    assert_eq!(index.find(&key), Some(1));
}
