//! Appends on this machine.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lapis_blocks::log::{Layout, Log};
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_blocks::shared_log::SharedLog;
use lapis_blocks::thread_logs::ThreadLogs;
use lapis_blocks::{with_log, with_ring};
use lapis_pmem::{Domain, Hardware, Pool};

use super::{ExperimentError, Job, Rate, Sharing, not_shared};

/// Bytes of entries between two truncations, which are not timed.
const ROUND_BYTES: usize = 1 << 20;

pub(super) fn run(job: Job, milliseconds: u64) -> Result<Rate, ExperimentError> {
    let long = Duration::from_millis(milliseconds);
    let entry = job.most_entry_bytes();
    let appends = (ROUND_BYTES / entry).max(16);
    let (kind, bytes) = (job.variant.kind, (appends + 1) * entry + (64 << 10));
    match job.sharing {
        Sharing::Own => with_log!(kind, Hardware, |L| own::<L>(job, bytes, appends, long)),
        Sharing::PerThread => {
            with_log!(kind, Hardware, |L| per_thread::<L>(job, bytes, appends, long))
        }
        Sharing::Shared => {
            let bytes = bytes * job.threads;
            with_ring!(kind, |K| shared::<K>(job, bytes, appends, long), Err(not_shared(job)))
        }
    }
}

/// Anonymous memory for logs of so many bytes, with spare segments.
fn pool(bytes: usize, logs: usize) -> Result<Arc<Pool<Hardware>>, ExperimentError> {
    Ok(Arc::new(Pool::create_anonymous(logs * 4 * bytes.next_multiple_of(64 << 10) + (2 << 20))?))
}

pub(super) fn open<D: Domain, L: Log<D>>(
    pool: &Arc<Pool<D>>,
    layout: Layout,
    number: usize,
) -> Result<L, ExperimentError> {
    Ok(L::create_named(pool, &format!("log {number}"), L::options(layout))?)
}

/// Rounds of appends, for so long; the first, which touches the memory, does not count. `round` says
/// how long it took.
fn rounds(
    long: Duration,
    appends: usize,
    mut round: impl FnMut() -> Result<Duration, ExperimentError>,
) -> Result<Rate, ExperimentError> {
    round()?;
    let (mut spent, mut count, started) = (Duration::ZERO, 0, Instant::now());
    while count == 0 || (spent < long && started.elapsed() < 4 * long) {
        spent += round()?;
        count += appends;
    }
    let ns_per_append = spent.as_nanos() as f64 / count as f64;
    Ok(Rate { appends_per_s: 1e9 / ns_per_append.max(1e-3), ns_per_append })
}

fn own<L: Log<Hardware>>(
    job: Job,
    bytes: usize,
    appends: usize,
    long: Duration,
) -> Result<Rate, ExperimentError> {
    let log: L = open(&pool(bytes, 1)?, job.layout(bytes), 0)?;
    let payload = job.payload();
    rounds(long, appends, || {
        let started = Instant::now();
        for _ in 0..appends {
            log.append(std::hint::black_box(&payload))?;
        }
        let spent = started.elapsed();
        log.truncate(log.end())?;
        Ok(spent)
    })
}

/// What several threads did, each in its own time.
fn together(of_threads: Vec<Rate>) -> Rate {
    let appends_per_s: f64 = of_threads.iter().map(|measured| measured.appends_per_s).sum();
    let ns_per_append = of_threads.len() as f64 * 1e9 / appends_per_s.max(1e-3);
    Rate { appends_per_s, ns_per_append }
}

fn per_thread<L: Log<Hardware>>(
    job: Job,
    bytes: usize,
    appends: usize,
    long: Duration,
) -> Result<Rate, ExperimentError> {
    let pool = pool(bytes, job.threads)?;
    let logs: Vec<L> = (0..job.threads)
        .map(|thread| open(&pool, job.layout(bytes), thread))
        .collect::<Result<_, _>>()?;
    let logs = ThreadLogs::new(logs, 1)?;
    let start = Barrier::new(job.threads);
    let measured: Vec<Result<Rate, ExperimentError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..job.threads)
            .map(|thread| {
                let (logs, start) = (&logs, &start);
                scope.spawn(move || {
                    let payload = job.payload();
                    start.wait();
                    rounds(long, appends, || {
                        let started = Instant::now();
                        for _ in 0..appends {
                            logs.append(thread, std::hint::black_box(&payload))?;
                        }
                        let spent = started.elapsed();
                        if let Some(log) = logs.log(thread) {
                            log.truncate(log.end())?;
                        }
                        Ok(spent)
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    Ok(together(measured.into_iter().collect::<Result<_, _>>()?))
}

/// From when the first began until the last had ended.
fn span_of_all(spans: &[(Instant, Instant)]) -> Duration {
    let began = spans.iter().map(|span| span.0).min();
    let ended = spans.iter().map(|span| span.1).max();
    began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began)
}

fn shared<K: RingKind>(
    job: Job,
    bytes: usize,
    appends: usize,
    long: Duration,
) -> Result<Rate, ExperimentError> {
    let log: RingLog<Hardware, K> = open(&pool(bytes, 1)?, job.layout(bytes), 0)?;
    let log = SharedLog::new(log)?;
    let payload = job.payload();
    let measured = rounds(long, appends * job.threads, || {
        let start = Barrier::new(job.threads);
        // Each looks at the clock itself: where there are no more processors than threads, another
        // would get to it only when they have done most of their work.
        let append = || {
            start.wait();
            let began = Instant::now();
            for _ in 0..appends {
                log.append(std::hint::black_box(&payload))?;
            }
            Ok::<_, ExperimentError>((began, Instant::now()))
        };
        let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..job.threads).map(|_| scope.spawn(append)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
                .collect::<Result<_, _>>()
        })?;
        let spent = span_of_all(&spans);
        log.truncate(log.end())?;
        Ok(spent)
    })?;
    let ns_per_append = measured.ns_per_append * job.threads as f64;
    Ok(Rate { ns_per_append, ..measured })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_lasts_from_the_first_that_begins_to_the_last_that_ends() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        assert_eq!(span_of_all(&[(at(3), at(5)), (at(1), at(4))]), Duration::from_millis(4));
        assert_eq!(span_of_all(&[]), Duration::ZERO);
    }
}
