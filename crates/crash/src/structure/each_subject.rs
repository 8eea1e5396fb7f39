//! The subjects that a structure is checked by.

use lapis_engine::Placement;
use lapis_index::{IndexKind, IndexOptions};

use super::{CrashError, Structure, cells, indexes, logs, pages};
use crate::erased::Subjects;
use crate::options::ExploreOptions;
use crate::subjects::{
    AllocatorSubject, BlockLogSubject, FpLeavesSubject, IndexSubject, StoreSubject, TUNED_SPITFIRE,
};

/// The subjects of a structure, or the one that `only` names; without a name those that are long only if
/// `options` say so.
///
/// # Errors
/// [`CrashError::UnknownSubject`], [`CrashError::SeveralWorkersOnly`] if there is none of that name:
/// what explores nothing must not look as if it had found nothing.
pub(super) fn subjects_of(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
) -> Result<Subjects, CrashError> {
    let mut subjects = all_subjects(structure, options);
    let is_long = options.long_runs || options.filled > 0;
    if only.is_none_or(|only| only == structure.name()) && !is_long {
        subjects.retain(|subject| subject.first_operation() == 0);
    }
    if let Some(only) = only.filter(|only| *only != structure.name()) {
        let known = subjects.iter().map(|subject| subject.name()).collect();
        subjects.retain(|subject| subject.name() == only);
        if subjects.is_empty() {
            return Err(CrashError::no_subject(structure, only, known));
        }
    }
    Ok(subjects)
}

pub(super) fn all_subjects(structure: Structure, options: &ExploreOptions) -> Subjects {
    match structure {
        Structure::Index(kind) => indexes::subjects(kind, options),
        Structure::Log(kind) => logs::subjects(kind),
        Structure::Cell(kind) => cells::subjects(kind),
        Structure::Page(kind) => pages::subjects(kind),
        Structure::BlockLog => vec![
            Box::new(BlockLogSubject::new("block-log:ring")),
            Box::new(BlockLogSubject::new("block-log:growing").growing()),
            Box::new(BlockLogSubject::new("block-log:filling").filling()),
            Box::new(BlockLogSubject::new("block-log:failing-writes").failing()),
            Box::new(BlockLogSubject::new("block-log:pm").in_pool()),
        ],
        Structure::Store => vec![
            Box::new(StoreSubject::on_ssd("store:ssd")),
            Box::new(StoreSubject::in_pool("store:basic-nvm", Placement::BasicNvm)),
            Box::new(StoreSubject::in_pool("store:three-tier", Placement::ThreeTier)),
            Box::new(StoreSubject::in_pool("store:spitfire", TUNED_SPITFIRE)),
            Box::new(StoreSubject::nvm_direct("store:nvm-direct")),
            Box::new(StoreSubject::on_ssd("store:full-disk").on_full_disk()),
            Box::new(StoreSubject::in_pool("store:bulk", Placement::ThreeTier).in_bulk()),
            Box::new(StoreSubject::on_ssd("store:taken-back").that_takes_back()),
        ],
        Structure::FpLeaves => vec![Box::new(FpLeavesSubject)],
        Structure::Allocator => vec![
            Box::new(AllocatorSubject::new("allocator:device", 0xA5)),
            Box::new(AllocatorSubject::new("allocator:file", 0)),
            Box::new(AllocatorSubject::new("allocator:growing", 0).growing()),
            Box::new(AllocatorSubject::new("allocator:runs", 0).of_runs()),
            Box::new(AllocatorSubject::new("allocator:asking", 0).asking_too_much()),
            Box::new(AllocatorSubject::new("allocator:two-tables", 0xA5).of_two_tables()),
            // A user with locks in its blocks, for the promise about generations.
            Box::new(IndexSubject::<u64>::new(
                IndexKind::PClht,
                "allocator:p-clht",
                &["pmem/src/pool/"],
                IndexOptions::default(),
                640,
            )),
        ],
    }
}
