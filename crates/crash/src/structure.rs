//! Structures by the names they have on the command line.

use std::fmt;
use std::str::FromStr;

mod cells;
mod each_subject;
pub(crate) mod indexes;
mod logs;
mod pages;
mod runs;

pub(crate) use runs::each_run;
pub use runs::{explore_structure, structure_persist_points, structure_points};

/// Told now and then how many images have been tried.
pub type Progress<'p> = dyn Fn(u64) + Sync + 'p;

/// Why an exploration could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrashError {
    /// No structure of that name.
    #[error("there is no structure {name:?}; choose one of {}", Structure::names())]
    UnknownStructure {
        /// The name.
        name: String,
    },
    /// No histories of several workers are made for it.
    #[error(
        "{structure} is explored with one worker only; several are for the indexes, pop-log, \
         allocator and store"
    )]
    OneWorkerOnly {
        /// The structure.
        structure: &'static str,
    },
    /// There is no such operation, or call, to be kept.
    #[error("there is no operation {number} to keep: they are numbered from 1 to {count}")]
    NoSuchOperation {
        /// What was asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// The crash to replay is not one that these operations lead to.
    #[error(
        "no power cut after {position} events leaves such an image of {structure}; give every option \
         of the command that was printed, or explore without --at and --image"
    )]
    NoSuchCrash {
        /// The structure.
        structure: &'static str,
        /// Events before the crash.
        position: usize,
    },
    /// It failed without any crash.
    #[error("{structure} fails without any crash: {what}")]
    Failed {
        /// The structure.
        structure: &'static str,
        /// What went wrong.
        what: String,
    },
}

impl CrashError {
    /// Whether all numbers are of `count` operations that are numbered from 1 on.
    pub(crate) fn check_kept(numbers: &[usize], count: usize) -> Result<(), Self> {
        match numbers.iter().find(|number| !(1..=count).contains(number)) {
            Some(&number) => Err(Self::NoSuchOperation { number, count }),
            None => Ok(()),
        }
    }
}

/// Something that can be explored by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// WORT.
    Wort,
    /// FAST & FAIR.
    FastFair,
    /// P-CLHT.
    PClht,
    /// WOART.
    Woart,
    /// ART+CoW.
    ArtCow,
    /// wB+-Tree.
    WbTree,
    /// wB+-Tree, slots only.
    WbTreeSlot,
    /// NV-Tree.
    NvTree,
    /// FPTree.
    FpTree,
    /// The classic log.
    ClassicLog,
    /// The header log.
    HeaderLog,
    /// RAWL.
    Rawl,
    /// The PopLog.
    PopLog,
    /// Pages by copy-on-write, and its variant for comparison that has checksums.
    PageCow,
    /// Pages by µlog.
    PageMulog,
    /// Pages by either, as a cost model says.
    PageHybrid,
    /// Copy-on-write cells.
    CowCell,
    /// Cells with a redo log.
    LogCell,
    /// Failure-atomic memory.
    FamCell,
    /// Leaves as FPTree has them, whose operations are interleaved.
    FpLeaves,
    /// The PopLog in a ring.
    PopRing,
    /// The allocator and the pool.
    Allocator,
    /// The store.
    Store,
}

impl Structure {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Wort,
        Self::FastFair,
        Self::PClht,
        Self::Woart,
        Self::ArtCow,
        Self::WbTree,
        Self::WbTreeSlot,
        Self::NvTree,
        Self::FpTree,
        Self::ClassicLog,
        Self::HeaderLog,
        Self::Rawl,
        Self::PopLog,
        Self::PopRing,
        Self::CowCell,
        Self::LogCell,
        Self::FamCell,
        Self::PageCow,
        Self::PageMulog,
        Self::PageHybrid,
        Self::FpLeaves,
        Self::Allocator,
        Self::Store,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wort => "wort",
            Self::FastFair => "fast-fair",
            Self::PClht => "p-clht",
            Self::Woart => "woart",
            Self::ArtCow => "art-cow",
            Self::WbTree => "wb-tree",
            Self::WbTreeSlot => "wb-tree-slot",
            Self::NvTree => "nv-tree",
            Self::FpTree => "fptree",
            Self::ClassicLog => "classic-log",
            Self::HeaderLog => "header-log",
            Self::Rawl => "rawl",
            Self::PopLog => "pop-log",
            Self::PageCow => "page-cow",
            Self::PageMulog => "page-mulog",
            Self::PageHybrid => "page-hybrid",
            Self::CowCell => "cow-cell",
            Self::LogCell => "log-cell",
            Self::FamCell => "fam-cell",
            Self::FpLeaves => "fp-leaves",
            Self::PopRing => "pop-ring",
            Self::Allocator => "allocator",
            Self::Store => "store",
        }
    }

    /// Whether histories of several workers are made for it.
    pub fn takes_workers(self) -> bool {
        match self {
            Self::Wort
            | Self::FastFair
            | Self::PClht
            | Self::Woart
            | Self::ArtCow
            | Self::WbTree
            | Self::WbTreeSlot
            | Self::NvTree
            | Self::FpTree
            | Self::PopLog
            | Self::Allocator
            | Self::Store => true,
            Self::ClassicLog
            | Self::HeaderLog
            | Self::Rawl
            | Self::PageCow
            | Self::PageMulog
            | Self::PageHybrid
            | Self::CowCell
            | Self::LogCell
            | Self::FamCell
            | Self::FpLeaves
            | Self::PopRing => false,
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = CrashError;

    /// Index names may carry the kind of their keys behind a colon, as replay commands do.
    fn from_str(name: &str) -> Result<Self, CrashError> {
        let base = name.split_once(':').map_or(name, |(base, _)| base);
        Self::ALL
            .into_iter()
            .find(|structure| structure.name() == base)
            .ok_or_else(|| CrashError::UnknownStructure { name: name.to_owned() })
    }
}
