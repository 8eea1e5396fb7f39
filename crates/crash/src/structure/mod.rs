//! Structures by the names they have on the command line.

use std::fmt;
use std::str::FromStr;

use lapis_index::IndexKind;
use lapis_pmem::MutantList;

use crate::concurrent::PLANNED_WORKERS;

mod cells;
mod each_subject;
mod indexes;
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
    /// None of what a structure is checked by has that name.
    #[error(
        "{structure} has nothing called {name:?}; choose {structure} for all that it has, or one of \
         {}",
        known.join(", ")
    )]
    UnknownSubject {
        /// The structure.
        structure: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// It is a history of several workers.
    #[error("{name} is a history of several workers: add --workers {PLANNED_WORKERS}")]
    SeveralWorkersOnly {
        /// The history.
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

    /// `name` is not one of those that there are.
    pub(crate) fn no_subject(structure: Structure, name: &str, known: Vec<&'static str>) -> Self {
        let name = name.to_owned();
        if is_history(&name) {
            return Self::SeveralWorkersOnly { name };
        }
        Self::UnknownSubject { structure: structure.name(), name, known }
    }
}

/// Something that can be explored by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// An index.
    Index(IndexKind),
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
    /// Those that are not in the list of indexes.
    const OTHERS: [Self; 14] = [
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

    /// All of them.
    pub const ALL: [Self; IndexKind::ALL.len() + Self::OTHERS.len()] = {
        let mut all = [Self::Store; _];
        let mut at = 0;
        while at < all.len() {
            all[at] = match at.checked_sub(IndexKind::ALL.len()) {
                None => Self::Index(IndexKind::ALL[at]),
                Some(at) => Self::OTHERS[at],
            };
            at += 1;
        }
        all
    };

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Index(kind) => kind.name(),
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
        matches!(self, Self::Index(_) | Self::PopLog | Self::Allocator | Self::Store)
    }

    /// The names of the histories that are made for one error each, in which a scheduler need deviate
    /// only once from running worker after worker. They are explored when asked for by name.
    pub fn histories(self) -> Vec<&'static str> {
        match self {
            Self::Index(kind) => {
                kind.declaration().exploration.histories.iter().map(|it| it.0).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The errors that it can be told to commit.
    pub fn mutants(self) -> MutantList {
        use lapis_blocks::{in_place, mutants, page, pop_log};
        match self {
            Self::Index(kind) => kind.declaration().mutants,
            Self::ClassicLog => mutants::CLASSIC_LOG,
            Self::HeaderLog => mutants::HEADER_LOG,
            Self::Rawl => mutants::RAWL,
            Self::PopRing => mutants::POP_RING,
            Self::PopLog => pop_log::mutants::CATALOGUE,
            Self::PageCow => page::mutants::PAGE_COW,
            Self::PageMulog => page::mutants::PAGE_MULOG,
            Self::PageHybrid => page::mutants::PAGE_HYBRID,
            Self::CowCell => in_place::mutants::COW_CELL,
            Self::LogCell => in_place::mutants::LOG_CELL,
            Self::FamCell => in_place::mutants::FAM_CELL,
            Self::FpLeaves => mutants::FP_LEAVES,
            Self::Allocator => lapis_pmem::allocator::mutants::CATALOGUE,
            Self::Store => lapis::mutants::CATALOGUE,
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

/// Whether a history of several workers is called so.
pub(crate) fn is_history(name: &str) -> bool {
    Structure::ALL.into_iter().any(|structure| structure.histories().contains(&name))
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = CrashError;

    /// What is behind a colon, as in replay commands, must be something that the structure has: the
    /// kind of an index's keys, a placement of a log's entries, a history made for one error.
    fn from_str(name: &str) -> Result<Self, CrashError> {
        let base = name.split_once(':').map_or(name, |(base, _)| base);
        let structure = Self::ALL
            .into_iter()
            .find(|structure| structure.name() == base)
            .ok_or_else(|| CrashError::UnknownStructure { name: name.to_owned() })?;
        let known = structure.subjects();
        if base == name || known.contains(&name) || is_history(name) {
            return Ok(structure);
        }
        Err(CrashError::no_subject(structure, name, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_a_structure_has_is_one_of_that_structure() {
        for structure in Structure::ALL {
            assert_eq!(structure.name().parse(), Ok(structure));
            for subject in structure.subjects().into_iter().chain(structure.histories()) {
                assert_eq!(subject.parse(), Ok(structure), "{subject}");
            }
        }
    }

    #[test]
    fn a_name_that_a_structure_does_not_have_is_refused_with_those_that_it_has() {
        for name in ["pop-log:sparse", "pop-log:", "pop-log:padded:"] {
            let refused = name.parse::<Structure>().unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("pop-log:streamed"), "{refused}");
        }
        assert!("pop-log:u64".parse::<Structure>().is_err());
        assert!(":u64".parse::<Structure>().is_err());
    }
}
