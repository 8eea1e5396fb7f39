//! Appends on the modelled machine.

use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_blocks::log::{Layout, Log, LogError};
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_blocks::shared_log::SharedLog;
use lapis_blocks::thread_logs::ThreadLogs;
use lapis_blocks::{with_log, with_ring};
use lapis_device::{Modelled, Profile};
use lapis_pmem::{Domain, LINE_BYTES, Pool};

use super::here::open;
use super::{CPU_NS, ExperimentError, Job, OnModel, Rate, Sharing, not_shared};
use crate::experiment::meter::{Meter, ModelMeter};

/// Bytes of entries that a worker appends, each to lines that were not appended to before.
const RUN_BYTES: usize = 256 << 10;

/// What was counted and, in virtual time, clocked.
pub(super) struct Counted {
    pub(super) append: OnModel<Rate>,
    pub(super) entry_bytes: f64,
}

/// The machine of a run and how much is to be done on it.
struct Bench<'p> {
    pool: Arc<Pool<Modelled>>,
    meter: ModelMeter,
    profile: &'p Profile,
    job: Job,
    /// Appends of each worker.
    appends: usize,
}

/// `clocked`: enough appends for their time to mean something; otherwise enough to count barriers.
pub(super) fn run(job: Job, profile: &Profile, clocked: bool) -> Result<Counted, ExperimentError> {
    let entry = job.most_entry_bytes();
    let appends = if clocked { (RUN_BYTES / entry).clamp(64, 2048) } else { 16 };
    let bytes = (appends + 1) * entry + (64 << 10);
    let region_bytes = 2 * job.threads * bytes.next_multiple_of(64 << 10) + (1 << 20);
    let (meter, pool) = ModelMeter::with_pool(profile.machine(), region_bytes, region_bytes)?;
    let (kind, layout) = (job.variant.kind, job.layout(bytes));
    let bench = Bench { pool: Arc::new(pool), meter, profile, job, appends };
    match job.sharing {
        Sharing::Own => with_log!(kind, Modelled, |L| own::<L>(layout, &bench)),
        Sharing::PerThread => with_log!(kind, Modelled, |L| per_thread::<L>(layout, &bench)),
        Sharing::Shared => {
            let layout = job.layout(bytes * job.threads);
            with_ring!(kind, |K| shared::<K>(layout, &bench), Err(not_shared(job)))
        }
    }
}

impl Bench<'_> {
    /// Lets every worker append so many times, always the one whose clock is least.
    fn clock(
        &self,
        mut append: impl FnMut(usize) -> Result<(), LogError>,
    ) -> Result<OnModel<Rate>, ExperimentError> {
        let workers = self.job.threads;
        self.fetch_ahead()?;
        let mut left = vec![self.appends; workers];
        let ((), section) = self.meter.section(workers, || {
            self.meter.interleave(workers, |worker| {
                let left = &mut left[usize::from(worker)];
                if *left == 0 {
                    return Ok(ControlFlow::Break(()));
                }
                *left -= 1;
                self.meter.machine().spend_ns(worker, CPU_NS);
                append(usize::from(worker)).map(ControlFlow::Continue)
            })
        })?;
        let total = workers * self.appends;
        let ns = section.picoseconds() as f64 / 1000.0;
        let rate = Rate {
            appends_per_s: total as f64 * 1e9 / ns.max(1e-3),
            ns_per_append: ns / self.appends as f64,
        };
        Ok(OnModel::new(self.profile, rate, &section, total))
    }

    /// Has every worker read every line of the pool. Opening some logs reads their free space, and
    /// opening others does not; the prefetcher of a processor, which the model has none of, would
    /// bring the next lines of all of them.
    fn fetch_ahead(&self) -> Result<(), ExperimentError> {
        let region = self.pool.region();
        self.meter.interleave(self.job.threads, |_| {
            for at in (0..region.mapped_bytes()).step_by(LINE_BYTES) {
                self.meter.machine().prefetch(region.base().wrapping_add(at).cast_const());
            }
            Ok(ControlFlow::Break(()))
        })
    }

    /// Bytes per entry of a log that has entries.
    fn entry_bytes(statistics: lapis_blocks::log::LogStatistics) -> f64 {
        statistics.entry_bytes as f64 / statistics.entries.max(1) as f64
    }
}

fn own<L: Log<Modelled>>(layout: Layout, bench: &Bench<'_>) -> Result<Counted, ExperimentError> {
    let log: L = open(&bench.pool, layout, 0)?;
    let payload = bench.job.payload();
    let append = bench.clock(|_| log.append(&payload).map(|_| ()))?;
    Ok(Counted { entry_bytes: Bench::entry_bytes(log.log_statistics()), append })
}

fn per_thread<L: Log<Modelled>>(
    layout: Layout,
    bench: &Bench<'_>,
) -> Result<Counted, ExperimentError> {
    let logs: Vec<L> = (0..bench.job.threads)
        .map(|thread| open(&bench.pool, layout, thread))
        .collect::<Result<_, _>>()?;
    let logs = ThreadLogs::new(logs, 1)?;
    let payload = bench.job.payload();
    let append = bench.clock(|worker| logs.append(worker, &payload).map(|_| ()))?;
    let statistics = logs.log(0).map(Log::log_statistics);
    Ok(Counted { entry_bytes: statistics.map_or(0.0, Bench::entry_bytes), append })
}

fn shared<K: RingKind>(layout: Layout, bench: &Bench<'_>) -> Result<Counted, ExperimentError> {
    let log: RingLog<Modelled, K> = open(&bench.pool, layout, 0)?;
    let log = SharedLog::new(log)?;
    let payload = bench.job.payload();
    let append = bench.clock(|_| log.append(&payload).map(|_| ()))?;
    Ok(Counted { entry_bytes: Bench::entry_bytes(log.statistics()), append })
}
