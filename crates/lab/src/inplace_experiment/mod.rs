//! In-place updates of small values: copy-on-write, log and failure-atomic memory side by side.
//!
//! The experiment of Fig. 10 of van Renen et al. (VLDB Journal 2020): an array of cells on lines of
//! their own; updates, reads, and reads of which each needs the one before to know where to look, in
//! order and at random. The array is larger than the caches.

mod figure;
mod run;

use lapis_blocks::in_place::{CellKind, InPlaceError, LARGEST_VALUE_BYTES, SMALLEST_VALUE_BYTES};
use lapis_blocks::pop_log::PopLog;
use lapis_blocks::with_cell;
use lapis_device::{Modelled, Profile};
use lapis_pmem::{Hardware, Pool};
use serde::Serialize;

use crate::experiment::meter::{ModelMeter, WallClock};
use crate::experiment::{self, ExperimentError, OnModel, Sides};
use crate::named::named;
use crate::progress::OnProgress;

use run::{Outcome, run_cells};

/// The figure of the paper.
pub const FIGURE: &str =
    "After Fig. 10 of van Renen et al., Building blocks for persistent memory (VLDB Journal 2020)";

/// Operations of a row at most: where each goes is known beforehand, and kept.
const MOST_OPERATIONS: usize = 100_000_000;

/// What is done with the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Replaces values.
    Update,
    /// Reads values whose places are known beforehand.
    Read,
    /// Reads values of which each says where the next is.
    DependentRead,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Update, Self::Read, Self::DependentRead];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Read => "read",
            Self::DependentRead => "dependent read",
        }
    }
}

named! {
    /// In which order.
    pub enum Pattern {
        /// One cell after the other.
        Sequential = "sequential",
        /// Any.
        Random = "random",
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Sizes of values, in bytes.
    pub sizes_bytes: Vec<usize>,
    /// Bytes of an array: as many cells as fit, padding included.
    pub array_bytes: usize,
    /// Operations of each row, measured.
    pub operations: usize,
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
            sizes_bytes: vec![8, 16, 32, 64, 128, 256],
            array_bytes: 128 << 20,
            operations: 400_000,
            modelled_operations: 20_000,
            sides: Sides::default(),
            seed: 42,
        }
    }
}

/// What was run: one operation on cells of one scheme and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The scheme: `cow-cell`, `log-cell` or `fam-cell`.
    pub variant: &'static str,
    /// Bytes of a value.
    pub size_bytes: usize,
    /// The operation.
    pub operation: Operation,
    /// Its order.
    pub pattern: Pattern,
    /// Threads: one.
    pub threads: usize,
    /// Barriers per operation, truncations of the log left out.
    pub barriers: u64,
    /// Bytes of persistent memory that a cell takes, a log left out.
    pub cell_bytes: usize,
}

/// How fast it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Million operations per second.
    pub mops: f64,
}

/// One operation on cells of one scheme and size.
pub type Row = experiment::Row<Case, Throughput>;

/// What `lab inplace` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// One row for each scheme, size, operation and pattern.
    pub rows: Vec<Row>,
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::bad_option(what));
        if self.sizes_bytes.is_empty() {
            return bad("an in-place experiment takes at least one size");
        }
        let operations = [self.operations, self.modelled_operations];
        if !operations.iter().all(|operations| (1..=MOST_OPERATIONS).contains(operations)) {
            return bad("an operation is done between 1 and 100,000,000 times");
        }
        let bounds = SMALLEST_VALUE_BYTES..=LARGEST_VALUE_BYTES;
        for &value_bytes in &self.sizes_bytes {
            if !bounds.contains(&value_bytes) {
                return Err(InPlaceError::BadValueSize { value_bytes }.into());
            }
        }
        if !(1 << 16..=64 << 30).contains(&self.array_bytes) {
            return bad("an array has between 64 KiB and 64 GiB");
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
    let sizes = options.sizes_bytes.iter();
    let cells: Vec<(CellKind, usize)> =
        sizes.flat_map(|&size| CellKind::ALL.map(|variant| (variant, size))).collect();
    let pool_bytes = options.array_bytes + (32 << 20);
    let found = options.sides.run(
        &cells,
        progress,
        |&(kind, bytes)| {
            let pool = Pool::create_anonymous(pool_bytes)?;
            with_cell!(kind, Hardware, PopLog<Hardware>, |S| {
                run_cells::<_, S>(pool, &WallClock, bytes, options.operations, options)
            })
        },
        |&(kind, bytes)| {
            let (meter, pool) = ModelMeter::with_pool(profile.machine(), pool_bytes, pool_bytes)?;
            with_cell!(kind, Modelled, PopLog<Modelled>, |S| {
                run_cells::<_, S>(pool, &meter, bytes, options.modelled_operations, options)
            })
        },
    )?;
    let mut rows = Vec::new();
    for ((variant, size_bytes), (measured, modelled)) in cells.into_iter().zip(found) {
        let outcomes = measured.as_ref().or(modelled.as_ref());
        for (at, outcome) in outcomes.into_iter().flatten().enumerate() {
            let throughput = |of: &Outcome| Throughput { mops: of.section.mops(of.operations) };
            let case = Case {
                variant: variant.name(),
                size_bytes,
                operation: outcome.operation,
                pattern: outcome.pattern,
                threads: 1,
                barriers: outcome.barriers,
                cell_bytes: outcome.cell_bytes,
            };
            rows.push(Row {
                case,
                measured: measured.as_ref().map(|all| throughput(&all[at])),
                modelled: modelled.as_ref().map(|all| {
                    let of = &all[at];
                    OnModel::new(&profile, throughput(of), &of.section, of.operations)
                }),
            });
        }
    }
    Ok(Results { rows })
}

#[cfg(test)]
mod tests {
    use crate::experiment::Findings;

    use super::*;

    fn small() -> Options {
        Options {
            sizes_bytes: vec![16, 64],
            array_bytes: 1 << 16,
            operations: 500,
            modelled_operations: 500,
            ..Options::default()
        }
    }

    fn updates(results: &Results, variant: CellKind, size_bytes: usize) -> OnModel<Throughput> {
        let found = results.rows.iter().find(|Row { case, .. }| {
            (case.variant, case.size_bytes, case.operation, case.pattern)
                == (variant.name(), size_bytes, Operation::Update, Pattern::Random)
        });
        found.unwrap().modelled.clone().unwrap()
    }

    #[test]
    fn every_scheme_has_a_row_for_each_size_operation_and_pattern() {
        let results = run(&small(), &|_| ()).unwrap();
        assert_eq!(results.rows.len(), 3 * 2 * 3 * 2);
        assert!(results.rows.iter().all(|row| row.measured.is_some() && row.modelled.is_some()));
        assert_eq!(results.tables()[0].rows.len(), 3 * 2 * 2);
        assert!(results.figure().unwrap().svg().unwrap().contains("fam-cell"));
    }

    #[test]
    fn the_modelled_barriers_are_those_of_the_paper() {
        let results = run(&Options { sides: Sides::modelled_only(), ..small() }, &|_| ()).unwrap();
        for size_bytes in [16, 64] {
            let fences =
                CellKind::ALL.map(|kind| updates(&results, kind, size_bytes).counts.fences);
            assert_eq!((fences[0], fences[2]), (2.0, 1.0));
            // The log is cleared now and then.
            assert!((2.0..2.1).contains(&fences[1]), "{fences:?}");
        }
    }

    #[test]
    fn media_writes_per_update_hardly_depend_on_the_number_of_updates() {
        // So large an array that hardly an update meets another in the buffers.
        let (sides, sizes_bytes) = (Sides::modelled_only(), vec![64]);
        let options = Options { sides, sizes_bytes, array_bytes: 16 << 20, ..small() };
        let media_writes = |modelled_operations| {
            let results = run(&Options { modelled_operations, ..options.clone() }, &|_| ());
            updates(&results.unwrap(), CellKind::Fam, 64).counts.media_writes
        };
        let (few, many) = (media_writes(200), media_writes(10_000));
        assert!((0.8..1.25).contains(&(few / many)), "{few} {many}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            Options { sizes_bytes: vec![], ..small() },
            Options { sizes_bytes: vec![7], ..small() },
            Options { sizes_bytes: vec![257], ..small() },
            Options { operations: 0, ..small() },
            Options { array_bytes: 10, ..small() },
            Options { sides: Sides { model: false, ..Sides::modelled_only() }, ..small() },
            Options { sides: Sides { profile: "papyrus".into(), ..Sides::default() }, ..small() },
        ] {
            assert!(run(&wrong, &|_| ()).is_err(), "{wrong:?}");
        }
    }
}
