//! What makes two structures of one: the kind of nodes.

use crate::IndexKind;

/// A kind of nodes, and the structure that has it: [`BitmapAndSlots`] or [`SlotsOnly`].
pub trait WbTreeNodeKind: Sealed + Send + Sync + std::fmt::Debug + 'static {
    /// The structure with such nodes.
    const KIND: IndexKind;
}

/// The nodes of a [`WbTree`](crate::WbTree) unless others are asked for: a bitmap says which entries
/// count, and whether the slot array, which has their order, is right. Up to 63 entries;
/// [`IndexOptions::node_bytes`](crate::IndexOptions::node_bytes) can make nodes smaller.
#[derive(Clone, Copy, Debug)]
pub enum BitmapAndSlots {}

/// The nodes of a [`WbTreeSlot`](crate::WbTreeSlot): the slot array is part of one word, which says
/// both how many entries count and in which order. 7 entries.
#[derive(Clone, Copy, Debug)]
pub enum SlotsOnly {}

impl WbTreeNodeKind for BitmapAndSlots {
    const KIND: IndexKind = IndexKind::WbTree;
}

impl WbTreeNodeKind for SlotsOnly {
    const KIND: IndexKind = IndexKind::WbTreeSlot;
}

/// The kinds of nodes, by their numbers on the medium. Public in name only, for [`Sealed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum WbTreeNodes {
    /// [`BitmapAndSlots`].
    BitmapAndSlots = 1,
    /// [`SlotsOnly`].
    SlotsOnly = 2,
}

/// Keeps others from adding kinds of nodes.
pub trait Sealed {
    /// The kind.
    const NODES: WbTreeNodes;
}

impl Sealed for BitmapAndSlots {
    const NODES: WbTreeNodes = WbTreeNodes::BitmapAndSlots;
}

impl Sealed for SlotsOnly {
    const NODES: WbTreeNodes = WbTreeNodes::SlotsOnly;
}
