//! Inner nodes and the words that refer to blocks.

use std::mem::offset_of;

use lapis_pmem::{AllocError, Dirty, Domain, Link, Owned, PCell, Pool, persistent};

use crate::key::IndexKey;
use crate::radix::{self, LEAF_BIT, LOW_BITS, Nibble, Place, SlotWord, Span};

/// The header of a node.
pub(super) type Header = radix::Header<Nibble>;

/// Slots for nibbles in a node.
pub(super) const NIBBLE_SLOTS: usize = Nibble::SLOTS;
/// The slot of the key that ends at a node's branch position, behind the others.
pub(super) const END_SLOT: usize = Nibble::END_SLOT;

persistent! {
    /// An inner node. If keys can end at its branch position, one more slot follows.
    pub(super) struct Node: 136 {
        pub(super) header: PCell<u64>,
        pub(super) slots: [PCell<u64>; 16],
    }
}

const HIGH_POSITION_BIT: u64 = 2;
const POSITION_SHIFT: u32 = 48;

/// A slot's contents: nothing, a leaf, or a node and its branch position. The diagram is in the
/// [module documentation](super).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child(pub(super) u64);

impl SlotWord for Child {
    const NONE: Self = Self(0);

    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    #[inline(always)]
    fn position<K: IndexKey + ?Sized>(self) -> usize {
        let low = (self.0 >> POSITION_SHIFT) as usize;
        if K::INLINE { low } else { low | ((self.0 & HIGH_POSITION_BIT) << 15) as usize }
    }
    fn is_malformed<K: IndexKey + ?Sized>(self) -> bool {
        let allowed = match (self.is_leaf(), K::INLINE) {
            (true, _) => LEAF_BIT,
            (false, true) => u64::MAX << POSITION_SHIFT,
            (false, false) => u64::MAX << POSITION_SHIFT | HIGH_POSITION_BIT,
        };
        self.0 & !(lapis_pmem::LINK_MASK & !LOW_BITS) & !allowed != 0
    }
}

impl Child {
    #[inline(always)]
    pub(super) fn node(link: Link<Node>, position: usize) -> Self {
        let high = if position >> 16 == 0 { 0 } else { HIGH_POSITION_BIT };
        Self((position as u64) << POSITION_SHIFT | link.bits() | high)
    }

    /// The node, if neither a leaf nor nothing.
    #[inline(always)]
    pub(super) fn as_node(self) -> Link<Node> {
        Link::from_bits(self.0 & !LOW_BITS)
    }

    /// Where the node's slot `slot` is.
    #[inline(always)]
    pub(super) fn place(self, slot: usize) -> Place {
        Link::from_bits(self.as_node().bits() + (offset_of!(Node, slots) + 8 * slot) as u64)
    }
}

/// Whether a node that branches at `position` has an end slot.
#[inline(always)]
pub(super) fn has_end_slot<K: IndexKey + ?Sized>(position: usize) -> bool {
    Nibble::has_end_slot::<K>(position)
}

/// Bytes behind the nibble slots of a node that branches at `position`.
#[inline(always)]
fn tail_bytes<K: IndexKey + ?Sized>(position: usize) -> usize {
    if has_end_slot::<K>(position) { 8 } else { 0 }
}

/// Bytes of a node that branches at `position`.
#[inline(always)]
pub(super) fn node_bytes<K: IndexKey + ?Sized>(position: usize) -> usize {
    size_of::<Node>() + tail_bytes::<K>(position)
}

/// A new node with `header` that branches at `position` with two children; not flushed.
#[inline]
pub(super) fn make_node<'p, D: Domain, K: IndexKey + ?Sized>(
    pool: &'p Pool<D>,
    header: Header,
    position: usize,
    children: [(usize, Child); 2],
) -> Result<Owned<'p, D, Node, Dirty>, AllocError> {
    let [(first, first_child), (second, second_child)] = children;
    debug_assert_ne!(first, second, "two keys that differ at a position take different slots");
    let contents = |slot: usize| match slot {
        _ if slot == first => first_child.0,
        _ if slot == second => second_child.0,
        _ => 0,
    };
    let mut node = pool.allocate_with_tail::<Node>(tail_bytes::<K>(position))?;
    node.header.store(pool.domain(), header.bits());
    for (slot, word) in node.slots.iter().enumerate() {
        word.store(pool.domain(), contents(slot));
    }
    if has_end_slot::<K>(position) {
        node.write_tail(0, &contents(END_SLOT).to_le_bytes());
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_link_and_position_up_to_the_longest_key() {
        for position in [0, 1, 15, 0x7FFF, 0x8000, 0xFFFF, 0x1_0000, 131_070] {
            let link = Link::from_bits(0x7FFF_FFFF_FFF0);
            let child = Child::node(link, position);
            assert_eq!(child.as_node(), link);
            assert_eq!(child.position::<[u8]>(), position);
            assert!(!child.is_leaf() && !child.is_malformed::<[u8]>());
        }
    }

    #[test]
    fn a_leaf_word_is_told_from_a_node_and_from_nothing() {
        let child = Child::leaf(Link::from_bits(0x40));
        assert!(child.is_leaf() && !child.is_none() && !child.is_malformed::<u64>());
        assert_eq!(child.as_leaf(), Link::from_bits(0x40));
        assert!(Child(child.0 | 4).is_malformed::<u64>());
    }

    #[test]
    fn only_byte_strings_at_whole_bytes_have_an_end_slot() {
        assert_eq!(node_bytes::<u64>(2), 136);
        assert_eq!(node_bytes::<[u8]>(3), 136);
        assert_eq!(node_bytes::<[u8]>(2), 144);
    }
}
