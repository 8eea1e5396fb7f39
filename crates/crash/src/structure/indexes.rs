//! The subjects of the indexes: both kinds of keys, and what needs a run of its own.

use lapis_device::Modelled;
use lapis_index::{
    ArtCow, FastFair, FpTree, Index, IndexOptions, NvTree, OrderedIndex, PClht, WbTree, WbTreeSlot,
    Woart, Wort,
};

use super::each_subject::SubjectVisitor;
use super::{CrashError, Structure};
use crate::subjects::{IndexSubject, KeySpace};

/// Keys that operations draw from: enough for several levels, few enough to meet again.
pub(super) const KEYS: u64 = 160;

/// What an index is made of and how it is created when it is explored.
pub(crate) struct IndexSetting {
    /// Parts of the paths of its source files.
    pub(crate) sources: &'static [&'static str],
    /// Such that nodes are split and tables grow within few operations.
    pub(crate) options: IndexOptions,
}

impl IndexSetting {
    /// That of `structure`.
    pub(crate) fn of(structure: Structure) -> Self {
        const RADIX: &str = "index/src/radix";
        const ART: &str = "index/src/art";
        let sources: &[&str] = match structure {
            Structure::Wort => &["index/src/wort", RADIX],
            Structure::Woart | Structure::ArtCow => &[ART, RADIX],
            Structure::FastFair => &["index/src/fast_fair"],
            Structure::WbTree | Structure::WbTreeSlot => &["index/src/wb_tree"],
            Structure::NvTree => &["index/src/nv_tree"],
            Structure::FpTree => &["index/src/fptree"],
            Structure::PClht => &["index/src/p_clht"],
            _ => &[],
        };
        let options = match structure {
            Structure::FastFair | Structure::WbTree | Structure::FpTree => {
                IndexOptions { node_bytes: 256, ..Default::default() }
            }
            // Four records to a leaf and eight leaves to a node above.
            Structure::NvTree => IndexOptions { node_bytes: 128, ..Default::default() },
            // Four buckets, so that the table grows more than once.
            Structure::PClht => IndexOptions { expected_entries: 1, ..Default::default() },
            _ => IndexOptions::default(),
        };
        Self { sources, options }
    }
}

/// One of its subjects.
fn subject<I: Index<Modelled, K>, K: KeySpace + ?Sized>(
    structure: Structure,
    name: &'static str,
    keys: u64,
) -> IndexSubject<I, K> {
    let IndexSetting { sources, options } = IndexSetting::of(structure);
    IndexSubject::new(name, sources, options, keys)
}

/// An index with integer keys, then with byte strings.
fn both<I: Index<Modelled, u64>, B: Index<Modelled, [u8]>>(
    structure: Structure,
    names: [&'static str; 2],
    keys: u64,
    visitor: &mut impl SubjectVisitor,
) -> Result<(), CrashError> {
    visitor.visit(&subject::<I, u64>(structure, names[0], keys))?;
    visitor.visit(&subject::<B, [u8]>(structure, names[1], keys))
}

/// The same, of indexes whose contents are found out by ranges of keys.
fn both_by_ranges<I: OrderedIndex<Modelled, u64>, B: OrderedIndex<Modelled, [u8]>>(
    structure: Structure,
    names: [&'static str; 2],
    visitor: &mut impl SubjectVisitor,
) -> Result<(), CrashError> {
    visitor.visit(&subject::<I, u64>(structure, names[0], KEYS).by_ranges())?;
    visitor.visit(&subject::<B, [u8]>(structure, names[1], KEYS).by_ranges())
}

/// An index from which keys are removed in order.
fn drained<I: Index<Modelled, u64>>(
    structure: Structure,
    name: &'static str,
) -> IndexSubject<I, u64> {
    subject(structure, name, KEYS / 2).draining()
}

/// An adaptive radix tree with nodes of the largest kind, that come and go.
fn wide<I: OrderedIndex<Modelled, u64>>(
    structure: Structure,
    name: &'static str,
) -> IndexSubject<I, u64> {
    subject(structure, name, KEYS).filled(KEYS).draining().by_ranges()
}

pub(super) fn each_index(
    structure: Structure,
    visitor: &mut impl SubjectVisitor,
) -> Result<(), CrashError> {
    match structure {
        Structure::Wort => {
            let names = ["wort:u64", "wort:bytes"];
            both_by_ranges::<Wort<_, u64>, Wort<_, [u8]>>(structure, names, visitor)
        }
        Structure::FastFair => {
            let names = ["fast-fair:u64", "fast-fair:bytes"];
            both_by_ranges::<FastFair<_, u64>, FastFair<_, [u8]>>(structure, names, visitor)?;
            let drained = drained::<FastFair<_, u64>>(structure, "fast-fair:drained");
            visitor.visit(&drained.by_ranges())
        }
        Structure::PClht => both::<PClht<_, u64>, PClht<_, [u8]>>(
            structure,
            ["p-clht:u64", "p-clht:bytes"],
            4 * KEYS,
            visitor,
        ),
        Structure::Woart => {
            let names = ["woart:u64", "woart:bytes"];
            both_by_ranges::<Woart<_, u64>, Woart<_, [u8]>>(structure, names, visitor)?;
            visitor.visit(&wide::<Woart<_, u64>>(structure, "woart:wide"))
        }
        Structure::ArtCow => {
            let names = ["art-cow:u64", "art-cow:bytes"];
            both_by_ranges::<ArtCow<_, u64>, ArtCow<_, [u8]>>(structure, names, visitor)?;
            visitor.visit(&wide::<ArtCow<_, u64>>(structure, "art-cow:wide"))
        }
        Structure::WbTree => {
            let names = ["wb-tree:u64", "wb-tree:bytes"];
            both_by_ranges::<WbTree<_, u64>, WbTree<_, [u8]>>(structure, names, visitor)?;
            visitor.visit(&drained::<WbTree<_, u64>>(structure, "wb-tree:drained").by_ranges())
        }
        Structure::WbTreeSlot => {
            let names = ["wb-tree-slot:u64", "wb-tree-slot:bytes"];
            both_by_ranges::<WbTreeSlot<_, u64>, WbTreeSlot<_, [u8]>>(structure, names, visitor)
        }
        // Their inner nodes are in the host's memory.
        Structure::NvTree => {
            let names = ["nv-tree:u64", "nv-tree:bytes"];
            both::<NvTree<_, u64>, NvTree<_, [u8]>>(structure, names, KEYS, visitor)?;
            visitor.visit(&drained::<NvTree<_, u64>>(structure, "nv-tree:drained"))
        }
        Structure::FpTree => {
            let names = ["fptree:u64", "fptree:bytes"];
            both::<FpTree<_, u64>, FpTree<_, [u8]>>(structure, names, KEYS, visitor)?;
            visitor.visit(&drained::<FpTree<_, u64>>(structure, "fptree:drained"))
        }
        _ => Ok(()),
    }
}
