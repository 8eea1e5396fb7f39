//! Appends on the modelled machine.

use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_blocks::log::{Log, LogError};
use lapis_blocks::ring_log::{RingLog, RingOptions, Scheme};
use lapis_blocks::shared_log::SharedLog;
use lapis_blocks::thread_logs::ThreadLogs;
use lapis_device::{Config, Modelled, Profile, interleave};
use lapis_pmem::{Domain, LINE_BYTES, Pool, Region};

use super::here::open;
use super::variant::{with_kind, with_log};
use super::{CPU_NS, Job, LogExperimentError, LogVariant, ModelledAppend, Sharing};

/// Bytes of entries that a worker appends, each to lines that were not appended to before.
const RUN_BYTES: usize = 256 << 10;

/// What was counted and, in virtual time, clocked.
pub(super) struct Counted {
    pub(super) append: ModelledAppend,
    pub(super) entry_bytes: f64,
}

/// The machine of a run and how much is to be done on it.
struct Bench<'p> {
    pool: Arc<Pool<Modelled>>,
    profile: &'p Profile,
    job: Job,
    /// Appends of each worker.
    appends: usize,
}

/// `clocked`: enough appends for their time to mean something; otherwise enough to count barriers.
pub(super) fn run(
    job: Job,
    profile: &Profile,
    clocked: bool,
) -> Result<Counted, LogExperimentError> {
    let entry = job.most_entry_bytes();
    let appends = if clocked { (RUN_BYTES / entry).clamp(64, 2048) } else { 16 };
    let bytes = (appends + 1) * entry + (64 << 10);
    let region_bytes = 2 * job.threads * bytes.next_multiple_of(64 << 10) + (1 << 20);
    let region = Region::anonymous(region_bytes, region_bytes)?;
    let config = Config { counting: Some(profile.machine()), ..Config::default() };
    let domain = Modelled::over(&region, config);
    let pool = Arc::new(Pool::create(region, domain)?);
    let bench = Bench { pool, profile, job, appends };
    match job.sharing {
        Sharing::Own => with_log!(job, Modelled, bytes, own(&bench)),
        Sharing::PerThread => with_log!(job, Modelled, bytes, per_thread(&bench)),
        Sharing::Shared => with_kind!(job, bytes * job.threads, shared(&bench)),
    }
}

impl Bench<'_> {
    /// Lets every worker append so many times, always the one whose clock is least.
    fn clock(
        &self,
        mut append: impl FnMut(usize) -> Result<(), LogError>,
    ) -> Result<ModelledAppend, LogExperimentError> {
        let domain = self.pool.domain();
        let workers = self.job.threads;
        self.fetch_ahead();
        let started = domain.align_clocks(workers).0;
        let before = domain.counts();
        let mut left = vec![self.appends; workers];
        let mut failed = None;
        interleave(domain, workers, |worker| {
            let left = &mut left[usize::from(worker)];
            if *left == 0 || failed.is_some() {
                return ControlFlow::Break(());
            }
            *left -= 1;
            domain.spend_ns(worker, CPU_NS);
            if let Err(error) = append(usize::from(worker)) {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        // The last append of each is durable; what is on its way to the media does not count.
        let ended = (0..workers).map(|worker| domain.now(worker as u8).0).max().unwrap_or(started);
        domain.drain();
        let counts = domain.counts() - before;
        let total = (workers * self.appends) as f64;
        let ns = (ended - started) as f64 / 1000.0;
        let per_append = |count: u64| count as f64 / total;
        Ok(ModelledAppend {
            profile: self.profile.name.clone(),
            appends_per_s: total * 1e9 / ns.max(1e-3),
            ns_per_append: ns / self.appends as f64,
            flushes: per_append(counts.flushes),
            fences: per_append(counts.fences),
            wpq_inserts: per_append(
                counts.wpq_flush + counts.wpq_nontemporal + counts.wpq_eviction,
            ),
            media_writes: per_append(counts.media_writes),
        })
    }

    /// Has every worker read every line of the pool. Opening some logs reads their free space, and
    /// opening others does not; the prefetcher of a processor, which the model has none of, would
    /// bring the next lines of all of them.
    fn fetch_ahead(&self) {
        let (domain, region) = (self.pool.domain(), self.pool.region());
        interleave(domain, self.job.threads, |_| {
            for at in (0..region.mapped_bytes()).step_by(LINE_BYTES) {
                domain.prefetch(region.base().wrapping_add(at).cast_const());
            }
            ControlFlow::Break(())
        });
    }

    /// Bytes per entry of a log that has entries.
    fn entry_bytes(statistics: lapis_blocks::log::LogStatistics) -> f64 {
        statistics.entry_bytes as f64 / statistics.entries.max(1) as f64
    }
}

fn own<L: Log<Modelled>>(
    options: L::Options,
    bench: &Bench<'_>,
) -> Result<Counted, LogExperimentError> {
    let log: L = open(&bench.pool, options, 0)?;
    let payload = bench.job.payload();
    let append = bench.clock(|_| log.append(&payload).map(|_| ()))?;
    Ok(Counted { entry_bytes: Bench::entry_bytes(log.log_statistics()), append })
}

fn per_thread<L: Log<Modelled>>(
    options: L::Options,
    bench: &Bench<'_>,
) -> Result<Counted, LogExperimentError> {
    let logs: Vec<L> = (0..bench.job.threads)
        .map(|thread| open(&bench.pool, options.clone(), thread))
        .collect::<Result<_, _>>()?;
    let logs = ThreadLogs::new(logs, 1)?;
    let payload = bench.job.payload();
    let append = bench.clock(|worker| logs.append(worker, &payload).map(|_| ()))?;
    let statistics = logs.log(0).map(Log::log_statistics);
    Ok(Counted { entry_bytes: statistics.map_or(0.0, Bench::entry_bytes), append })
}

fn shared<S: Scheme>(
    options: RingOptions,
    bench: &Bench<'_>,
) -> Result<Counted, LogExperimentError> {
    let log: RingLog<Modelled, S> = open(&bench.pool, options, 0)?;
    let log = SharedLog::new(log)?;
    let payload = bench.job.payload();
    let append = bench.clock(|_| log.append(&payload).map(|_| ()))?;
    Ok(Counted { entry_bytes: Bench::entry_bytes(log.statistics()), append })
}
