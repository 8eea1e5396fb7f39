//! The four kinds of inner nodes, and the words that refer to blocks.

use std::mem::offset_of;

use lapis_pmem::{Link, PCell, persistent};

use super::policy::Policy;
use crate::key::IndexKey;
use crate::radix::{LEAF_BIT, LOW_BITS, Place, SlotWord};

persistent! {
    /// What every node begins with.
    pub struct Head: 16 {
        pub(super) header: PCell<u64>,
        pub(super) end: PCell<u64>,
    }
}

/// Bytes of what every node begins with.
const HEAD_BYTES: usize = size_of::<Head>();

persistent! {
    /// What a node of up to 4 bytes has behind its head, and its lock if it has one: all is one line.
    pub(super) struct Body4: 40 {
        pub(super) entries: PCell<u64>,
        pub(super) children: [PCell<u64>; 4],
    }
}

persistent! {
    /// The same of a node of up to 16 bytes.
    pub(super) struct Body16: 152 {
        pub(super) bitmap: PCell<u64>,
        pub(super) keys: [PCell<u64>; 2],
        pub(super) children: [PCell<u64>; 16],
    }
}

persistent! {
    /// The same of a node of up to 48 bytes.
    pub(super) struct Body48: 640 {
        pub(super) index: [PCell<u64>; 32],
        pub(super) children: [PCell<u64>; 48],
    }
}

persistent! {
    /// The same of a node of up to 256 bytes.
    pub(super) struct Body256: 2048 {
        pub(super) children: [PCell<u64>; 256],
    }
}

// I9: the keys of a node of 16 are on the line of its bitmap, with a lock and without.
const _: () = {
    assert!(HEAD_BYTES + size_of::<Body4>() + 8 == lapis_pmem::LINE_BYTES);
    assert!(HEAD_BYTES + offset_of!(Body16, children) + 8 <= lapis_pmem::LINE_BYTES);
};

/// A kind of node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Up to 4 bytes.
    Four,
    /// Up to 16.
    Sixteen,
    /// Up to 48.
    FortyEight,
    /// All.
    Full,
}

impl Kind {
    /// All kinds, as they are numbered in words.
    const ALL: [Self; 4] = [Self::Four, Self::Sixteen, Self::FortyEight, Self::Full];

    /// How many bytes a node has room for, the end of a key not counted.
    pub(super) const fn capacity(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Sixteen => 16,
            Self::FortyEight => 48,
            Self::Full => 256,
        }
    }

    /// With as few, a node becomes one of the next smaller kind. Less than half full then, so that
    /// adding and removing at the limit does not change the kind each time.
    pub(super) const fn shrinks_at(self) -> usize {
        match self {
            Self::Four => 0,
            Self::Sixteen => 3,
            Self::FortyEight => 12,
            Self::Full => 37,
        }
    }

    /// What a node of this kind is to be when it has `count` bytes.
    pub(super) fn for_count(self, count: usize) -> Self {
        let mut number = self as usize;
        while count > Self::ALL[number].capacity() {
            number += 1;
        }
        while number > 0 && count <= Self::ALL[number].shrinks_at() {
            number -= 1;
        }
        Self::ALL[number]
    }

    /// Bytes of a node of this tree.
    pub(super) const fn node_bytes<P: Policy>(self) -> usize {
        let body_bytes = match self {
            Self::Four => size_of::<Body4>(),
            Self::Sixteen => size_of::<Body16>(),
            Self::FortyEight => size_of::<Body48>(),
            Self::Full => size_of::<Body256>(),
        };
        HEAD_BYTES + P::LOCK_BYTES + body_bytes
    }

    /// Offset of the first child's word.
    pub(super) const fn children_offset<P: Policy>(self) -> usize {
        let in_body = match self {
            Self::Four => offset_of!(Body4, children),
            Self::Sixteen => offset_of!(Body16, children),
            Self::FortyEight => offset_of!(Body48, children),
            Self::Full => offset_of!(Body256, children),
        };
        HEAD_BYTES + P::LOCK_BYTES + in_body
    }
}

const KIND_SHIFT: u32 = 1;
const POSITION_SHIFT: u32 = 48;

/// A slot's contents: nothing, a leaf, or a node with its kind and branch position. The diagram is
/// in the [module documentation](super).
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
        (self.0 >> POSITION_SHIFT) as usize
    }
    fn is_malformed<K: IndexKey + ?Sized>(self) -> bool {
        let allowed = match self.is_leaf() {
            true => LEAF_BIT,
            false => u64::MAX << POSITION_SHIFT | 3 << KIND_SHIFT,
        };
        self.0 & !(lapis_pmem::LINK_MASK & !LOW_BITS) & !allowed != 0
    }
}

impl Child {
    #[inline(always)]
    pub(super) fn node(link: Link<Head>, kind: Kind, position: usize) -> Self {
        Self((position as u64) << POSITION_SHIFT | link.bits() | (kind as u64) << KIND_SHIFT)
    }

    /// The node's kind.
    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> KIND_SHIFT & 3) as usize]
    }

    /// The node's head.
    #[inline(always)]
    pub(super) fn head(self) -> Link<Head> {
        Link::from_bits(self.0 & !LOW_BITS)
    }

    /// Where the node's lock is, if nodes of its tree have one.
    #[inline(always)]
    pub(crate) fn lock_place(self) -> Place {
        self.word_at(HEAD_BYTES)
    }

    /// What the node has behind that.
    #[inline(always)]
    pub(super) fn body<P: Policy, B>(self) -> Link<B> {
        self.in_body::<P>(0).cast()
    }

    /// Where the word is that begins so many bytes after the beginning of the node's body.
    #[inline(always)]
    pub(super) fn in_body<P: Policy>(self, offset: usize) -> Place {
        self.word_at(HEAD_BYTES + P::LOCK_BYTES + offset)
    }

    /// Where the word is that begins so many bytes after the node.
    #[inline(always)]
    pub(super) fn word_at(self, offset: usize) -> Place {
        Link::from_bits((self.0 & !LOW_BITS) + offset as u64)
    }

    /// Where the child of the key is that ends at the node's branch position.
    #[inline(always)]
    pub(super) fn end_place(self) -> Place {
        self.word_at(offset_of!(Head, end))
    }

    /// Where the node's child number `entry` is.
    #[inline(always)]
    pub(super) fn child_place<P: Policy>(self, entry: usize) -> Place {
        self.word_at(self.kind().children_offset::<P>() + 8 * entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_link_kind_and_position_up_to_the_longest_key() {
        for position in [0, 1, 7, 0x7FFF, 0xFFFF] {
            for kind in Kind::ALL {
                let link = Link::from_bits(0x7FFF_FFFF_FFF0);
                let child = Child::node(link, kind, position);
                assert_eq!(child.head(), link);
                assert_eq!((child.position::<[u8]>(), child.kind()), (position, kind));
                assert!(!child.is_leaf() && !child.is_malformed::<[u8]>());
                assert!(Child(child.0 | 8).is_malformed::<[u8]>());
            }
        }
    }

    #[test]
    fn nodes_grow_when_they_are_full_and_shrink_when_they_are_less_than_half_full() {
        assert_eq!(Kind::Four.for_count(4), Kind::Four);
        assert_eq!(Kind::Four.for_count(5), Kind::Sixteen);
        assert_eq!(Kind::Sixteen.for_count(17), Kind::FortyEight);
        assert_eq!(Kind::FortyEight.for_count(49), Kind::Full);
        assert_eq!(Kind::Full.for_count(38), Kind::Full);
        assert_eq!(Kind::Full.for_count(37), Kind::FortyEight);
        assert_eq!(Kind::FortyEight.for_count(12), Kind::Sixteen);
        assert_eq!(Kind::Sixteen.for_count(4), Kind::Sixteen);
        assert_eq!(Kind::Sixteen.for_count(3), Kind::Four);
    }
}
