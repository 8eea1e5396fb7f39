//! Persistent index structures of Lapis, one module each, under one pair of traits.
//!
//! Every index maps keys ([`IndexKey`]: fixed 8-byte integers, or byte strings of 1 to 65,535
//! bytes) to 8-byte values, is generic over the machine it runs on
//! ([`Domain`]), is safe for use by many threads, and has made a change durable
//! when the call that asked for it returns.

#[macro_use]
mod registry;

// One line for each structure, in the order of tables; `registry.rs` says what is on it.
registry! { ($)
    1 wort::Wort [ordered];
    2 fast_fair::FastFair [ordered];
    3 p_clht::PClht [];
    4 woart::Woart [ordered];
    5 art_cow::ArtCow [ordered];
    6 wb_tree::WbTree [ordered];
    9 wb_tree_slot::WbTreeSlot [ordered];
    7 nv_tree::NvTree [ordered rebuilt];
    8 fptree::FpTree [ordered rebuilt];
    12 p_art::PArt [ordered];
    13 p_hot::PHot [ordered];
    14 p_masstree::PMasstree [ordered];
    15 p_bwtree::PBwTree [ordered];
    10 cceh::Cceh [];
    11 level_hash::LevelHash [];
}

mod any_index;
mod art;
mod capability;
mod declaration;
mod entries_by_part;
mod error;
mod group_search;
mod hash_table;
mod in_turns;
mod index;
mod integer_order;
mod key;
mod leaf_entries;
mod leaf_list;
mod leaf_locks;
mod node_size;
mod problems;
mod radix;
mod range;
mod root;

use lapis_pmem::Domain;

pub use any_index::{AnyIndex, INDEXES_HERE, IndexMaker, SomeIndex};
pub use capability::{CapabilityRow, capability_table};
pub use declaration::{Declaration, Exploration, History, IndexFamily, IndexOf, InsertCost, Run};
pub use entries_by_part::EntriesByPart;
pub use error::IndexError;
pub use index::{
    Capabilities, Change, Direction, Index, IndexOptions, InnerNodes, LOOK_UPS_AT_ONCE, OnValue,
    OrderedIndex, Outcome, RoomNeeded, Statistics,
};
pub use key::{IndexKey, KeyBlob, KeyKind, KeyWord, MAX_KEY_BYTES, place_hash};
pub use leaf_entries::{LeafEntries, OnLeaf};
pub use nv_tree::InnerRebuilds;
pub use range::Range;
pub use root::IndexRoot;
pub use wb_tree::{BitmapAndSlots, SlotsOnly, WbTreeNodeKind};
