//! The subjects of the indexes: both kinds of keys, and what needs a run of its own.

use lapis_device::Modelled;
use lapis_index::{
    ArtCow, FastFair, FpTree, Index, IndexOptions, NvTree, PClht, WbTree, WbTreeSlot, Woart, Wort,
};

use super::Structure;
use super::each_subject::Subjects;
use crate::erased::AnySubject;
use crate::subjects::IndexSubject;

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

fn with_integers<I: Index<Modelled, u64>>(
    structure: Structure,
    name: &'static str,
    keys: u64,
) -> IndexSubject<I, u64> {
    let IndexSetting { sources, options } = IndexSetting::of(structure);
    IndexSubject::new(name, sources, options, keys)
}

/// An index with integer keys, then with byte strings.
fn both<I: Index<Modelled, u64> + 'static, B: Index<Modelled, [u8]> + 'static>(
    structure: Structure,
    names: [&'static str; 2],
    keys: u64,
) -> Subjects {
    let IndexSetting { sources, options } = IndexSetting::of(structure);
    vec![
        Box::new(with_integers::<I>(structure, names[0], keys)),
        Box::new(IndexSubject::<B, [u8]>::new(names[1], sources, options, keys)),
    ]
}

/// An index from which keys are removed in order.
fn drained<I: Index<Modelled, u64> + 'static>(
    structure: Structure,
    name: &'static str,
) -> Box<dyn AnySubject> {
    Box::new(with_integers::<I>(structure, name, KEYS / 2).draining())
}

/// An adaptive radix tree with nodes of the largest kind, that come and go.
fn wide<I: Index<Modelled, u64> + 'static>(
    structure: Structure,
    name: &'static str,
) -> Box<dyn AnySubject> {
    Box::new(with_integers::<I>(structure, name, KEYS).filled(KEYS).draining())
}

pub(super) fn subjects(structure: Structure) -> Subjects {
    let mut subjects = Subjects::new();
    match structure {
        Structure::Wort => {
            let names = ["wort:u64", "wort:bytes"];
            subjects.extend(both::<Wort<_, u64>, Wort<_, [u8]>>(structure, names, KEYS));
        }
        Structure::FastFair => {
            let names = ["fast-fair:u64", "fast-fair:bytes"];
            subjects.extend(both::<FastFair<_, u64>, FastFair<_, [u8]>>(structure, names, KEYS));
            subjects.push(drained::<FastFair<_, u64>>(structure, "fast-fair:drained"));
        }
        Structure::PClht => {
            let names = ["p-clht:u64", "p-clht:bytes"];
            subjects.extend(both::<PClht<_, u64>, PClht<_, [u8]>>(structure, names, 4 * KEYS));
        }
        Structure::Woart => {
            let names = ["woart:u64", "woart:bytes"];
            subjects.extend(both::<Woart<_, u64>, Woart<_, [u8]>>(structure, names, KEYS));
            subjects.push(wide::<Woart<_, u64>>(structure, "woart:wide"));
        }
        Structure::ArtCow => {
            let names = ["art-cow:u64", "art-cow:bytes"];
            subjects.extend(both::<ArtCow<_, u64>, ArtCow<_, [u8]>>(structure, names, KEYS));
            subjects.push(wide::<ArtCow<_, u64>>(structure, "art-cow:wide"));
        }
        Structure::WbTree => {
            let names = ["wb-tree:u64", "wb-tree:bytes"];
            subjects.extend(both::<WbTree<_, u64>, WbTree<_, [u8]>>(structure, names, KEYS));
            subjects.push(drained::<WbTree<_, u64>>(structure, "wb-tree:drained"));
        }
        Structure::WbTreeSlot => {
            let names = ["wb-tree-slot:u64", "wb-tree-slot:bytes"];
            subjects
                .extend(both::<WbTreeSlot<_, u64>, WbTreeSlot<_, [u8]>>(structure, names, KEYS));
        }
        Structure::NvTree => {
            let names = ["nv-tree:u64", "nv-tree:bytes"];
            subjects.extend(both::<NvTree<_, u64>, NvTree<_, [u8]>>(structure, names, KEYS));
            subjects.push(drained::<NvTree<_, u64>>(structure, "nv-tree:drained"));
        }
        Structure::FpTree => {
            let names = ["fptree:u64", "fptree:bytes"];
            subjects.extend(both::<FpTree<_, u64>, FpTree<_, [u8]>>(structure, names, KEYS));
            subjects.push(drained::<FpTree<_, u64>>(structure, "fptree:drained"));
        }
        _ => {}
    }
    subjects
}
