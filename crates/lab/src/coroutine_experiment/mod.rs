//! Interleaving: throughput of lookups and inserts on leaves over the number in flight.
//!
//! The experiment of Fig. 12 of van Renen et al. (VLDB Journal 2020): leaves as FPTree has them, more
//! than the caches hold; groups of 1 to 64 tasks on one thread. Inserts overlap their
//! reads only, their writes only, or both.
//!
//! Inserts write as section 3.5.3 of the paper says: pair and fingerprint are flushed, then the bitmap,
//! which shares a line with the fingerprints. The same line is so persisted twice. One more variant
//! does what [`FpLeaves::insert`](lapis_blocks::fp_leaves::FpLeaves::insert) does, once is enough.
//!
//! Speed-ups are against one operation at a time that neither prefetches nor gives way. The model
//! charges memory; the core's own share of an operation, and of each resumption of a task, is the
//! profile's section `interleaving`, which [`calibrate`] finds.
//!
//! Every row has keys of its own, and before it other lines are read, more than the caches hold: no row
//! finds in the caches what the one before it has left there.

mod core_costs;
mod figure;
mod operations;
mod page_walks;

use lapis_blocks::fp_leaves::Overlap;
use lapis_device::Profile;
use lapis_device::profile::Interleaving;
use serde::Serialize;

use crate::experiment::meter::Section;
use crate::experiment::{self, ExperimentError, OPTANE_100, OnModel, Sides};
use crate::named::named;
use crate::progress::OnProgress;
use operations::Bench;

pub use core_costs::{CoreCosts, calibrate, put_into_profile};
pub use page_walks::PageWalks;

/// The figure of the paper.
pub const FIGURE: &str =
    "After Fig. 12 of van Renen et al., Building blocks for persistent memory (VLDB Journal 2020)";

named! {
    /// What is interleaved.
    pub enum Variant {
        /// Lookups of keys that are there.
        Lookup = "lookup",
        /// Inserts of new keys that prefetch and fence alone.
        InsertReads = "insert-reads",
        /// Inserts that share fences and do not prefetch.
        InsertWrites = "insert-writes",
        /// Inserts that do both.
        InsertBoth = "insert-both",
        /// Inserts that do both and persist the line of fingerprints and bitmap once. The others
        /// persist it twice, as the paper's do: with the pair, and with the bit.
        InsertOnce = "insert-once",
    }
}

impl Variant {
    /// What it overlaps in a group of so many. One operation by itself is what a program does
    /// that does not interleave: it neither prefetches nor gives way.
    fn overlap(self, group: usize) -> Overlap {
        match self {
            _ if group == 1 => Overlap::NONE,
            Self::Lookup | Self::InsertReads => Overlap { reads: true, writes: false },
            Self::InsertWrites => Overlap { reads: false, writes: true },
            Self::InsertBoth | Self::InsertOnce => Overlap::BOTH,
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
    /// Where it is run.
    pub sides: Sides,
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
            sides: Sides::default(),
            seed: 42,
        }
    }
}

/// What was run: one variant with groups of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The variant's name.
    pub variant: &'static str,
    /// Tasks in flight.
    pub group: usize,
    /// Threads: one.
    pub threads: usize,
    /// Barriers that an operation waits for; with `writes`, it shares them with its group.
    pub barriers: u64,
}

/// How fast it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Million operations per second.
    pub mops: f64,
    /// Against the same operation with nothing else in flight.
    pub speed_up: f64,
    /// Lines per operation that no cache had, which only the modelled machine knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<f64>,
}

/// One variant with groups of one size.
pub type Row = experiment::Row<Case, Speed>;

/// What `lab coroutine` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// One row for each variant and size of groups.
    pub rows: Vec<Row>,
}

/// The core's share for profiles that do not say.
fn usual_costs() -> Result<Interleaving, ExperimentError> {
    let usual = Profile::named(OPTANE_100)?.interleaving;
    usual.ok_or_else(|| {
        let what = format!("{OPTANE_100} does not say what interleaving costs the core");
        ExperimentError::bad_option(what)
    })
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::bad_option(what));
        if self.groups.is_empty() || self.groups.iter().any(|group| !(1..=4096).contains(group)) {
            return bad("a group has between 1 and 4096 tasks, and there is at least one group");
        }
        if self.operations == 0 || self.modelled_operations == 0 {
            return bad("an operation is done at least once");
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
        self.sides.check()
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
    let costs = profile.interleaving.clone().map_or_else(usual_costs, Ok)?;
    let groups = &options.groups;
    let cases: Vec<(Variant, usize)> = Variant::ALL
        .into_iter()
        .flat_map(|variant| groups.iter().map(move |&group| (variant, group)))
        .collect();
    let (mut here, mut modelled) = (None, None);
    let found = options.sides.run(
        &cases,
        progress,
        |&(variant, group)| match &mut here {
            Some(bench) => Bench::run(bench, variant, group),
            none => none.insert(Bench::here(options)?).run(variant, group),
        },
        |&(variant, group)| match &mut modelled {
            Some(bench) => Bench::run(bench, variant, group),
            none => {
                let bench = none.insert(Bench::modelled(options, &profile, costs.clone())?);
                bench.run(variant, group)
            }
        },
    )?;
    let mut rows = Vec::new();
    for (at, &(variant, group)) in cases.iter().enumerate() {
        let (measured, modelled) = &found[at];
        let alone = &found[at / groups.len() * groups.len()];
        let speed = |of: &Section, alone: &Section, operations| {
            let mops = of.mops(operations);
            Speed { mops, speed_up: mops / alone.mops(operations), misses: None }
        };
        let case = Case {
            variant: variant.name(),
            group,
            threads: 1,
            barriers: if variant == Variant::Lookup { 0 } else { 2 },
        };
        rows.push(Row {
            case,
            measured: measured
                .as_ref()
                .zip(alone.0.as_ref())
                .map(|(of, alone)| speed(of, alone, options.operations)),
            modelled: modelled.as_ref().zip(alone.1.as_ref()).map(|(of, alone)| {
                let operations = options.modelled_operations;
                let misses = Some(of.per_operation(operations as u64).llc_misses);
                let speed = Speed { misses, ..speed(of, alone, operations) };
                OnModel::new(&profile, speed, of, operations)
            }),
        });
    }
    Ok(Results { rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Findings;

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

    fn modelled(results: &Results, variant: Variant, group: usize) -> &OnModel<Speed> {
        let of = |row: &&Row| (row.case.variant, row.case.group) == (variant.name(), group);
        results.rows.iter().find(of).unwrap().modelled.as_ref().unwrap()
    }

    /// Lookups alone and among twenty, on a profile whose core's share is changed.
    fn lookups(change: impl Fn(&mut Interleaving)) -> [Section; 2] {
        let profile = Profile::named(OPTANE_100).unwrap();
        let mut costs = profile.interleaving.clone().unwrap();
        change(&mut costs);
        let mut bench = Bench::modelled(&small(), &profile, costs).unwrap();
        [1, 20].map(|group| bench.run(Variant::Lookup, group).unwrap())
    }

    #[test]
    fn every_variant_has_a_row_for_each_group_and_one_for_no_company() {
        let results = run(&small(), &|_| ()).unwrap();
        let groups: Vec<usize> = results.rows.iter().map(|row| row.case.group).collect();
        assert_eq!(groups, [1, 4, 16].repeat(5));
        assert!(results.rows.iter().all(|row| row.measured.is_some() && row.modelled.is_some()));
        assert_eq!(results.tables()[0].rows.len(), 15);
        assert!(results.figure().unwrap().svg().unwrap().contains("insert-both"));
    }

    #[test]
    fn a_group_shares_its_fences_where_writes_overlap_and_only_there() {
        let results = run(&Options { sides: Sides::modelled_only(), ..small() }, &|_| ()).unwrap();
        let fences = |variant: Variant, group| modelled(&results, variant, group).counts.fences;
        assert_eq!(fences(Variant::InsertReads, 16), 2.0);
        assert_eq!(fences(Variant::InsertBoth, 1), 2.0);
        // Two fences for sixteen, and now and then one more where two meet in a leaf.
        assert!((0.125..0.16).contains(&fences(Variant::InsertBoth, 16)));
        assert!((0.125..0.16).contains(&fences(Variant::InsertWrites, 16)));
        assert_eq!(fences(Variant::Lookup, 16), 0.0);
    }

    #[test]
    fn lookups_gain_as_in_the_figure_and_inserts_by_a_third_less() {
        let options = Options {
            groups: vec![8, 20, 64],
            modelled_operations: 4000,
            sides: Sides::modelled_only(),
            ..Options::default()
        };
        let results = run(&options, &|_| ()).unwrap();
        let speed_up =
            |variant: Variant, group| modelled(&results, variant, group).figures.speed_up;
        let within = |variant, group, range: std::ops::Range<f64>| {
            let found = speed_up(variant, group);
            assert!(range.contains(&found), "{variant:?} {group}: {found}");
        };
        // The paper has 5 for lookups and 6.2 for inserts, flat from about 20 on.
        within(Variant::Lookup, 1, 1.0..1.001);
        within(Variant::Lookup, 8, 3.8..4.6);
        within(Variant::Lookup, 20, 5.0..6.5);
        within(Variant::InsertBoth, 1, 1.0..1.001);
        within(Variant::InsertBoth, 8, 3.6..4.4);
        within(Variant::InsertBoth, 20, 3.8..4.6);
        let rise = |variant| speed_up(variant, 64) / speed_up(variant, 20);
        assert!((0.99..1.01).contains(&rise(Variant::Lookup)), "{}", rise(Variant::Lookup));
        assert!((0.9..1.1).contains(&rise(Variant::InsertBoth)), "{}", rise(Variant::InsertBoth));
        // To overlap reads alone gains next to nothing, as in the paper: alone, an insert's loads run ahead of the
        // fence of the one before.
        within(Variant::InsertReads, 64, 1.0..1.2);
        within(Variant::InsertWrites, 64, 1.4..1.9);
        within(Variant::InsertOnce, 20, 4.2..5.0);
    }

    #[test]
    fn a_page_walk_is_all_there_alone_and_as_much_of_it_in_a_group_as_shows() {
        let elapsed_ns = |walk_ns: f64, shown: f64| {
            let [alone, in_group] = lookups(|costs| {
                costs.page_walk_ns.value = walk_ns;
                costs.page_walk_shown.value = shown;
            });
            (alone.whole_ns(), in_group.whole_ns())
        };
        let (none, hidden, shown) =
            (elapsed_ns(0.0, 1.0), elapsed_ns(26.0, 0.0), elapsed_ns(26.0, 1.0));
        assert_eq!((hidden.0, shown.0), (none.0 + 400 * 26, none.0 + 400 * 26));
        assert_eq!(hidden.1, none.1);
        assert!(shown.1 > none.1 + 400 * 13, "{shown:?} {none:?}");
    }

    #[test]
    fn a_core_that_takes_longer_for_each_resumption_gains_less() {
        let speed_up = |switch_ns: f64| {
            let [alone, in_group] = lookups(|costs| costs.lookup_switch_ns.value = switch_ns);
            in_group.mops(400) / alone.mops(400)
        };
        let (none, some) = (speed_up(0.0), speed_up(50.0));
        assert!(some < 0.7 * none, "{some} {none}");
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
            modelled_leaves: 6000,
            sides: Sides { profile: file.path().display().to_string(), ..Sides::modelled_only() },
            ..small()
        };
        for row in run(&options, &|_| ()).unwrap().rows {
            // The header of a leaf, and a line of pairs; after a flush what it dropped. Few operations
            // meet in a leaf.
            let misses = row.modelled.unwrap().figures.misses.unwrap();
            assert!(misses >= 1.8, "{:?}: {misses}", row.case);
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
            Options { sides: Sides { model: false, ..Sides::modelled_only() }, ..small() },
            Options { sides: Sides { profile: "papyrus".into(), ..Sides::default() }, ..small() },
        ] {
            assert!(run(&wrong, &|_| ()).is_err(), "{wrong:?}");
        }
    }
}
