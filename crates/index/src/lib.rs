//! Persistent index structures of Lapis, one module each, under one pair of traits.
//!
//! Every index maps keys ([`IndexKey`]: fixed 8-byte integers, or byte strings of 1 to 65,535
//! bytes) to 8-byte values, is generic over the machine it runs on
//! ([`Domain`](lapis_pmem::Domain)), is safe for use by many threads, and has made a change durable
//! when the call that asked for it returns.

mod art;
mod art_cow;
mod capability;
mod entries_by_part;
mod fast_fair;
mod fptree;
mod index;
mod key;
pub mod mutants;
mod node_size;
mod nv_tree;
mod p_clht;
mod radix;
mod root;
mod wb_tree;
mod woart;
mod wort;

pub use art_cow::ArtCow;
pub use capability::{CapabilityRow, InsertCost, capability_table};
pub use entries_by_part::EntriesByPart;
pub use fast_fair::FastFair;
pub use fptree::FpTree;
pub use index::{
    Capabilities, Change, Direction, Index, IndexError, IndexOptions, InnerNodes, OrderedIndex,
    Outcome, Range, Statistics,
};
pub use key::{IndexKey, KeyBlob, KeyWord, MAX_KEY_BYTES};
pub use nv_tree::{InnerRebuilds, NvTree};
pub use p_clht::PClht;
pub use root::{IndexKind, IndexRoot, KeyKind};
pub use wb_tree::{BitmapAndSlots, SlotsOnly, WbTree, WbTreeNodeKind, WbTreeSlot};
pub use woart::Woart;
pub use wort::Wort;
