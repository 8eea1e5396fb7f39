//! Structures with several workers, by the names they have on the command line.

use lapis_blocks::log::Placement;
use lapis_device::Modelled;
use lapis_index::{
    ArtCow, FastFair, FpTree, Index, NvTree, PClht, WbTree, WbTreeSlot, Woart, Wort,
};

use super::explore::{ConcurrentOptions, ConcurrentReport, explore_any};
use super::linearizability::MapAction;
use super::subject::Plan;
use super::subjects::{
    ConcurrentAllocator, ConcurrentIndex, ConcurrentPopLog, ConcurrentStore, merged_node,
    split_node, unlinked_node,
};
use crate::erased::AnyConcurrentSubject;
use crate::structure::indexes::IndexSetting;
use crate::structure::{CrashError, Progress, Structure};

/// Keys that the structure has before a history begins, at most.
const KEYS: u64 = 64;

/// Histories that are made for one error each, in which a scheduler need deviate only once from
/// running worker after worker. They are explored when asked for by name.
pub(crate) const PLANNED_HISTORIES: [&str; 8] = [
    "wort:splitting",
    "wort:unlinking",
    "woart:splitting",
    "woart:unlinking",
    "art-cow:splitting",
    "art-cow:unlinking",
    "wb-tree:merging",
    "wb-tree-slot:merging",
];
/// Workers of each.
pub(crate) const PLANNED_WORKERS: usize = 2;

/// Explores a structure with several workers: for an index, with both kinds of keys. `only`
/// restricts it to the subject of that name.
///
/// # Errors
/// [`CrashError::Failed`]; [`CrashError::UnknownSubject`] if there is none of that name;
/// [`CrashError::OneWorkerOnly`].
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
    let (passed_over, explored) = (Vec::new(), false);
    let mut explorer =
        Explorer { structure, only, options, progress, total: &mut total, passed_over, explored };
    match structure {
        Structure::Wort => {
            explorer.explore_index::<Wort<_, u64>, Wort<_, [u8]>>(["wort:u64", "wort:bytes"])?;
            explorer.explore_planned::<Wort<_, u64>>("wort:splitting", split_node)?;
            explorer.explore_planned::<Wort<_, u64>>("wort:unlinking", unlinked_node)?;
        }
        Structure::FastFair => {
            explorer.explore_index::<FastFair<_, u64>, FastFair<_, [u8]>>([
                "fast-fair:u64",
                "fast-fair:bytes",
            ])?;
        }
        Structure::PClht => {
            explorer
                .explore_index::<PClht<_, u64>, PClht<_, [u8]>>(["p-clht:u64", "p-clht:bytes"])?;
        }
        Structure::Woart => {
            explorer
                .explore_index::<Woart<_, u64>, Woart<_, [u8]>>(["woart:u64", "woart:bytes"])?;
            explorer.explore_planned::<Woart<_, u64>>("woart:splitting", split_node)?;
            explorer.explore_planned::<Woart<_, u64>>("woart:unlinking", unlinked_node)?;
        }
        Structure::ArtCow => {
            explorer.explore_index::<ArtCow<_, u64>, ArtCow<_, [u8]>>([
                "art-cow:u64",
                "art-cow:bytes",
            ])?;
            explorer.explore_planned::<ArtCow<_, u64>>("art-cow:splitting", split_node)?;
            explorer.explore_planned::<ArtCow<_, u64>>("art-cow:unlinking", unlinked_node)?;
        }
        Structure::WbTree => {
            explorer.explore_index::<WbTree<_, u64>, WbTree<_, [u8]>>([
                "wb-tree:u64",
                "wb-tree:bytes",
            ])?;
            let plan = || merged_node(8);
            explorer.explore_planned::<WbTree<_, u64>>("wb-tree:merging", plan)?;
        }
        Structure::WbTreeSlot => {
            explorer.explore_index::<WbTreeSlot<_, u64>, WbTreeSlot<_, [u8]>>([
                "wb-tree-slot:u64",
                "wb-tree-slot:bytes",
            ])?;
            let plan = || merged_node(7);
            explorer.explore_planned::<WbTreeSlot<_, u64>>("wb-tree-slot:merging", plan)?;
        }
        Structure::NvTree => {
            explorer.explore_index::<NvTree<_, u64>, NvTree<_, [u8]>>([
                "nv-tree:u64",
                "nv-tree:bytes",
            ])?;
        }
        Structure::FpTree => {
            explorer
                .explore_index::<FpTree<_, u64>, FpTree<_, [u8]>>(["fptree:u64", "fptree:bytes"])?;
        }
        Structure::PopLog => {
            for (name, placement) in
                [("pop-log:padded", Placement::Padded), ("pop-log:streamed", Placement::Streamed)]
            {
                explorer.explore(&ConcurrentPopLog { name, placement })?;
            }
        }
        Structure::Store => explorer.explore(&ConcurrentStore)?,
        Structure::Allocator => explorer.explore(&ConcurrentAllocator::default())?,
        _ => return Err(CrashError::OneWorkerOnly { structure: structure.name() }),
    }
    match (only, options.replay.position) {
        (Some(name), _) if !explorer.explored => {
            Err(CrashError::no_subject(structure, name, explorer.passed_over))
        }
        (_, Some(position)) if total.crash_points == 0 && total.violations.is_empty() => {
            Err(CrashError::NoSuchCrash { structure: structure.name(), position })
        }
        _ => Ok(total),
    }
}

struct Explorer<'e> {
    structure: Structure,
    only: Option<&'e str>,
    options: &'e ConcurrentOptions,
    progress: &'e Progress<'e>,
    total: &'e mut ConcurrentReport,
    /// The names of what was not asked for.
    passed_over: Vec<&'static str>,
    explored: bool,
}

impl Explorer<'_> {
    /// A history that is made for one error, and says little about the structure otherwise.
    fn explore_planned<I: Index<Modelled, u64> + 'static>(
        &mut self,
        name: &'static str,
        plan: fn() -> Plan<(u64, MapAction)>,
    ) -> Result<(), CrashError> {
        if self.only != Some(name) {
            self.passed_over.push(name);
            return Ok(());
        }
        let IndexSetting { sources, options } = IndexSetting::of(self.structure);
        let subject = ConcurrentIndex::<I, u64>::new(name, sources, options, KEYS).planned(plan);
        self.explore(&subject)
    }

    /// An index with integer keys, then with byte strings.
    fn explore_index<I: Index<Modelled, u64> + 'static, B: Index<Modelled, [u8]> + 'static>(
        &mut self,
        names: [&'static str; 2],
    ) -> Result<(), CrashError> {
        let IndexSetting { sources, options } = IndexSetting::of(self.structure);
        let integers = ConcurrentIndex::<I, u64>::new(names[0], sources, options.clone(), KEYS);
        self.explore(&integers)?;
        let strings = ConcurrentIndex::<B, [u8]>::new(names[1], sources, options, KEYS);
        self.explore(&strings)
    }

    fn explore(&mut self, subject: &dyn AnyConcurrentSubject) -> Result<(), CrashError> {
        let name = subject.name();
        if self.only.is_some_and(|only| only != name && only != self.structure.name()) {
            self.passed_over.push(name);
            return Ok(());
        }
        let plan = subject.plan(self.options.workers, self.options.ops, self.options.seed);
        let calls = plan.workers.iter().map(Vec::len).sum();
        let check = |numbers: &Option<Vec<u32>>, count| {
            let numbers = numbers.iter().flatten().map(|&number| number as usize);
            CrashError::check_kept(&numbers.collect::<Vec<_>>(), count)
        };
        check(&self.options.keep, calls)?;
        check(&self.options.keep_before, plan.before.len())?;
        self.explored = true;
        let base = self.total.images;
        let report = explore_any(subject, self.options, &|images| {
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
