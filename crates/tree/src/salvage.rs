//! Pages of trees by themselves: what one says when those above it are lost.

use lapis_buffer::PageNumber;
use lapis_buffer::page::{kind_of, lsn_of};

use crate::check::check_entries;
use crate::node::{INNER, LEAF, Node, check_table, mark_of, put_in_order};

/// The mark by which a page says of which tree it is: trees whose roots' numbers differ by 65,536 have the same.
pub fn mark_of_tree(root: PageNumber) -> u16 {
    mark_of(root)
}

/// A page of a tree that was read by itself.
pub struct LonePage<'p> {
    node: Node<&'p [u8]>,
    lsn: u64,
}

impl<'p> LonePage<'p> {
    /// The page in these bytes, which are as they were written; none if it is no tree's, or makes no sense. The slots of a hashed
    /// leaf are put in order there.
    pub fn of(bytes: &'p mut [u8]) -> Option<Self> {
        let node = Node::new(&*bytes);
        let kind = if node.level() == 0 { LEAF } else { INNER };
        if kind_of(bytes) != kind || !node.is_sound() || check_table(&node).is_err() {
            return None;
        }
        put_in_order(bytes);
        let node = Node::new(&*bytes);
        check_entries(&node).ok().map(|()| Self { node, lsn: lsn_of(bytes) })
    }

    /// The mark of its tree.
    pub fn tree(&self) -> u16 {
        self.node.tree()
    }

    /// The last change that it has.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Whether it has entries, and not references.
    pub fn is_leaf(&self) -> bool {
        self.node.level() == 0
    }

    /// Keys that it has, or may get, are not before this one.
    pub fn lower(&self) -> &'p [u8] {
        self.node.lower()
    }

    /// And before this one; without it, there is no end.
    pub fn upper(&self) -> Option<&'p [u8]> {
        self.node.upper()
    }

    /// The entries of a leaf, in order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = (Vec<u8>, &'p [u8])> + '_ {
        let count = if self.is_leaf() { self.node.count() } else { 0 };
        (0..count).filter_map(|at| Some((self.node.key(at)?, self.node.record(at)?.1)))
    }

    /// The pages that it refers to, each with the first key that it may have, and the one before which those end.
    pub fn children(&self) -> impl Iterator<Item = (PageNumber, Vec<u8>, Option<Vec<u8>>)> + '_ {
        let node = &self.node;
        let children = if self.is_leaf() { 0 } else { node.count() + 1 };
        (0..children).filter_map(move |at| {
            let lower = at.checked_sub(1).map_or(Some(node.lower().to_vec()), |at| node.key(at))?;
            let upper = match at == node.count() {
                true => node.upper().map(<[u8]>::to_vec),
                false => Some(node.key(at)?),
            };
            Some((PageNumber::new(node.child(at))?, lower, upper))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Builder, Entries};

    const BYTES: usize = 4096;

    fn page(mut made: Vec<u8>, kind: u8) -> Vec<u8> {
        made[5] = kind;
        made[16] = 99;
        made
    }

    #[test]
    fn a_leaf_says_whose_it_is_and_what_it_has() {
        let mut made = Builder::leaf(BYTES, (7, Entries::Sorted), b"aa", Some(b"az"));
        made.push(b"ab", b"one").unwrap();
        made.push(b"ac", b"two").unwrap();
        let mut bytes = page(made.finish(), LEAF.0);
        let page = LonePage::of(&mut bytes).unwrap();
        assert_eq!((page.tree(), page.lsn(), page.is_leaf()), (7, 99, true));
        assert_eq!((page.lower(), page.upper()), (&b"aa"[..], Some(&b"az"[..])));
        let entries: Vec<_> = page.entries().collect();
        assert_eq!(entries, [(b"ab".to_vec(), &b"one"[..]), (b"ac".to_vec(), b"two")]);
        assert_eq!(page.children().count(), 0);
    }

    #[test]
    fn an_inner_node_says_what_keys_its_children_have() {
        let mut made = Builder::inner(BYTES, (7, 1), (b"", None), 3);
        made.push_child(b"m", 4).unwrap();
        let mut bytes = page(made.finish(), INNER.0);
        let page = LonePage::of(&mut bytes).unwrap();
        let number = |number| PageNumber::new(number).unwrap();
        let expected = [(number(3), vec![], Some(b"m".to_vec())), (number(4), b"m".to_vec(), None)];
        assert!(page.children().eq(expected));
        assert_eq!(page.entries().count(), 0);
    }

    #[test]
    fn what_makes_no_sense_is_no_page() {
        let mut made = Builder::leaf(BYTES, (7, Entries::Sorted), b"", None);
        made.push(b"ab", b"one").unwrap();
        let bytes = page(made.finish(), LEAF.0);
        assert!(LonePage::of(&mut page(bytes.clone(), INNER.0)).is_none());
        for at in [32, 34, 40, 44, 48, 50] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            assert!(LonePage::of(&mut wrong).is_none(), "byte {at}");
        }
    }
}
