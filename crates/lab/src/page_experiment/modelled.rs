//! On the machine of a device profile.

use std::ops::ControlFlow;

use lapis_blocks::page::{CostModel, PageScheme, PageStore};
use lapis_device::{Modelled, Picoseconds, Profile};

use super::writer::{Writer, full_store, pool_bytes};
use super::{CHECKSUM_GB_S, Case, ExperimentError, Options, Rate, wrong_contents};
use crate::experiment::OnModel;
use crate::experiment::meter::{Meter, ModelMeter};

/// A store on which the rows of one scheme are run, one after the other.
pub(super) struct Bench {
    store: PageStore<Modelled>,
    meter: ModelMeter,
    pub(super) variant: PageScheme,
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
    ) -> Result<Self, ExperimentError> {
        let bytes = pool_bytes(options, options.modelled_pages);
        let (meter, pool) = ModelMeter::with_pool(profile.machine(), bytes, bytes)?;
        let checksum_bytes = if variant.has_checksums { options.page_bytes } else { 0 };
        let checksum_ns = checksum_bytes as f64 / CHECKSUM_GB_S;
        Ok(Self {
            store: full_store(pool, options, variant, options.modelled_pages)?,
            meter,
            variant,
            stated_ns: profile.core.operation_ns.value + checksum_ns,
            dram_read_ns: profile.dram.read_random_ns.value,
        })
    }

    pub(super) fn run(
        &self,
        options: &Options,
        profile: &Profile,
        case: &Case,
        cost_model: &CostModel,
    ) -> Result<OnModel<Rate>, ExperimentError> {
        self.store.set_cost_model(cost_model, case.threads)?;
        let mut writers: Vec<Writer> = (0..case.threads)
            .map(|number| {
                // Where the contents come from is not the model's business.
                Writer::new(options, options.modelled_pages, case.dirty_lines, number, 0)
            })
            .collect();
        let copied = cost_model.copy_from_lines(options.page_bytes, case.threads)?;
        let scattered =
            self.variant.loads_clean_lines || self.variant.logs(case.dirty_lines, copied);
        let run_ns = if scattered { self.dram_read_ns } else { 0.0 };
        self.write(&mut writers, options.modelled_writes / 5 + 1, run_ns)?;
        self.meter.settle();
        let ((), section) = self
            .meter
            .section(case.threads, || self.write(&mut writers, options.modelled_writes, run_ns))?;
        let pages = case.threads * options.modelled_writes;
        let seconds = section.picoseconds() as f64 / 1e12;
        let rate = Rate {
            pages_per_s: pages as f64 / seconds,
            ns_per_page: 1e9 * seconds * case.threads as f64 / pages as f64,
        };
        Ok(OnModel::new(profile, rate, &section, pages))
    }

    /// Each worker writes so many pages, and waits for `run_ns` for each run of dirty lines.
    fn write(
        &self,
        writers: &mut [Writer],
        writes: usize,
        run_ns: f64,
    ) -> Result<(), ExperimentError> {
        let mut left = vec![writes; writers.len()];
        self.meter.interleave(writers.len(), |worker| {
            let number = usize::from(worker);
            let reads_ns = writers[number].next_runs() as f64 * run_ns;
            let span = Picoseconds::from_ns(self.stated_ns + reads_ns);
            self.meter.machine().spend(worker, span);
            let id = writers[number].write(&self.store)?;
            if left[number] == writes && !writers[number].wrote(&self.store, id)? {
                return Err(wrong_contents(self.variant, id));
            }
            left[number] -= 1;
            Ok(match left[number] {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        })
    }
}
