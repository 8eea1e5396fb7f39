//! Structures by the names they have on the command line.

use std::fmt;
use std::str::FromStr;

use lapis_blocks::{CellKind, LogKind, PageKind};
use lapis_index::IndexKind;
use lapis_pmem::{MutantList, Optimisations};

use crate::concurrent::subjects::ConcurrentStore;
use crate::concurrent::{ConcurrentSubject, PLANNED_WORKERS};
use crate::subjects::store::KINDS;

mod cells;
mod each_subject;
mod further;
mod indexes;
mod logs;
mod pages;
mod runs;

pub(crate) use further::explore_after_cuts;
pub use further::explore_further;
pub(crate) use logs::subject as log_subject;
pub(crate) use runs::each_run;
pub use runs::{
    explore_structure, persist_point_called, points_of_sources, structure_persist_points,
    structure_points,
};

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
         log-cell, block-log, allocator and store"
    )]
    OneWorkerOnly {
        /// The structure.
        structure: &'static str,
    },
    /// There is no such operation, or call, to be kept or to cut the power in.
    #[error("there is no operation {number}: they are numbered from 1 to {count}")]
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
        if is_of_several(&name) {
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
    /// A log.
    Log(LogKind),
    /// Cells that are updated in place.
    Cell(CellKind),
    /// Pages.
    Page(PageKind),
    /// The log on a block device.
    BlockLog,
    /// Leaves as FPTree has them, whose operations are interleaved.
    FpLeaves,
    /// The allocator and the pool.
    Allocator,
    /// The store: transactions over trees on pages.
    Store,
}

impl Structure {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        IndexKind::ALL
            .map(Self::Index)
            .into_iter()
            .chain(LogKind::ALL.map(Self::Log))
            .chain(CellKind::ALL.map(Self::Cell))
            .chain(PageKind::ALL.map(Self::Page))
            .chain([Self::BlockLog, Self::FpLeaves, Self::Allocator, Self::Store])
    }

    /// Whether its runs pass the code of another one, so that they commit that one's mutants.
    pub fn passes_code_of(self, part: Self) -> bool {
        match (self, part) {
            _ if part == self => true,
            (_, Self::Allocator) => true,
            // Its log, its pages in persistent memory, and its tables in indexes.
            (Self::Store, Self::BlockLog | Self::Page(_)) => true,
            (Self::Store, Self::Index(kind)) => KINDS.contains(&kind),
            (Self::Cell(kind), Self::Log(_)) => kind.takes_log(),
            _ => false,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Index(kind) => kind.name(),
            Self::Log(kind) => kind.name(),
            Self::Cell(kind) => kind.name(),
            Self::Page(kind) => kind.name(),
            Self::BlockLog => "block-log",
            Self::FpLeaves => "fp-leaves",
            Self::Allocator => "allocator",
            Self::Store => "store",
        }
    }

    /// Whether histories of several workers are made for it.
    pub fn takes_workers(self) -> bool {
        matches!(
            self,
            Self::Index(_)
                | Self::Log(LogKind::PopLog)
                | Self::Cell(CellKind::Log)
                | Self::BlockLog
                | Self::Allocator
                | Self::Store
        )
    }

    /// The names of the histories that are made for one error each, in which a scheduler need deviate
    /// only once from running worker after worker. They are explored when asked for by name.
    pub fn histories(self) -> Vec<&'static str> {
        match self {
            Self::Index(kind) => {
                kind.declaration().exploration.histories.iter().map(|it| it.0).collect()
            }
            Self::Store => ConcurrentStore::histories().map(|it| it.name()).to_vec(),
            _ => Vec::new(),
        }
    }

    /// The names of its runs that are made of several workers only, beside those of one worker that several make too.
    pub fn runs_of_several(self) -> &'static [&'static str] {
        if self == Self::Store { &[ConcurrentStore::IN_PARTS] } else { &[] }
    }

    /// None and all of the amplification study's optimisations, if it can be built without them.
    fn sets_of_optimisations(self) -> Vec<Optimisations> {
        match self {
            Self::Index(kind) if kind.declaration().optimisations != Optimisations::NONE => {
                vec![Optimisations::NONE, kind.declaration().optimisations]
            }
            _ => Vec::new(),
        }
    }

    /// The errors that it can be told to commit.
    pub fn mutants(self) -> MutantList {
        match self {
            Self::Index(kind) => kind.declaration().mutants,
            Self::Log(kind) => kind.declaration().mutants,
            Self::Cell(kind) => kind.declaration().mutants,
            Self::Page(kind) => kind.declaration().mutants,
            Self::BlockLog => lapis_blocks::block_log::mutants::CATALOGUE,
            Self::FpLeaves => lapis_blocks::mutants::FP_LEAVES,
            Self::Allocator => lapis_pmem::allocator::mutants::CATALOGUE,
            Self::Store => lapis_engine::mutants::ENGINE,
        }
    }

    fn names() -> String {
        Self::all().map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a history of several workers is called so.
pub(crate) fn is_history(name: &str) -> bool {
    Structure::all().any(|structure| structure.histories().contains(&name))
}

/// Whether what is called so takes several workers.
fn is_of_several(name: &str) -> bool {
    is_history(name) || Structure::all().any(|it| it.runs_of_several().contains(&name))
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = CrashError;

    /// What is behind a colon, as in replay commands, must be something that the structure has: the
    /// kind of an index's keys, a placement of a log's entries, a history made for one error, a run of several workers.
    fn from_str(name: &str) -> Result<Self, CrashError> {
        let base = name.split_once(':').map_or(name, |(base, _)| base);
        let structure = Self::all()
            .find(|structure| structure.name() == base)
            .ok_or_else(|| CrashError::UnknownStructure { name: name.to_owned() })?;
        let known = [structure.subjects(), structure.long_runs()].concat();
        if base == name || known.contains(&name) || is_of_several(name) {
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
        for structure in Structure::all() {
            assert_eq!(structure.name().parse(), Ok(structure));
            let of_several = structure.runs_of_several().to_vec();
            for subject in [structure.subjects(), structure.histories(), of_several].concat() {
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
