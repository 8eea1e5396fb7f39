//! What a slot holds.

use lapis_pmem::Link;

use super::node::NodeHead;
use crate::radix::{LEAF_BIT, LOW_BITS, Leaf};

const HEIGHT_SHIFT: u32 = 48;

/// Nothing (zero), a leaf (a link and [`LEAF_BIT`]), or a node (a link and its height).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub u64);

impl Entry {
    pub const NONE: Self = Self(0);

    #[inline(always)]
    pub fn leaf(link: Link<Leaf>) -> Self {
        Self(link.bits() | LEAF_BIT)
    }

    #[inline(always)]
    pub fn node(link: Link<NodeHead>, height: u16) -> Self {
        Self(link.bits() | u64::from(height) << HEIGHT_SHIFT)
    }

    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub fn is_leaf(self) -> bool {
        self.0 & LEAF_BIT != 0
    }

    #[inline(always)]
    pub fn is_node(self) -> bool {
        !self.is_none() && !self.is_leaf()
    }

    /// The leaf, if it is one.
    #[inline(always)]
    pub fn as_leaf(self) -> Link<Leaf> {
        Link::from_bits(self.0 & !LOW_BITS)
    }

    /// The node, if it is one.
    #[inline(always)]
    pub fn as_node(self) -> Link<NodeHead> {
        Link::from_bits(self.0 & !LOW_BITS)
    }

    /// How many nodes lie above each other from here down, at most: more than of any entry below.
    #[inline(always)]
    pub fn height(self) -> u16 {
        (self.0 >> HEIGHT_SHIFT) as u16
    }

    /// Whether bits are set, or not, as in no word that was stored.
    pub fn is_malformed(self) -> bool {
        let low = self.0 & LOW_BITS;
        match self.is_leaf() {
            true => low != LEAF_BIT || self.height() != 0,
            false => low != 0 || (self.height() == 0 && !self.is_none()),
        }
    }
}
