//! `lab page`: pages per second by scheme, dirty lines and threads, measured here and modelled.
//!
//! The counterpart of Fig. 7 of A. van Renen et al., *Building blocks for persistent memory*, The VLDB
//! Journal 29 (2020): pages of 16 KiB are written from DRAM to persistent memory, each with so many
//! dirty lines scattered over it, to random pages of a store.
//!
//! *Measured* is this machine: anonymous memory, the flush instruction and the non-temporal stores
//! that the processor has, that many threads, wall-clock time. *Modelled* is the machine of a device
//! profile: so many logical workers, interleaved by their virtual clocks, one page write at a time.
//! Each write is charged the profile's `core.operation_ns` on top of what its accesses cost, and a
//! checksum its bytes at [`CHECKSUM_GB_S`]. The page is in DRAM and in no cache. A page that is read from
//! end to end is taken to be there in time, as it is with a prefetcher; where only dirty lines are read,
//! each run of them is charged the profile's `dram.read_random_ns`, by the model's rule that a load is
//! waited for. The two are never mixed.

mod calibration;
mod crossover;
mod figure;
mod measured;
mod modelled;
mod writer;

use lapis_blocks::page::{LARGEST_PAGE_BYTES, PageError, PageScheme, SMALLEST_PAGE_BYTES};
use lapis_device::Profile;
use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use crate::experiment::{self, ExperimentError, Sides};
use crate::progress::OnProgress;

pub use calibration::{CalibrationError, calibrate, cost_model_of, put_into_profile};
pub use crossover::{Crossover, PUBLISHED_CROSSOVERS, crossovers};
pub use figure::FIGURE;

/// How fast a checksum is: CRC32 by section 3.2.1 of the paper, "almost at line rate".
pub const CHECKSUM_GB_S: f64 = 10.3;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Schemes.
    pub variants: Vec<PageScheme>,
    /// Numbers of dirty lines.
    pub dirty_lines: Vec<usize>,
    /// Numbers of threads, or of logical workers. More threads than this machine has processors are
    /// modelled only.
    pub threads: Vec<usize>,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Where it is run.
    pub sides: Sides,
    /// Pages of the measured store.
    pub measured_pages: usize,
    /// How long each measured row is run.
    pub measured_ms: u64,
    /// Pages of the modelled store.
    pub modelled_pages: usize,
    /// Page writes of each worker of a modelled row.
    pub modelled_writes: usize,
    /// What the random numbers start from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variants: PageScheme::all(),
            dirty_lines: vec![1, 2, 4, 8, 16, 28, 40, 64, 96, 128, 192, 256],
            threads: vec![1, 2, 4, 7],
            page_bytes: 16 << 10,
            sides: Sides::default(),
            measured_pages: 4096,
            measured_ms: 60,
            modelled_pages: 2048,
            modelled_writes: 150,
            seed: 42,
        }
    }
}

/// How fast it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Pages per second, all threads together.
    pub pages_per_s: f64,
    /// Nanoseconds that a thread takes for a page.
    pub ns_per_page: f64,
}

/// What was run: one scheme with so many dirty lines and threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The scheme.
    #[serde(serialize_with = "by_name")]
    pub variant: PageScheme,
    /// Dirty lines of each page.
    pub dirty_lines: usize,
    /// Threads or logical workers.
    pub threads: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Persistency barriers of each write: fences that wait for lines.
    pub barriers: u64,
    /// Fences that only order stores.
    pub ordering_fences: u64,
}

/// One scheme with so many dirty lines and threads.
pub type Row = experiment::Row<Case, Rate>;

fn by_name<S: serde::Serializer>(scheme: &PageScheme, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(scheme.name)
}

/// What `lab page` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageResults {
    /// One row for each scheme, number of dirty lines and number of threads.
    pub rows: Vec<Row>,
    /// Up to how many dirty lines a µlog is faster than a copy.
    pub crossovers: Vec<Crossover>,
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: String| Err(ExperimentError::bad_option(what));
        if !self.page_bytes.is_power_of_two()
            || !(SMALLEST_PAGE_BYTES..=LARGEST_PAGE_BYTES).contains(&self.page_bytes)
        {
            return Err(PageError::BadPageSize { page_bytes: self.page_bytes }.into());
        }
        if self.variants.is_empty() || self.dirty_lines.is_empty() || self.threads.is_empty() {
            return bad("a page experiment takes a variant, dirty lines and threads".into());
        }
        let lines = self.page_bytes / LINE_BYTES;
        if let Some(dirty) = self.dirty_lines.iter().find(|dirty| !(1..=lines).contains(dirty)) {
            return bad(format!(
                "a page of {} bytes has 1 to {lines} dirty lines, not {dirty}",
                self.page_bytes
            ));
        }
        if let Some(threads) = self.threads.iter().find(|threads| !(1..=64).contains(*threads)) {
            return bad(format!("a page experiment takes 1 to 64 threads, not {threads}"));
        }
        if self.measured_pages == 0 || self.modelled_pages == 0 || self.modelled_writes == 0 {
            return bad("a page experiment writes at least one page".into());
        }
        self.sides.check()
    }
}

/// Barriers and ordering fences of a write, by way of a µlog or not.
fn barriers(logs: bool, variant: PageScheme) -> (u64, u64) {
    match (logs, variant.has_checksums) {
        (true, _) => (4, 0),
        (false, true) => (1, 0),
        (false, false) => (2, 1),
    }
}

/// Runs the experiment. Hybrids use the cost model of the profile.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<PageResults, ExperimentError> {
    let profile = options.check()?;
    let cost_model = cost_model_of(&profile).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cases = Vec::new();
    for &variant in &options.variants {
        for &dirty_lines in &options.dirty_lines {
            for &threads in &options.threads {
                let copies_from = cost_model.copy_from_lines(options.page_bytes, threads)?;
                let (barriers, ordering_fences) =
                    barriers(variant.logs(dirty_lines, copies_from), variant);
                let page_bytes = options.page_bytes;
                cases.push(Case {
                    variant,
                    dirty_lines,
                    threads,
                    page_bytes,
                    barriers,
                    ordering_fences,
                });
            }
        }
    }
    // The rows of a scheme are run on the same store, one after the other.
    let (mut here, mut there) = (None::<measured::Bench>, None::<modelled::Bench>);
    let found = options.sides.run(
        &cases,
        progress,
        |case| {
            if case.threads > processors {
                return Ok(None);
            }
            let bench = match &mut here {
                Some(bench) if bench.variant == case.variant => bench,
                other => other.insert(measured::Bench::new(options, case.variant)?),
            };
            bench.run(options, case, &cost_model).map(Some)
        },
        |case| {
            let bench = match &mut there {
                Some(bench) if bench.variant == case.variant => bench,
                other => other.insert(modelled::Bench::new(options, &profile, case.variant)?),
            };
            bench.run(options, &profile, case, &cost_model)
        },
    )?;
    let row = |(case, (measured, modelled)): (Case, (Option<Option<Rate>>, _))| Row {
        case,
        measured: measured.flatten(),
        modelled,
    };
    let rows: Vec<Row> = cases.into_iter().zip(found).map(row).collect();
    Ok(PageResults { crossovers: crossovers(&rows), rows })
}

/// A store that gave back something else than was written to it.
fn wrong_contents(variant: PageScheme, id: u64) -> ExperimentError {
    ExperimentError::wrong(format!("{variant} lost what was written to page {id}"))
}

/// Options of a run that a cost model can be made from.
pub fn calibration_options(options: &Options) -> Options {
    Options {
        variants: vec![PageScheme::COPY_ON_WRITE, PageScheme::MICRO_LOG],
        dirty_lines: options.dirty_lines.clone(),
        ..options.clone()
    }
}

#[cfg(test)]
mod tests {
    use lapis_blocks::page::CostModel;

    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for wrong in [
            Options { page_bytes: 5000, ..Options::default() },
            Options { dirty_lines: vec![0], ..Options::default() },
            Options { dirty_lines: vec![257], ..Options::default() },
            Options { threads: vec![0], ..Options::default() },
            Options { threads: vec![65], ..Options::default() },
            Options { variants: vec![], ..Options::default() },
            Options {
                sides: Sides { model: false, ..Sides::modelled_only() },
                ..Options::default()
            },
            Options { modelled_writes: 0, ..Options::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_default_cost_model_is_that_of_the_default_profile() {
        let profile = Profile::named(&Options::default().sides.profile).unwrap();
        assert_eq!(cost_model_of(&profile), Some(CostModel::default()));
    }

    #[test]
    fn a_log_ceases_to_be_faster_where_the_paper_has_it_with_one_writer() {
        let options = Options {
            dirty_lines: vec![16, 28, 40],
            threads: vec![1],
            sides: Sides::modelled_only(),
            ..calibration_options(&Options::default())
        };
        let results = run(&options, &|_| ()).unwrap();
        let lines = results.crossovers[0].modelled_lines.unwrap();
        // Published: 28; the model is off by up to a quarter.
        assert!((21.0..35.0).contains(&lines), "{lines}");
    }
}
