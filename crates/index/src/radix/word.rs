//! What a slot holds.

use std::fmt::Debug;

use lapis_pmem::{Link, PCell};

use super::leaf::Leaf;
use crate::key::IndexKey;

/// Where a slot word or a value is.
pub type Place = Link<PCell<u64>>;

/// The bit that tells a leaf's word from a node's.
pub const LEAF_BIT: u64 = 1;
/// Below the link: blocks start at multiples of 16.
pub const LOW_BITS: u64 = 15;

/// A slot's contents: nothing (zero), a leaf (a link and [`LEAF_BIT`]), or a node with its branch
/// position.
pub trait SlotWord: Copy + Eq + Debug {
    /// Nothing.
    const NONE: Self;

    /// The word as it is stored.
    fn bits(self) -> u64;
    /// A word as it was stored.
    fn from_bits(bits: u64) -> Self;
    /// The node's branch position: the digit by which it chooses a child.
    fn position<K: IndexKey + ?Sized>(self) -> usize;
    /// Whether bits are set that neither a leaf's nor a node's word has.
    fn is_malformed<K: IndexKey + ?Sized>(self) -> bool;

    /// The word of a leaf.
    #[inline(always)]
    fn leaf(link: Link<Leaf>) -> Self {
        Self::from_bits(link.bits() | LEAF_BIT)
    }
    #[inline(always)]
    fn is_none(self) -> bool {
        self.bits() == 0
    }
    #[inline(always)]
    fn is_leaf(self) -> bool {
        self.bits() & LEAF_BIT != 0
    }
    /// The leaf, if [`SlotWord::is_leaf`].
    #[inline(always)]
    fn as_leaf(self) -> Link<Leaf> {
        Link::from_bits(self.bits() & !LOW_BITS)
    }
    /// Where the node's header is, which its block begins with, if neither a leaf nor nothing.
    #[inline(always)]
    fn header_place(self) -> Place {
        Link::from_bits(self.bits() & !LOW_BITS)
    }
}
