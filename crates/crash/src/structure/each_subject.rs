//! The subjects that a structure is checked by.

use lapis_device::Modelled;
use lapis_index::{IndexOptions, PClht};

use super::{CrashError, Structure, cells, indexes, logs, pages};
use crate::subject::Subject;
use crate::subjects::{AllocatorSubject, FpLeavesSubject, IndexSubject, StoreSubject};

/// What is done with each subject of a structure.
pub(super) trait SubjectVisitor {
    /// Does it with this one.
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError>;
}

/// Passes on the subjects that are asked for.
struct Chosen<'v, V> {
    structure: Structure,
    only: Option<&'v str>,
    visitor: &'v mut V,
    /// The names of those that were not asked for.
    passed_over: Vec<&'static str>,
    visited: bool,
}

impl<V: SubjectVisitor> SubjectVisitor for Chosen<'_, V> {
    fn visit<S: Subject>(&mut self, subject: &S) -> Result<(), CrashError> {
        match self.only {
            Some(only) if only != subject.name() && only != self.structure.name() => {
                self.passed_over.push(subject.name());
                Ok(())
            }
            _ => {
                self.visited = true;
                self.visitor.visit(subject)
            }
        }
    }
}

/// Shows `visitor` each subject of a structure, or the one that `only` names.
///
/// # Errors
/// [`CrashError::UnknownSubject`], [`CrashError::SeveralWorkersOnly`] if there is none of that name:
/// what explores nothing must not look as if it had found nothing. Those of `visitor`.
pub(super) fn each_subject(
    structure: Structure,
    only: Option<&str>,
    visitor: &mut impl SubjectVisitor,
) -> Result<(), CrashError> {
    let mut chosen = Chosen { structure, only, visitor, passed_over: Vec::new(), visited: false };
    all_subjects(structure, &mut chosen)?;
    match only {
        Some(name) if !chosen.visited => {
            Err(CrashError::no_subject(structure, name, chosen.passed_over))
        }
        _ => Ok(()),
    }
}

fn all_subjects(structure: Structure, visitor: &mut impl SubjectVisitor) -> Result<(), CrashError> {
    match structure {
        Structure::Wort
        | Structure::FastFair
        | Structure::PClht
        | Structure::Woart
        | Structure::ArtCow
        | Structure::WbTree
        | Structure::WbTreeSlot
        | Structure::NvTree
        | Structure::FpTree => indexes::each_index(structure, visitor),
        Structure::ClassicLog
        | Structure::HeaderLog
        | Structure::Rawl
        | Structure::PopLog
        | Structure::PopRing => logs::each_log(structure, visitor),
        Structure::PageCow | Structure::PageMulog | Structure::PageHybrid => {
            pages::each_page(structure, visitor)
        }
        Structure::CowCell | Structure::LogCell | Structure::FamCell => {
            cells::each_cell(structure, visitor)
        }
        Structure::FpLeaves => visitor.visit(&FpLeavesSubject),
        Structure::Allocator => {
            visitor.visit(&AllocatorSubject::new("allocator:device", 0xA5))?;
            visitor.visit(&AllocatorSubject::new("allocator:file", 0))?;
            visitor.visit(&AllocatorSubject::new("allocator:growing", 0).growing())?;
            // A user with locks in its blocks, for the promise about generations.
            visitor.visit(&IndexSubject::<PClht<Modelled, u64>, u64>::new(
                "allocator:p-clht",
                &["pmem/src/pool"],
                IndexOptions::default(),
                4 * indexes::KEYS,
            ))
        }
        Structure::Store => visitor.visit(&StoreSubject),
    }
}
