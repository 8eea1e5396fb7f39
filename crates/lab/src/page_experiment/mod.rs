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
use lapis_device::{Profile, ProfileError};
use lapis_pmem::{LINE_BYTES, PoolError, RootError};
use serde::Serialize;

use crate::report::OnProgress;

pub use calibration::{CalibrationError, calibrate, cost_model_of, put_into_profile};
pub use crossover::{Crossover, PUBLISHED_CROSSOVERS, crossovers};
pub use figure::{FIGURE, figure, markdown};

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
    /// The device profile that is modelled: its name or file.
    pub profile: String,
    /// Whether to measure. If not, `measured` is null.
    pub measure: bool,
    /// Whether to model. If not, `modelled` is null.
    pub model: bool,
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
            variants: PageScheme::ALL.to_vec(),
            dirty_lines: vec![1, 2, 4, 8, 16, 28, 40, 64, 96, 128, 192, 256],
            threads: vec![1, 2, 4, 7],
            page_bytes: 16 << 10,
            profile: crate::index_experiment::OPTANE_100.into(),
            measure: true,
            model: true,
            measured_pages: 4096,
            measured_ms: 60,
            modelled_pages: 2048,
            modelled_writes: 150,
            seed: 42,
        }
    }
}

/// Why the experiment could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageExperimentError {
    /// An option has a value that makes no sense.
    #[error("{what}")]
    BadOption {
        /// What is wrong.
        what: String,
    },
    /// There is no such device profile, or it is wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A store failed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// There is no pool for a store.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool did not take its root.
    #[error(transparent)]
    Root(#[from] RootError),
    /// What was read is not what was written: the store has an error.
    #[error("{variant} lost what was written to page {id}")]
    WrongContents {
        /// The scheme.
        variant: PageScheme,
        /// The page.
        id: u64,
    },
}

/// What was measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Pages per second, all threads together.
    pub pages_per_s: f64,
    /// Nanoseconds that a thread takes for a page.
    pub ns_per_page: f64,
}

/// What the modelled machine did, per page write. Media counts are in units of 64 bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Modelled {
    /// The device profile.
    pub profile: String,
    /// Pages per second of virtual time, all workers together.
    pub pages_per_s: f64,
    /// Nanoseconds of virtual time that a worker takes for a page.
    pub ns_per_page: f64,
    /// Fences, barriers and ordering fences.
    pub fences: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Lines that reached the memory controller.
    pub wpq_inserts: f64,
    /// Media writes.
    pub media_writes: f64,
    /// Media reads.
    pub media_reads: f64,
}

/// One scheme with so many dirty lines and threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
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
    /// This machine.
    pub measured: Option<Measured>,
    /// The modelled machine.
    pub modelled: Option<Modelled>,
}

fn by_name<S: serde::Serializer>(scheme: &PageScheme, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(scheme.name())
}

/// What `lab page` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageResults {
    /// One row for each scheme, number of dirty lines and number of threads.
    pub rows: Vec<Row>,
    /// Up to how many dirty lines a µlog is faster than a copy.
    pub crossovers: Vec<Crossover>,
}

/// What each row needs to know.
#[derive(Clone, Copy, Debug)]
struct Cell {
    dirty_lines: usize,
    threads: usize,
}

impl Options {
    fn check(&self) -> Result<(), PageExperimentError> {
        let bad = |what: String| Err(PageExperimentError::BadOption { what });
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
        if !self.measure && !self.model {
            return bad("a page experiment measures, models or does both".into());
        }
        Ok(())
    }

    fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.dirty_lines.iter().flat_map(|&dirty_lines| {
            self.threads.iter().map(move |&threads| Cell { dirty_lines, threads })
        })
    }
}

/// Barriers and ordering fences of a write; the hybrid's depend on what it picks.
fn barriers(store_logs: bool, variant: PageScheme) -> (u64, u64) {
    match variant {
        PageScheme::Checksum => (1, 0),
        PageScheme::MicroLog => (4, 0),
        PageScheme::Hybrid if store_logs => (4, 0),
        _ => (2, 1),
    }
}

/// Runs the experiment. Hybrids use the cost model of the profile.
///
/// # Errors
/// [`PageExperimentError`].
pub fn run(
    options: &Options,
    progress: OnProgress<'_>,
) -> Result<PageResults, PageExperimentError> {
    options.check()?;
    let profile = Profile::find(&options.profile)?;
    let cost_model = cost_model_of(&profile).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let total = options.variants.len() * options.dirty_lines.len() * options.threads.len();
    let mut rows: Vec<Row> = Vec::with_capacity(total);
    for &variant in &options.variants {
        let here = options.measure.then(|| measured::Bench::new(options, variant)).transpose()?;
        let there =
            options.model.then(|| modelled::Bench::new(options, &profile, variant)).transpose()?;
        for cell in options.cells() {
            let measured = match &here {
                Some(bench) if cell.threads <= processors => {
                    Some(bench.run(options, cell, &cost_model)?)
                }
                _ => None,
            };
            let modelled = match &there {
                Some(bench) => Some(bench.run(options, cell, &cost_model)?),
                None => None,
            };
            let copies_from = cost_model.copy_from_lines(options.page_bytes, cell.threads)?;
            let (barriers, ordering_fences) = barriers(cell.dirty_lines < copies_from, variant);
            rows.push(Row {
                variant,
                dirty_lines: cell.dirty_lines,
                threads: cell.threads,
                page_bytes: options.page_bytes,
                barriers,
                ordering_fences,
                measured,
                modelled,
            });
            progress(crate::report::Progress { done: rows.len() as u64, total: total as u64 });
        }
    }
    Ok(PageResults { crossovers: crossovers(&rows), rows })
}

/// Options of a run that a cost model can be made from.
pub fn calibration_options(options: &Options) -> Options {
    Options {
        variants: vec![PageScheme::CopyOnWrite, PageScheme::MicroLog],
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
            Options { measure: false, model: false, ..Options::default() },
            Options { modelled_writes: 0, ..Options::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_default_cost_model_is_that_of_the_default_profile() {
        let profile = Profile::named(&Options::default().profile).unwrap();
        assert_eq!(cost_model_of(&profile), Some(CostModel::default()));
    }

    #[test]
    fn a_log_ceases_to_be_faster_where_the_paper_has_it_with_one_writer() {
        let options = Options {
            dirty_lines: vec![16, 28, 40],
            threads: vec![1],
            measure: false,
            ..calibration_options(&Options::default())
        };
        let results = run(&options, &|_| ()).unwrap();
        let lines = results.crossovers[0].modelled_lines.unwrap();
        // Published: 28.
        assert!((24.0..32.0).contains(&lines), "{lines}");
    }
}
