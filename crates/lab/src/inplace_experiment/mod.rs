//! In-place updates of small values: copy-on-write, log and failure-atomic memory side by side.
//!
//! The experiment of Fig. 10 of van Renen et al. (VLDB Journal 2020): an array of cells on lines of
//! their own; updates, reads, and reads of which each needs the one before to know where to look, in
//! order and at random. The array is larger than the caches.

mod figure;
mod run;

use lapis_blocks::in_place::{CellKind, InPlaceError, LARGEST_VALUE_BYTES, SMALLEST_VALUE_BYTES};
use lapis_blocks::log::LogError;
use lapis_device::{Profile, ProfileError};
use lapis_pmem::{PoolError, RegionError, RootError};
use serde::Serialize;

use crate::report::{OnProgress, Progress};

pub use figure::{markdown, plot};
use run::{Outcome, measure, model};

/// The figure of the paper.
pub const FIGURE: &str =
    "After Fig. 10 of van Renen et al., Building blocks for persistent memory (VLDB Journal 2020)";

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

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One cell after the other.
    Sequential,
    /// Any.
    Random,
}

impl Pattern {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sequential, Self::Random];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
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
            sizes_bytes: vec![8, 16, 32, 64, 128, 256],
            array_bytes: 128 << 20,
            operations: 400_000,
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
    /// A cell came out otherwise than it went in.
    #[error("{variant} cells of {size_bytes} bytes gave a wrong value")]
    WrongValue {
        /// The scheme.
        variant: CellKind,
        /// The size.
        size_bytes: usize,
    },
    /// The cells failed.
    #[error(transparent)]
    Cells(#[from] InPlaceError),
    /// Their log failed.
    #[error(transparent)]
    Log(#[from] LogError),
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
}

/// What the modelled machine did, per operation; media in units of 64 bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnModel {
    /// The device profile.
    pub profile: String,
    /// Million operations per second of virtual time.
    pub mops: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Lines that reached the memory controller.
    pub wpq_inserts: f64,
    /// Media writes.
    pub media_writes: f64,
}

/// One operation on cells of one scheme and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
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
    /// This machine.
    pub measured: Option<Measured>,
    /// The modelled machine.
    pub modelled: Option<OnModel>,
    /// Barriers per operation, truncations of the log left out.
    pub barriers: u64,
    /// Bytes of persistent memory that a cell takes, a log left out.
    pub cell_bytes: usize,
}

/// What `lab inplace` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// One row for each scheme, size, operation and pattern.
    pub rows: Vec<Row>,
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::BadOption { what: what.into() });
        if self.sizes_bytes.is_empty() {
            return bad("an in-place experiment takes at least one size");
        }
        if self.operations == 0 || self.modelled_operations == 0 {
            return bad("an operation is done at least once");
        }
        if !self.measure && !self.model {
            return bad("an in-place experiment measures, models or does both");
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
        Ok(Profile::find(&self.profile)?)
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<Results, ExperimentError> {
    let profile = options.check()?;
    let mut rows = Vec::new();
    let sides = usize::from(options.measure) + usize::from(options.model);
    let total = (options.sizes_bytes.len() * CellKind::ALL.len() * sides) as u64;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(Progress { done, total });
    };
    for &size_bytes in &options.sizes_bytes {
        for variant in CellKind::ALL {
            let measured = options.measure.then(|| measure(variant, size_bytes, options));
            let measured = measured.transpose()?;
            if options.measure {
                step();
            }
            let modelled = options.model.then(|| model(variant, size_bytes, options, &profile));
            let modelled = modelled.transpose()?;
            if options.model {
                step();
            }
            let outcomes = measured.as_ref().or(modelled.as_ref());
            for (at, outcome) in outcomes.into_iter().flatten().enumerate() {
                let per = |count: u64, of: &Outcome| count as f64 / of.operations as f64;
                rows.push(Row {
                    variant: variant.name(),
                    size_bytes,
                    operation: outcome.operation,
                    pattern: outcome.pattern,
                    threads: 1,
                    measured: measured.as_ref().map(|all| Measured { mops: all[at].mops() }),
                    modelled: modelled.as_ref().map(|all| &all[at]).map(|of| OnModel {
                        profile: options.profile.clone(),
                        mops: of.mops(),
                        flushes: per(of.counts.flushes, of),
                        fences: per(of.counts.fences, of),
                        wpq_inserts: per(of.counts.wpq_inserts(), of),
                        media_writes: per(of.counts.media_writes, of),
                    }),
                    barriers: match (outcome.operation, variant) {
                        (Operation::Update, CellKind::Fam) => 1,
                        (Operation::Update, CellKind::Cow | CellKind::Log) => 2,
                        (Operation::Read | Operation::DependentRead, _) => 0,
                    },
                    cell_bytes: outcome.cell_bytes,
                });
            }
        }
    }
    Ok(Results { rows })
}

#[cfg(test)]
mod tests {
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

    fn updates(results: &Results, variant: CellKind, size_bytes: usize) -> OnModel {
        let found = results.rows.iter().find(|row| {
            (row.variant, row.size_bytes, row.operation, row.pattern)
                == (variant.name(), size_bytes, Operation::Update, Pattern::Random)
        });
        found.unwrap().modelled.clone().unwrap()
    }

    #[test]
    fn every_scheme_has_a_row_for_each_size_operation_and_pattern() {
        let results = run(&small(), &|_| ()).unwrap();
        assert_eq!(results.rows.len(), 3 * 2 * 3 * 2);
        assert!(results.rows.iter().all(|row| row.measured.is_some() && row.modelled.is_some()));
        assert_eq!(markdown(&results).lines().count(), 2 + 3 * 2 * 2);
        assert!(plot(&results).svg().unwrap().contains("fam-cell"));
    }

    #[test]
    fn the_modelled_barriers_are_those_of_the_paper() {
        let results = run(&Options { measure: false, ..small() }, &|_| ()).unwrap();
        for size_bytes in [16, 64] {
            let fences = CellKind::ALL.map(|kind| updates(&results, kind, size_bytes).fences);
            assert_eq!((fences[0], fences[2]), (2.0, 1.0));
            // The log is cleared now and then.
            assert!((2.0..2.1).contains(&fences[1]), "{fences:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            Options { sizes_bytes: vec![], ..small() },
            Options { sizes_bytes: vec![7], ..small() },
            Options { sizes_bytes: vec![257], ..small() },
            Options { operations: 0, ..small() },
            Options { array_bytes: 10, ..small() },
            Options { measure: false, model: false, ..small() },
            Options { profile: "papyrus".into(), ..small() },
        ] {
            assert!(run(&wrong, &|_| ()).is_err(), "{wrong:?}");
        }
    }
}
