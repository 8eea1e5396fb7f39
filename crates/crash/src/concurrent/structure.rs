//! Structures with several workers, by the names they have on the command line.

use lapis_device::Modelled;
use lapis_index::{
    ArtCow, FastFair, FpTree, IndexOptions, NvTree, PClht, WbTree, WbTreeSlot, Woart, Wort,
};

use super::explore::{ConcurrentOptions, ConcurrentReport, explore_concurrent};
use super::subject::ConcurrentSubject;
use super::subjects::{ConcurrentAllocator, ConcurrentIndex, ConcurrentPopLog, ConcurrentStore};
use crate::structure::{ART, CrashError, Progress, RADIX, Structure};

/// Keys that the structure has before a history begins, at most.
const KEYS: u64 = 64;

/// Explores a structure with several workers: for an index, with both kinds of keys. `only`
/// restricts it to the subject of that name.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn explore_structure_concurrently(
    structure: Structure,
    only: Option<&str>,
    options: &ConcurrentOptions,
    progress: &Progress<'_>,
) -> Result<ConcurrentReport, CrashError> {
    let mut total = ConcurrentReport {
        structure: structure.name().to_owned(),
        workers: options.workers,
        seed: options.seed,
        ops: options.ops,
        complete: options.most_deviations.map(|_| true),
        ..ConcurrentReport::default()
    };
    let small = IndexOptions { node_bytes: 256, ..Default::default() };
    let tight = IndexOptions { expected_entries: 1, ..Default::default() };
    let mut explorer = Explorer { structure, only, options, progress, total: &mut total };
    match structure {
        Structure::Wort => {
            let source = "index/src/wort";
            let options = IndexOptions::default();
            explorer.explore(
                &ConcurrentIndex::<Wort<Modelled, u64>, u64>::new(
                    "wort:u64",
                    source,
                    options.clone(),
                    KEYS,
                )
                .and_source(RADIX),
            )?;
            explorer.explore(
                &ConcurrentIndex::<Wort<Modelled, [u8]>, [u8]>::new(
                    "wort:bytes",
                    source,
                    options,
                    KEYS,
                )
                .and_source(RADIX),
            )?;
        }
        Structure::FastFair => {
            let source = "index/src/fast_fair";
            explorer.explore(&ConcurrentIndex::<FastFair<Modelled, u64>, u64>::new(
                "fast-fair:u64",
                source,
                small.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<FastFair<Modelled, [u8]>, [u8]>::new(
                "fast-fair:bytes",
                source,
                small,
                KEYS,
            ))?;
        }
        Structure::PClht => {
            let source = "index/src/p_clht";
            explorer.explore(&ConcurrentIndex::<PClht<Modelled, u64>, u64>::new(
                "p-clht:u64",
                source,
                tight.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<PClht<Modelled, [u8]>, [u8]>::new(
                "p-clht:bytes",
                source,
                tight,
                KEYS,
            ))?;
        }
        Structure::Woart => {
            let options = IndexOptions::default();
            explorer.explore(
                &ConcurrentIndex::<Woart<Modelled, u64>, u64>::new(
                    "woart:u64",
                    ART,
                    options.clone(),
                    KEYS,
                )
                .and_source(RADIX),
            )?;
            explorer.explore(
                &ConcurrentIndex::<Woart<Modelled, [u8]>, [u8]>::new(
                    "woart:bytes",
                    ART,
                    options,
                    KEYS,
                )
                .and_source(RADIX),
            )?;
        }
        Structure::ArtCow => {
            let options = IndexOptions::default();
            explorer.explore(
                &ConcurrentIndex::<ArtCow<Modelled, u64>, u64>::new(
                    "art-cow:u64",
                    ART,
                    options.clone(),
                    KEYS,
                )
                .and_source(RADIX),
            )?;
            explorer.explore(
                &ConcurrentIndex::<ArtCow<Modelled, [u8]>, [u8]>::new(
                    "art-cow:bytes",
                    ART,
                    options,
                    KEYS,
                )
                .and_source(RADIX),
            )?;
        }
        Structure::WbTree => {
            let source = "index/src/wb_tree";
            explorer.explore(&ConcurrentIndex::<WbTree<Modelled, u64>, u64>::new(
                "wb-tree:u64",
                source,
                small.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<WbTree<Modelled, [u8]>, [u8]>::new(
                "wb-tree:bytes",
                source,
                small,
                KEYS,
            ))?;
        }
        Structure::WbTreeSlot => {
            let source = "index/src/wb_tree";
            let options = IndexOptions::default();
            explorer.explore(&ConcurrentIndex::<WbTreeSlot<Modelled, u64>, u64>::new(
                "wb-tree-slot:u64",
                source,
                options.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<WbTreeSlot<Modelled, [u8]>, [u8]>::new(
                "wb-tree-slot:bytes",
                source,
                options,
                KEYS,
            ))?;
        }
        Structure::NvTree => {
            let source = "index/src/nv_tree";
            let least = IndexOptions { node_bytes: 128, ..Default::default() };
            explorer.explore(&ConcurrentIndex::<NvTree<Modelled, u64>, u64>::new(
                "nv-tree:u64",
                source,
                least.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<NvTree<Modelled, [u8]>, [u8]>::new(
                "nv-tree:bytes",
                source,
                least,
                KEYS,
            ))?;
        }
        Structure::FpTree => {
            let source = "index/src/fp_tree";
            explorer.explore(&ConcurrentIndex::<FpTree<Modelled, u64>, u64>::new(
                "fp-tree:u64",
                source,
                small.clone(),
                KEYS,
            ))?;
            explorer.explore(&ConcurrentIndex::<FpTree<Modelled, [u8]>, [u8]>::new(
                "fp-tree:bytes",
                source,
                small,
                KEYS,
            ))?;
        }
        Structure::PopLog => explorer.explore(&ConcurrentPopLog)?,
        Structure::Store => explorer.explore(&ConcurrentStore)?,
        Structure::Allocator => explorer.explore(&ConcurrentAllocator::default())?,
        _ => return Err(CrashError::OneWorkerOnly { structure: structure.name() }),
    }
    Ok(total)
}

struct Explorer<'e> {
    structure: Structure,
    only: Option<&'e str>,
    options: &'e ConcurrentOptions,
    progress: &'e Progress<'e>,
    total: &'e mut ConcurrentReport,
}

impl Explorer<'_> {
    fn explore<S: ConcurrentSubject>(&mut self, subject: &S) -> Result<(), CrashError> {
        let name = subject.name();
        if self.only.is_some_and(|only| only != name && only != self.structure.name()) {
            return Ok(());
        }
        let base = self.total.images;
        let report = explore_concurrent(subject, self.options, &|images| {
            (self.progress)(base + images);
        })
        .map_err(|what| CrashError::Failed { structure: name, what })?;
        let total = &mut *self.total;
        total.schedules += report.schedules;
        total.events += report.events;
        total.crash_points += report.crash_points;
        total.images += report.images;
        total.distinct_states += report.distinct_states;
        total.seconds += report.seconds;
        total.images_per_s = total.images as f64 / total.seconds.max(1e-9);
        total.complete = total.complete.map(|all| all && report.complete == Some(true));
        total.violations.extend(report.violations);
        total.persist_points.extend(report.persist_points);
        Ok(())
    }
}
