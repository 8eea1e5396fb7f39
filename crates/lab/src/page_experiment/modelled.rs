//! On the machine of a device profile.

use std::ops::ControlFlow;

use lapis_blocks::page::{CostModel, PageScheme, PageStore};
use lapis_device::{Config, Modelled as Machine, Picoseconds, Profile, interleave};
use lapis_pmem::{Pool, PoolError, Region};

use super::writer::{Writer, full_store, pool_bytes};
use super::{CHECKSUM_GB_S, Cell, Modelled, Options, PageExperimentError};

/// A store on which the rows of one scheme are run, one after the other.
pub(super) struct Bench {
    store: PageStore<Machine>,
    variant: PageScheme,
    profile: String,
    /// What a page write costs the core besides.
    stated_ns: f64,
    /// A read of ordinary memory that no prefetcher foresees.
    dram_read_ns: f64,
}

impl Bench {
    pub(super) fn new(
        options: &Options,
        profile: &Profile,
        variant: PageScheme,
    ) -> Result<Self, PageExperimentError> {
        let bytes = pool_bytes(options, options.modelled_pages);
        let region = Region::anonymous(bytes, bytes).map_err(PoolError::from)?;
        let config = Config { counting: Some(profile.machine()), ..Config::default() };
        let machine = Machine::over(&region, config);
        let pool = Pool::create(region, machine)?;
        let checksum_ns = match variant {
            PageScheme::Checksum => options.page_bytes as f64 / CHECKSUM_GB_S,
            _ => 0.0,
        };
        Ok(Self {
            store: full_store(pool, options, variant, options.modelled_pages)?,
            variant,
            profile: profile.name.clone(),
            stated_ns: profile.core.operation_ns.value + checksum_ns,
            dram_read_ns: profile.dram.read_random_ns.value,
        })
    }

    pub(super) fn run(
        &self,
        options: &Options,
        cell: Cell,
        cost_model: &CostModel,
    ) -> Result<Modelled, PageExperimentError> {
        self.store.set_cost_model(cost_model, cell.threads)?;
        let machine = self.store.pool().domain();
        let mut writers: Vec<Writer> = (0..cell.threads)
            .map(|number| {
                // Where the contents come from is not the model's business.
                Writer::new(options, options.modelled_pages, cell.dirty_lines, number, 0)
            })
            .collect();
        let scattered = match self.variant {
            PageScheme::CopyOnWrite | PageScheme::Checksum => false,
            PageScheme::CopyOnWriteLoading | PageScheme::MicroLog => true,
            PageScheme::Hybrid => {
                let copied = cost_model.copy_from_lines(options.page_bytes, cell.threads)?;
                cell.dirty_lines < copied
            }
        };
        let run_ns = if scattered { self.dram_read_ns } else { 0.0 };
        self.write(&mut writers, options.modelled_writes / 5 + 1, run_ns)?;
        machine.drain();
        let began = machine.align_clocks(cell.threads);
        let before = machine.counts();
        self.write(&mut writers, options.modelled_writes, run_ns)?;
        let ended = machine.align_clocks(cell.threads);
        machine.drain();
        let counts = machine.counts() - before;
        let pages = (cell.threads * options.modelled_writes) as f64;
        let seconds = (ended.0 - began.0) as f64 / 1e12;
        let each = |count: u64| count as f64 / pages;
        Ok(Modelled {
            profile: self.profile.clone(),
            pages_per_s: pages / seconds,
            ns_per_page: 1e9 * seconds * cell.threads as f64 / pages,
            fences: each(counts.fences),
            flushes: each(counts.flushes),
            wpq_inserts: each(counts.wpq_inserts()),
            media_writes: each(counts.media_writes),
            media_reads: each(counts.media_reads),
        })
    }

    /// Each worker writes so many pages, and waits for `run_ns` for each run of dirty lines.
    fn write(
        &self,
        writers: &mut [Writer],
        writes: usize,
        run_ns: f64,
    ) -> Result<(), PageExperimentError> {
        let machine = self.store.pool().domain();
        let mut left = vec![writes; writers.len()];
        let mut failed = None;
        interleave(machine, writers.len(), |worker| {
            let number = usize::from(worker);
            let reads_ns = writers[number].next_runs() as f64 * run_ns;
            machine.spend(worker, Picoseconds::from_ns(self.stated_ns + reads_ns));
            match writers[number].write(&self.store) {
                Ok(id) if left[number] == writes => match writers[number].wrote(&self.store, id) {
                    Ok(true) => {}
                    Ok(false) => {
                        let variant = self.variant;
                        failed = Some(PageExperimentError::WrongContents { variant, id });
                        return ControlFlow::Break(());
                    }
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                },
                Ok(_) => {}
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            left[number] -= 1;
            if left[number] == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        failed.map_or(Ok(()), Err)
    }
}
