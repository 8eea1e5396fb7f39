//! Interleaving: throughput of lookups and inserts on leaves over the number in flight.
//!
//! The experiment of Fig. 12 of van Renen et al. (VLDB Journal 2020): leaves as FPTree has them, more
//! than the caches hold; groups of 1 to 64 tasks on one thread. Inserts overlap their
//! reads only, their writes only, or both.
//!
//! Every row has keys of its own, and before it other lines are read, more than the caches hold: no row
//! finds in the caches what the one before it has left there.

use std::sync::Arc;
use std::time::Instant;

use lapis_blocks::fp_leaves::{FpLeaves, FpLeavesError, FpLeavesRoot, Overlap};
use lapis_blocks::interleave::Interleaver;
use lapis_device::{Config, Counts, Modelled, Profile, ProfileError};
use lapis_pmem::{Domain, Hardware, Link, PCell, Pool, PoolError, Region, RegionError, RootError};
use serde::Serialize;

use crate::keys::scatter;
use crate::plot::{Axis, Panel, Plot, Source};
use crate::report::{OnProgress, Progress};

/// The figure of the paper.
pub const FIGURE: &str =
    "After Fig. 12 of van Renen et al., Building blocks for persistent memory (VLDB Journal 2020)";

/// Bytes of a leaf, as it lies in memory.
const LEAF_BYTES: usize = 576;
/// Pairs per leaf before the inserts, in the mean. Leaves are full at 32, which with 9 in the mean
/// hardly one in a thousand million is.
const FILL: usize = 8;
/// Lines at the end of a leaf whose slots that many pairs leave free.
const UNUSED_LINES: u64 = 4;
/// Tasks in flight where nobody looks at the clock.
const LOADING_GROUP: usize = 32;

/// What is interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Lookups of keys that are there.
    Lookup,
    /// Inserts of new keys that prefetch and fence alone.
    InsertReads,
    /// Inserts that share fences and do not prefetch.
    InsertWrites,
    /// Inserts that do both.
    InsertBoth,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Lookup, Self::InsertReads, Self::InsertWrites, Self::InsertBoth];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::InsertReads => "insert-reads",
            Self::InsertWrites => "insert-writes",
            Self::InsertBoth => "insert-both",
        }
    }

    fn overlap(self) -> Overlap {
        match self {
            Self::Lookup => Overlap { reads: true, writes: false },
            Self::InsertReads => Overlap { reads: true, writes: false },
            Self::InsertWrites => Overlap { reads: false, writes: true },
            Self::InsertBoth => Overlap::BOTH,
        }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Sizes of groups.
    pub groups: Vec<usize>,
    /// Leaves of the measured runs.
    pub leaves: usize,
    /// Operations of each row, measured.
    pub operations: usize,
    /// Leaves on the modelled machine.
    pub modelled_leaves: usize,
    /// Operations of each row on the modelled machine.
    pub modelled_operations: usize,
    /// The device profile that is modelled.
    pub profile: String,
    /// Whether to measure. If not, `measured` is null.
    pub measure: bool,
    /// Whether to model. If not, `modelled` is null.
    pub model: bool,
    /// What the random numbers start from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            groups: vec![1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64],
            leaves: 400_000,
            operations: 400_000,
            modelled_leaves: 300_000,
            modelled_operations: 20_000,
            profile: "optane-100".into(),
            measure: true,
            model: true,
            seed: 42,
        }
    }
}

/// Why the experiment could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// An option has a value that makes no sense.
    #[error("{what}")]
    BadOption {
        /// What is wrong.
        what: String,
    },
    /// The device profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Lookups did not find what was inserted.
    #[error("{wrong} lookups in groups of {group} gave wrong answers")]
    WrongAnswers {
        /// How many.
        wrong: u64,
        /// The size of the group.
        group: usize,
    },
    /// The leaves failed.
    #[error(transparent)]
    Leaves(#[from] FpLeavesError),
    /// There is no memory for it.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// There is no pool for it.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool did not take its root.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// What was measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Million operations per second.
    pub mops: f64,
    /// Against the same operation with nothing else in flight.
    pub speed_up: f64,
}

/// What the modelled machine did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnModel {
    /// The device profile.
    pub profile: String,
    /// Million operations per second of virtual time.
    pub mops: f64,
    /// Against the same operation with nothing else in flight.
    pub speed_up: f64,
    /// Fences per operation.
    pub fences: f64,
    /// Flushes per operation.
    pub flushes: f64,
    /// Lines per operation that no cache had.
    pub misses: f64,
}

/// One variant with groups of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The variant's name.
    pub variant: &'static str,
    /// Tasks in flight.
    pub group: usize,
    /// Threads: one.
    pub threads: usize,
    /// This machine.
    pub measured: Option<Measured>,
    /// The modelled machine.
    pub modelled: Option<OnModel>,
    /// Barriers that an operation waits for; with `writes`, it shares them with its group.
    pub barriers: u64,
}

/// What `lab coroutine` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// One row for each variant and size of groups.
    pub rows: Vec<Row>,
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::BadOption { what: what.into() });
        if self.groups.is_empty() || self.groups.iter().any(|group| !(1..=4096).contains(group)) {
            return bad("a group has between 1 and 4096 tasks, and there is at least one group");
        }
        if self.operations == 0 || self.modelled_operations == 0 {
            return bad("an operation is done at least once");
        }
        if !self.measure && !self.model {
            return bad("an interleaving experiment measures, models or does both");
        }
        let fits = |leaves: usize, operations: usize| {
            leaves >= 64 && operations <= leaves && leaves <= 100_000_000
        };
        if !fits(self.leaves, self.operations)
            || !fits(self.modelled_leaves, self.modelled_operations)
        {
            return bad(
                "there are between 64 and 100,000,000 leaves, and at most as many operations: more \
                 inserts would fill the leaves",
            );
        }
        Ok(Profile::find(&self.profile)?)
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<Results, ExperimentError> {
    let profile = options.check()?;
    let mut options = options.clone();
    // What the others are set against.
    options.groups.retain(|group| *group != 1);
    options.groups.insert(0, 1);
    let options = &options;
    let sides = usize::from(options.measure) + usize::from(options.model);
    let total = (Variant::ALL.len() * options.groups.len() * sides) as u64;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(Progress { done, total });
    };
    let measured = options.measure.then(|| measure(options, &mut step)).transpose()?;
    let modelled = options.model.then(|| model(options, &profile, &mut step)).transpose()?;
    let mut rows = Vec::new();
    for (number, variant) in Variant::ALL.into_iter().enumerate() {
        for (at, &group) in options.groups.iter().enumerate() {
            let of = |all: &Vec<Vec<Outcome>>| {
                (all[number][at], all[number][at].mops() / all[number][0].mops())
            };
            rows.push(Row {
                variant: variant.name(),
                group,
                threads: 1,
                measured: measured
                    .as_ref()
                    .map(of)
                    .map(|(outcome, speed_up)| Measured { mops: outcome.mops(), speed_up }),
                modelled: modelled.as_ref().map(of).map(|(outcome, speed_up)| OnModel {
                    profile: options.profile.clone(),
                    mops: outcome.mops(),
                    speed_up,
                    fences: outcome.counts.fences as f64 / outcome.operations as f64,
                    flushes: outcome.counts.flushes as f64 / outcome.operations as f64,
                    misses: outcome.counts.llc_misses as f64 / outcome.operations as f64,
                }),
                barriers: if variant == Variant::Lookup { 0 } else { 2 },
            });
        }
    }
    Ok(Results { rows })
}

#[derive(Clone, Copy)]
struct Outcome {
    operations: usize,
    elapsed_ns: u64,
    counts: Counts,
}

impl Outcome {
    fn mops(&self) -> f64 {
        self.operations as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

fn pool_bytes(leaves: usize) -> usize {
    (leaves * LEAF_BYTES + (8 << 20)).next_multiple_of(1 << 16)
}

fn measure(
    options: &Options,
    step: &mut dyn FnMut(),
) -> Result<Vec<Vec<Outcome>>, ExperimentError> {
    let bytes = pool_bytes(options.leaves);
    let pool = Pool::create(Region::anonymous(bytes, bytes)?, Hardware::detect())?;
    let started = Instant::now();
    let now_ns = || started.elapsed().as_nanos() as u64;
    let clock = Clock { now_ns: &now_ns, counts: &Counts::default, spend: &|| () };
    run_all(pool, options.leaves, options.operations, options, &clock, step)
}

fn model(
    options: &Options,
    profile: &Profile,
    step: &mut dyn FnMut(),
) -> Result<Vec<Vec<Outcome>>, ExperimentError> {
    let bytes = pool_bytes(options.modelled_leaves);
    let region = Region::anonymous(bytes, bytes)?;
    let machine =
        Modelled::over(&region, Config { counting: Some(profile.machine()), ..Config::default() });
    let pool = Pool::create(region, machine.clone())?;
    let (leaves, operations) = (options.modelled_leaves, options.modelled_operations);
    // The model sees memory; what the processor does with an operation is the profile's to say.
    let operation_ns = profile.core.operation_ns.value as u64;
    let clock = Clock {
        now_ns: &|| machine.now_ns(0),
        counts: &|| machine.counts(),
        spend: &|| machine.spend_ns(0, operation_ns),
    };
    run_all(pool, leaves, operations, options, &clock, step)
}

/// What a machine can tell, and be told.
struct Clock<'c> {
    now_ns: &'c dyn Fn() -> u64,
    counts: &'c dyn Fn() -> Counts,
    /// The processor's share of one operation, where the clock does not see it.
    spend: &'c dyn Fn(),
}

/// Reads the lines of every leaf that hold no pair, which are more than the caches hold: eight lines
/// in nine are slots, and the last four of them are hardly ever used.
fn turn_over_the_caches<D: Domain>(pool: &Pool<D>, root: Link<FpLeavesRoot>, leaves: usize) {
    let first = root.offset() + size_of::<FpLeavesRoot>() as u64;
    for leaf in 0..leaves as u64 {
        for line in LEAF_BYTES as u64 / 64 - UNUSED_LINES..LEAF_BYTES as u64 / 64 {
            let at = first + leaf * LEAF_BYTES as u64 + line * 64;
            pool.at(Link::<PCell<u64>>::from_bits(at)).load(pool.domain());
        }
    }
}

/// Every variant with every size of groups, the first of which is what the others are set against:
/// one task at a time, by the same code.
fn run_all<D: Domain>(
    pool: Pool<D>,
    leaf_count: usize,
    operations: usize,
    options: &Options,
    clock: &Clock<'_>,
    step: &mut dyn FnMut(),
) -> Result<Vec<Vec<Outcome>>, ExperimentError> {
    let pool = Arc::new(pool);
    let made = pool.fence(FpLeaves::create(&pool, leaf_count)?);
    let root = made.link();
    let _ = pool.publish_root("leaves", 0, made)?.persist();
    let leaves = &FpLeaves::open(&pool, root)?;
    let loaded = leaf_count * FILL;
    let key = |number: usize| scatter(number as u64) | 1 << 63;
    let mut failed = None;
    Interleaver::new(pool.domain(), LOADING_GROUP).run(
        (0..loaded).map(key),
        |turn, key| leaves.insert(turn, key, !key, Overlap::BOTH),
        |inserted| failed = inserted.err().or(failed.take()),
    );
    if let Some(error) = failed {
        return Err(error.into());
    }

    let mut all = Vec::new();
    let mut row = 0;
    for variant in Variant::ALL {
        let overlap = variant.overlap();
        let mut outcomes = Vec::new();
        for &group in &options.groups {
            // Spread over all that is loaded; others for each row.
            let number = |at| (row * operations + at) as u64;
            let chosen = (0..operations)
                .map(|at| scatter(number(at) ^ options.seed << 32) as usize % loaded);
            let chosen: Vec<u64> = chosen.map(key).collect();
            let fresh: Vec<u64> =
                (0..operations).map(|at| key(loaded + number(at) as usize)).collect();
            row += 1;
            turn_over_the_caches(&pool, root, leaf_count);
            let mut interleaver = Interleaver::new(pool.domain(), group);
            let mut wrong = 0;
            let mut failed = None;
            let counts_before = (clock.counts)();
            let began = (clock.now_ns)();
            match variant {
                Variant::Lookup => interleaver.run(
                    &chosen,
                    |turn, &key| async move {
                        (clock.spend)();
                        leaves.get(turn, key, overlap).await == Some(!key)
                    },
                    |right| wrong += u64::from(!right),
                ),
                _ => interleaver.run(
                    &fresh,
                    |turn, &key| async move {
                        (clock.spend)();
                        leaves.insert(turn, key, !key, overlap).await
                    },
                    |inserted| failed = inserted.err().or(failed.take()),
                ),
            }
            let elapsed_ns = (clock.now_ns)() - began;
            let counts = (clock.counts)() - counts_before;
            outcomes.push(Outcome { operations, elapsed_ns, counts });
            if let Some(error) = failed {
                return Err(error.into());
            }
            if variant != Variant::Lookup {
                // The next group finds the leaves as this one did.
                Interleaver::new(pool.domain(), LOADING_GROUP).run(
                    &fresh,
                    |turn, &key| leaves.remove(turn, key, Overlap::BOTH),
                    |removed| wrong += u64::from(!removed),
                );
            }
            if wrong > 0 {
                return Err(ExperimentError::WrongAnswers { wrong, group });
            }
            step();
        }
        all.push(outcomes);
    }
    Ok(all)
}

/// The figure: inserts and lookups side by side, throughput over the size of the group.
pub fn plot(results: &Results) -> Plot {
    let inserts = [Variant::InsertReads, Variant::InsertWrites, Variant::InsertBoth];
    let panels = [("inserts", &inserts[..]), ("lookups", &[Variant::Lookup][..])];
    let panels = panels.map(|(title, variants)| {
        let mut panel = Panel::new(title, Axis::linear("tasks in flight"), Axis::linear("Mop/s"));
        for variant in variants.iter().map(|variant| variant.name()) {
            let rows = || results.rows.iter().filter(|row| row.variant == variant);
            let measured: Vec<_> =
                rows().filter_map(|row| Some((row.group as f64, row.measured?.mops))).collect();
            if !measured.is_empty() {
                panel.line(variant, Source::Measured, measured);
            }
            let modelled = rows().filter_map(|row| Some((row.group, row.modelled.as_ref()?)));
            let modelled: Vec<_> = modelled.collect();
            if let Some((_, first)) = modelled.first() {
                let source = Source::modelled(&first.profile);
                let points = modelled.iter().map(|(group, of)| (*group as f64, of.mops)).collect();
                panel.line(variant, source, points);
            }
        }
        panel
    });
    Plot::new("Interleaving", FIGURE, panels.into())
}

/// The table in Markdown: a line for each variant and size of groups.
pub fn markdown(results: &Results) -> String {
    use std::fmt::Write;
    let mut text = String::from(
        "| operation | in flight | Mop/s, measured here | speed-up | Mop/s, modelled | speed-up \
         | fences per operation | misses |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let figure = |number: Option<f64>| number.map_or("–".to_owned(), |n| format!("{n:.2}"));
    for row in &results.rows {
        let (measured, modelled) = (row.measured, row.modelled.as_ref());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            row.variant,
            row.group,
            figure(measured.map(|found| found.mops)),
            figure(measured.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.mops)),
            figure(modelled.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.fences)),
            figure(modelled.map(|found| found.misses)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Options {
        Options {
            groups: vec![4, 16],
            leaves: 1000,
            operations: 400,
            modelled_leaves: 1000,
            modelled_operations: 400,
            ..Options::default()
        }
    }

    #[test]
    fn every_variant_has_a_row_for_each_group_and_one_for_no_company() {
        let results = run(&small(), &|_| ()).unwrap();
        let groups: Vec<usize> = results.rows.iter().map(|row| row.group).collect();
        assert_eq!(groups, [1, 4, 16].repeat(4));
        assert!(results.rows.iter().all(|row| row.measured.is_some() && row.modelled.is_some()));
        assert_eq!(markdown(&results).lines().count(), 2 + 12);
        assert!(plot(&results).svg().unwrap().contains("insert-both"));
    }

    #[test]
    fn a_group_shares_its_fences_where_writes_overlap_and_only_there() {
        let results = run(&Options { measure: false, ..small() }, &|_| ()).unwrap();
        let fences = |variant: Variant, group| {
            let of = |row: &&Row| (row.variant, row.group) == (variant.name(), group);
            results.rows.iter().find(of).unwrap().modelled.as_ref().unwrap().fences
        };
        assert_eq!(fences(Variant::InsertReads, 16), 2.0);
        assert_eq!(fences(Variant::InsertBoth, 1), 2.0);
        // Two fences for sixteen, and now and then one more where two meet in a leaf.
        assert!((0.125..0.16).contains(&fences(Variant::InsertBoth, 16)));
        assert!((0.125..0.16).contains(&fences(Variant::InsertWrites, 16)));
        assert_eq!(fences(Variant::Lookup, 16), 0.0);
    }

    #[test]
    fn no_row_finds_its_lines_in_the_caches_that_the_one_before_has_left() {
        // The machine with caches that so few leaves turn over.
        let mut profile = Profile::text_of("optane-100").unwrap().to_owned();
        for (field, usual, small) in
            [("l2_capacity_bytes", 1_048_576, 65_536), ("l3_capacity_bytes", 34_603_008, 360_448)]
        {
            let usual = format!("{field} = {{ value = {usual},");
            assert!(profile.contains(&usual), "{field}");
            profile = profile.replace(&usual, &format!("{field} = {{ value = {small},"));
        }
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        std::fs::write(file.path(), profile).unwrap();
        let options = Options {
            measure: false,
            modelled_leaves: 6000,
            profile: file.path().display().to_string(),
            ..small()
        };
        for row in run(&options, &|_| ()).unwrap().rows {
            // The header of a leaf, and a line of pairs. Few operations meet in a leaf.
            let misses = row.modelled.unwrap().misses;
            assert!((1.8..2.1).contains(&misses), "{} {}: {misses}", row.variant, row.group);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            Options { groups: vec![], ..small() },
            Options { groups: vec![0], ..small() },
            Options { groups: vec![5000], ..small() },
            Options { operations: 0, ..small() },
            Options { operations: 1001, ..small() },
            Options { leaves: usize::MAX, ..small() },
            Options { measure: false, model: false, ..small() },
            Options { profile: "papyrus".into(), ..small() },
        ] {
            assert!(run(&wrong, &|_| ()).is_err(), "{wrong:?}");
        }
    }
}
