//! `lapis lab amplification`: what each index writes to persistent memory for an insert, after the
//! study of write amplification in IEEE Access 2021 (paper 004).
//!
//! An index is loaded with uniformly distributed 8-byte keys, and then asked: A is half inserts and half
//! lookups, B one insert in twenty, C lookups alone. All is modelled: logical workers interleaved by
//! their clocks, the study's caches and six modules. The study has 64 million keys; here are fewer, and the
//! caches are smaller in proportion, down to a few lines of each worker's own.
//!
//! A media write is counted in units of 64 bytes, as the study does. A lifetime is that of six modules of
//! 313 PBW each, which the study extrapolated, if the workload went on at the modelled rate.

use lapis_device::{CacheShape, Config, MachineShape, Profile};
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::Optimisations;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::experiment::memory::check_room;
use crate::experiment::meter::{ModelMeter, Section};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{
    ExperimentError, Findings, Sides, in_order, modelling_threads, section_of_tables,
};
use crate::index_experiment::engine::{count, with_smaller_caches};
use crate::index_experiment::plan::{Fresh, Step, plan};
use crate::index_experiment::{Contender, INITIAL_BYTES, Operation, room_bytes, wrong_answers};
use crate::keys::{Distribution, KeySet, scatter};
use crate::named::named;
use crate::plot::{Axis, Panel, Plot, Source};
use crate::progress::OnProgress;

/// The profile of the study's machine.
pub const PROFILE: &str = "amplification-study";
/// The section of a document that the table belongs in (module [`crate::document`]).
pub const COMMAND: &str = "lapis lab amplification";
/// Ordinary memory for a key, or an operation: itself, its step, and what an index has of it, about.
const BYTES_PER_KEY: u64 = 160;
/// What the study loads.
const STUDY_KEYS: usize = 64_000_000;
/// The least caches of a worker, which scaled ones would be smaller than.
const LEAST_L1_BYTES: usize = 4 << 10;
const LEAST_L2_BYTES: usize = 16 << 10;
/// Writes that a module of 128 GB endures, in bytes.
const ENDURED_BYTES: f64 = 313e15;
const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;

named! {
    /// The study's workloads.
    pub enum Workload {
        /// Inserts into an empty index.
        Load = "load",
        /// Half inserts, half lookups.
        A = "a",
        /// One insert in twenty.
        B = "b",
        /// Lookups.
        C = "c",
    }
}

impl Workload {
    fn inserts_percent(self) -> u32 {
        match self {
            Self::Load => 100,
            Self::A => 50,
            Self::B => 5,
            Self::C => 0,
        }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Structures.
    pub indexes: Vec<IndexKind>,
    /// Numbers of logical workers.
    pub threads: Vec<usize>,
    /// Keys to load.
    pub keys: usize,
    /// Operations of each other workload.
    pub operations: usize,
    /// With which of the study's optimisations, of those that concern a structure. None named: what is worth
    /// comparing of each ([`Optimisations::to_compare`]).
    pub optimisations: Vec<Optimisations>,
    /// The device profile.
    pub profile: String,
    /// What the random numbers start from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            indexes: IndexKind::ALL.to_vec(),
            threads: vec![1, 8, 28],
            keys: 200_000,
            operations: 100_000,
            optimisations: Vec::new(),
            profile: PROFILE.to_owned(),
            seed: 42,
        }
    }
}

/// One workload on one index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The structure.
    pub index: IndexKind,
    /// The workload.
    pub workload: Workload,
    /// Logical workers.
    pub threads: usize,
    /// Which of the study's optimisations it has, of those that concern it.
    #[serde(serialize_with = "as_text")]
    pub optimisations: Optimisations,
    /// Million operations per second of virtual time.
    pub mops: f64,
    /// Lines that entered the write pending queue for each insert; null without inserts.
    pub wpq_per_insert: Option<f64>,
    /// The same for each operation.
    pub wpq_per_operation: f64,
    /// Media writes for each insert, in units of 64 bytes; null without inserts.
    pub media_per_insert: Option<f64>,
    /// Media writes for each line that entered the queue; null if none did.
    pub media_per_wpq: Option<f64>,
    /// How long the modules endure the workload; null if it writes nothing.
    pub lifetime_years: Option<f64>,
}

fn as_text<S: serde::Serializer>(set: &Optimisations, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(set)
}

impl Row {
    /// Whether it is of the index as it is built.
    fn is_as_built(&self) -> bool {
        self.optimisations == Optimisations::AS_BUILT.among(self.index.declaration().optimisations)
    }
}

/// What `lab amplification` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Amplification {
    /// The device profile.
    pub profile: String,
    /// Keys that were loaded.
    pub keys: usize,
    /// Operations of each other workload.
    pub operations: usize,
    /// A row for each index, number of workers, set of optimisations and workload.
    pub rows: Vec<Row>,
}

/// The steps of each worker, and how many are inserts.
fn mixed_plan(
    workload: Workload,
    keys: &KeySet,
    fresh: &mut Fresh<'_>,
    options: &Options,
    threads: usize,
) -> (Vec<Vec<Step>>, usize) {
    let (loaded, requests) = (keys.loaded(), keys.requests());
    let mut random = SmallRng::seed_from_u64(scatter(options.seed ^ scatter(workload as u64)));
    let mut inserts = 0;
    let mut step = || {
        if random.random_range(0..100) < workload.inserts_percent()
            && let Some(&key) = fresh.take(1).first()
        {
            inserts += 1;
            return Step::Insert { key };
        }
        Step::Get { key: loaded[requests.next(&mut random)] }
    };
    let share = |thread: usize| options.operations * thread / threads;
    let plans = (0..threads)
        .map(|thread| (share(thread)..share(thread + 1)).map(|_| step()).collect())
        .collect();
    (plans, inserts)
}

/// The machine of a profile with caches that are to the keys what the study's are.
fn machine(profile: &Profile, keys: usize) -> MachineShape {
    let machine = profile.machine();
    let scaled = with_smaller_caches(machine, (keys as f64 / STUDY_KEYS as f64).min(1.0));
    let at_least = |cache: CacheShape, whole: CacheShape, least: usize| CacheShape {
        capacity_bytes: cache.capacity_bytes.max(least).min(whole.capacity_bytes),
        ..cache
    };
    let mut caches = scaled.caches;
    caches.l1 = at_least(caches.l1, machine.caches.l1, LEAST_L1_BYTES);
    caches.l2 = at_least(caches.l2, machine.caches.l2, LEAST_L2_BYTES);
    MachineShape { caches, ..machine }
}

/// An index, workers, and what it has of the optimisations that concern it.
type Case = (IndexKind, usize, Optimisations);

/// All workloads of a case.
fn session(
    &(index, threads, optimisations): &Case,
    options: &Options,
    profile: &Profile,
) -> Result<Vec<Row>, ExperimentError> {
    // An insert in two operations of A and in twenty of B, and some more than chance will have.
    let fresh = options.operations * 6 / 10 + 1024;
    let keys = KeySet::generate(Distribution::Uniform, options.keys, fresh, options.seed);
    let shape = machine(profile, options.keys);
    let room = room_bytes(options.keys + fresh);
    let config = Config { optimisations, ..Config::default() };
    let (meter, pool) = ModelMeter::with_pool_on(shape, INITIAL_BYTES, room, config)?;
    let subject =
        (Contender::from(index).on_model)(pool, &IndexOptions::default().with(optimisations))?;
    let operation_ns = profile.core.operation_ns.value.round() as u64;
    let modules = profile.memory.modules.value;
    let mut fresh = Fresh::new(&keys);
    let mut rows = Vec::new();
    for workload in Workload::ALL {
        let (steps, inserts) = if workload == Workload::Load {
            let none = &mut Fresh::new(&keys);
            let seed = options.seed;
            (plan(Operation::Load, &keys, none, options.keys, threads, seed), options.keys)
        } else {
            mixed_plan(workload, &keys, &mut fresh, options, threads)
        };
        let operations = steps.iter().map(Vec::len).sum();
        let (wrong, section) = count(&meter, &*subject, &steps, 1, operation_ns)?;
        if wrong > 0 {
            return Err(wrong_answers(index.name(), Operation::Load, wrong));
        }
        let case = (index, threads, optimisations);
        rows.push(row(case, workload, [operations, inserts], modules, &section));
    }
    Ok(rows)
}

fn row(
    (index, threads, optimisations): Case,
    workload: Workload,
    [operations, inserts]: [usize; 2],
    modules: u64,
    section: &Section,
) -> Row {
    let counts = section.counts();
    let (wpq, media) = (counts.wpq_inserts() as f64, counts.media_writes as f64);
    let each = |count: f64, of: f64| (of > 0.0).then(|| count / of);
    let seconds = section.picoseconds() as f64 / 1e12;
    let years = modules as f64 * ENDURED_BYTES * seconds / SECONDS_PER_YEAR;
    Row {
        index,
        workload,
        threads,
        optimisations,
        mops: section.mops(operations),
        wpq_per_insert: each(wpq, inserts as f64),
        wpq_per_operation: wpq / operations.max(1) as f64,
        media_per_insert: each(media, inserts as f64),
        media_per_wpq: each(media, wpq),
        lifetime_years: each(years, media * 64.0),
    }
}

/// Runs the experiment. The same on every run and every machine.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<Amplification, ExperimentError> {
    let bad = |what: &str| Err(ExperimentError::bad_option(what));
    if ![options.keys, options.operations].iter().all(|count| (1..=STUDY_KEYS).contains(count)) {
        return bad("the amplification study takes 1 to 64,000,000 keys, and as many operations");
    }
    if options.indexes.is_empty() || options.threads.is_empty() {
        return bad("the amplification study takes an index and a number of workers");
    }
    if options.threads.iter().any(|&threads| threads == 0 || threads > 256) {
        return bad("a modelled machine has 1 to 256 workers");
    }
    let sides = Sides { measure: false, model: true, profile: options.profile.clone() };
    let profile = sides.check()?;
    let mut cases: Vec<Case> = Vec::new();
    for &index in &options.indexes {
        let concerned = index.declaration().optimisations;
        let sets = match options.optimisations.as_slice() {
            [] => concerned.to_compare(),
            named => in_order(named.iter().map(|set| set.among(concerned))),
        };
        for &threads in &options.threads {
            cases.extend(sets.iter().map(|&set| (index, threads, set)));
        }
    }
    let sessions = modelling_threads().min(cases.len());
    check_room(options.keys + options.operations, sessions, BYTES_PER_KEY)?;
    let found = sides.run_side_by_side(
        &cases,
        progress,
        |_| Ok(()),
        |case| session(case, options, &profile),
    )?;
    let rows = found.into_iter().filter_map(|(_, rows)| rows).flatten().collect();
    let (keys, operations) = (options.keys, options.operations);
    Ok(Amplification { profile: profile.name, keys, operations, rows })
}

/// What an index has of the optimisations, and the same case with more.
struct Gain<'a> {
    what: String,
    beside: Optimisations,
    rows: [&'a Row; 2],
}

impl Amplification {
    /// Each optimisation beside others that an index has, and all of its together, in workload A.
    fn gains(&self) -> Vec<Gain<'_>> {
        let rows = || self.rows.iter().filter(|row| row.workload == Workload::A);
        let mut gains = Vec::new();
        for with in rows() {
            let same = |row: &&Row| (row.index, row.threads) == (with.index, with.threads);
            let gain = |what: String, beside| {
                let without = rows().filter(same).find(|row| row.optimisations == beside)?;
                Some(Gain { what, beside, rows: [without, with] })
            };
            let has = with.optimisations;
            gains.extend(has.each().filter_map(|one| gain(one.name().into(), has.without(one))));
            let is_all = has == with.index.declaration().optimisations && has.each().count() > 1;
            gains.extend(is_all.then(|| gain("together".into(), Optimisations::NONE)).flatten());
        }
        gains
    }
}

impl Findings for Amplification {
    fn tables(&self) -> Vec<Table> {
        let headings = "index | workload | workers | Mop/s | WPQ inserts per insert | media writes per \
                        insert | media writes per WPQ insert | years";
        let mut table = Table::new(2, headings);
        let is_any_as_built = self.rows.iter().any(Row::is_as_built);
        for row in self.rows.iter().filter(|row| row.is_as_built() || !is_any_as_built) {
            let index = format!("`{}`", row.index);
            table.push([
                if is_any_as_built { index } else { format!("{index}, {}", row.optimisations) },
                row.workload.to_string(),
                row.threads.to_string(),
                format!("{:.2}", row.mops),
                decimals(row.wpq_per_insert, 2),
                decimals(row.media_per_insert, 2),
                decimals(row.media_per_wpq, 2),
                decimals(row.lifetime_years, 1),
            ]);
        }
        let headings = "index | optimisation | beside | workers | WPQ inserts per insert | with it | change % | \
                        media writes per insert | with it | change % | Mop/s | with it | change %";
        let mut gains = Table::new(3, headings);
        for Gain { what, beside, rows: [without, with] } in self.gains() {
            let change = |from: f64, to: f64| format!("{:+.1}", (to / from - 1.0) * 100.0);
            let changes = |of: fn(&Row) -> Option<f64>| {
                let pair = [of(without), of(with)];
                let both = pair[0].zip(pair[1]);
                let percent = both.map_or("–".to_owned(), |(from, to)| change(from, to));
                [decimals(pair[0], 2), decimals(pair[1], 2), percent]
            };
            let case =
                [format!("`{}`", with.index), what, beside.to_string(), with.threads.to_string()];
            let columns = [
                changes(|row| row.wpq_per_insert),
                changes(|row| row.media_per_insert),
                changes(|row| Some(row.mops)),
            ];
            gains.push(case.into_iter().chain(columns.into_iter().flatten()));
        }
        if self.gains().is_empty() { vec![table] } else { vec![table, gains] }
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!(
                "Modelled for {}: {} keys and {} operations, with caches in proportion to the study's 64 \
                 million.",
                self.profile, self.keys, self.operations
            ),
            "Media writes in units of 64 bytes. Years: six modules of 313 PBW at the modelled rate."
                .to_owned(),
        ]
    }

    fn sections(&self) -> Vec<(String, String)> {
        let mut tables = self.tables();
        let rows = tables.remove(0).after(self.notes().join(" "));
        tables.insert(0, rows);
        section_of_tables(COMMAND, &tables)
    }

    /// Media writes per insert by the number of workers.
    fn figure(&self) -> Option<Plot> {
        let workloads = in_order(self.rows.iter().map(|row| row.workload));
        let panels = workloads.into_iter().filter_map(|workload| {
            let rows: Vec<_> = (self.rows.iter())
                .filter(|row| row.workload == workload && row.is_as_built())
                .filter(|row| row.media_per_insert.is_some())
                .collect();
            let title = format!("workload {workload}");
            let y = Axis::linear("media writes per insert");
            let mut panel = Panel::new(&title, Axis::linear("workers"), y);
            for index in in_order(rows.iter().map(|row| row.index)) {
                let of = rows.iter().filter(|row| row.index == index);
                let points = of.filter_map(|row| Some((row.threads as f64, row.media_per_insert?)));
                panel.line(index.name(), Source::modelled(&self.profile), points.collect());
            }
            (!rows.is_empty()).then_some(panel)
        });
        let panels = panels.collect();
        Some(Plot::new("Write amplification", "After IEEE Access 2021.", panels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let indexes = vec![IndexKind::ALL[0], IndexKind::ALL[IndexKind::ALL.len() - 1]];
        let threads = vec![1, 3];
        Options { indexes, threads, keys: 2000, operations: 1000, ..Options::default() }
    }

    #[test]
    fn every_index_has_a_row_for_each_workload_and_number_of_workers() {
        let found = run(&options(), &|_| ()).unwrap();
        assert_eq!(found.rows.len(), (1 + 5) * 2 * 4, "the one as it is, the other in five ways");
        for row in &found.rows {
            let inserts = row.workload != Workload::C;
            assert_eq!(row.wpq_per_insert.is_some(), inserts, "{row:?}");
            assert!(row.mops > 0.0, "{row:?}");
            if inserts {
                assert!(row.media_per_insert.unwrap() > 0.0, "{row:?}");
                let years = row.lifetime_years.unwrap();
                assert!(years.is_finite() && years > 0.0, "{row:?}");
            }
        }
        assert_eq!(found, run(&options(), &|_| ()).unwrap());
        assert!(found.figure().unwrap().svg().unwrap().contains("workload a"));
    }

    /// The changes of an index's optimisations, in workload A by one worker: of WPQ inserts and of media writes.
    fn changes(index: IndexKind, what: &str, beside: &str) -> [f64; 2] {
        let [keys, operations] = [20_000, 10_000];
        let only = Options { indexes: vec![index], threads: vec![1], ..options() };
        let found = run(&Options { keys, operations, ..only }, &|_| ()).unwrap();
        let gains = found.gains();
        let mut named = gains.iter().filter(|gain| gain.what == what);
        let gain = named.find(|gain| gain.beside.to_string() == beside).expect("it is compared");
        let change = |of: fn(&Row) -> Option<f64>| {
            let [from, to] = gain.rows.map(|row| of(row).expect("there are inserts"));
            to / from
        };
        [change(|row| row.wpq_per_insert), change(|row| row.media_per_insert)]
    }

    #[test]
    fn locks_that_are_written_back_cost_p_clht_lines_and_spare_the_media_units() {
        let [wpq, media] = changes(IndexKind::PClht, "early-eviction", "flush-coalescing");
        assert!(wpq > 1.0 && media < 0.7, "{wpq} {media}");
    }

    #[test]
    fn coalesced_flushes_spare_p_clht_lines_and_the_media_nothing() {
        let [wpq, media] = changes(IndexKind::PClht, "flush-coalescing", "none");
        assert!(wpq < 0.75 && media > 0.95, "{wpq} {media}");
    }

    #[test]
    fn padding_costs_level_hashing_and_fast_fair_lines() {
        let [wpq, _] = changes(IndexKind::LevelHash, "removal-of-bloat", "flush-coalescing");
        assert!(wpq < 0.9, "{wpq}");
        let [wpq, _] = changes(IndexKind::FastFair, "removal-of-bloat", "none");
        assert!(wpq < 0.9, "{wpq}");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for wrong in [
            Options { keys: 0, ..options() },
            Options { keys: usize::MAX, ..options() },
            Options { operations: usize::MAX, ..options() },
            Options { threads: vec![0], ..options() },
            Options { indexes: Vec::new(), ..options() },
        ] {
            assert!(run(&wrong, &|_| ()).is_err());
        }
    }
}
