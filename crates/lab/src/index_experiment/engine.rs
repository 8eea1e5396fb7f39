//! Runs steps on an index, measured or not, and checks every answer.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::time::Instant;

use lapis_device::{CacheShape, HierarchyShape, MachineShape};
use lapis_index::{Change, IndexError, Statistics};
use lapis_pmem::{Domain, LINE_BYTES};

use super::contender::OwnIndex;
use super::plan::Step;
use super::{ExperimentError, MANY, Measured};
use crate::experiment::meter::{Meter, ModelMeter, Section};
use crate::keys::scatter;
use crate::report::Latencies;

/// At most one operation in this many is timed, so that timing does not distort throughput.
const SAMPLE_INTERVAL: usize = 64;
/// Timed operations that suffice for the quantiles.
const ENOUGH_SAMPLES: usize = 20_000;

/// The value of a key after its update in `round`; the upper half says whose value it is.
pub(crate) fn value_of(key: u64, round: u32) -> u64 {
    scatter(key) >> 32 << 32 | u64::from(round)
}

/// Whether `value` is one that `key` has had.
pub(crate) fn is_value_of(key: u64, value: u64) -> bool {
    (scatter(key) ^ value) >> 32 == 0
}

/// An index whose type is forgotten. What runs within a clock is compiled for each type, and nothing
/// else is.
pub(crate) trait AnyContender: Send + Sync {
    /// Does one step; false if the answer is wrong.
    fn perform(&self, step: Step) -> Result<bool, IndexError>;

    /// Does up to [`MANY`] steps by one call of the index, look-ups or inserts all; the number of wrong answers.
    fn perform_many(&self, steps: &[Step]) -> Result<u64, IndexError>;

    /// Does all steps on this thread, `at_once` by one call of the index, taking the time of one step in `interval`, or of
    /// each call for many; the number of wrong answers.
    fn perform_timed(
        &self,
        steps: &[Step],
        at_once: usize,
        interval: usize,
        latencies: &mut Latencies,
    ) -> Result<u64, IndexError>;

    /// Its size and depth.
    fn statistics(&self) -> Statistics;
}

/// An index of one type on one machine.
pub(super) struct Erased<D, T>(pub(super) T, pub(super) PhantomData<fn(D)>);

impl<D: Domain, T: OwnIndex<D>> AnyContender for Erased<D, T> {
    #[inline]
    fn perform(&self, step: Step) -> Result<bool, IndexError> {
        let index = &self.0;
        let was_there =
            |key: u64, previous: Option<u64>| previous.is_some_and(|value| is_value_of(key, value));
        let update = |key, round| index.change(key, Change::Update(value_of(key, round)));
        Ok(match step {
            Step::Insert { key } => index.change(key, Change::Insert(value_of(key, 0)))?.is_none(),
            Step::Get { key } => was_there(key, index.get(key)),
            Step::Update { key, round } => was_there(key, update(key, round)?),
            Step::ReadUpdate { key, round } => {
                was_there(key, index.get(key)) && was_there(key, update(key, round)?)
            }
            Step::Remove { key } => was_there(key, index.change(key, Change::Remove)?),
            Step::Scan { from, limit } => {
                let (mut found, mut sound, mut before) = (0, true, None);
                let mut visit = |&key: &u64, value| {
                    sound &= is_value_of(key, value) && before < Some(key);
                    // The first is the one asked for.
                    sound &= found > 0 || key == from;
                    before = Some(key);
                    found += 1;
                    if found == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                index.scan(&from, &mut visit);
                sound && found > 0
            }
        })
    }

    fn perform_many(&self, steps: &[Step]) -> Result<u64, IndexError> {
        let mut keys = [&0; MANY];
        for (place, step) in keys.iter_mut().zip(steps) {
            let (Step::Get { key } | Step::Insert { key }) = step else {
                unreachable!("nothing else is done many at once")
            };
            *place = key;
        }
        let keys = &keys[..steps.len()];
        let mut right = 0;
        if let Some(Step::Insert { .. }) = steps.first() {
            let mut entries = [(&0, 0); MANY];
            entries
                .iter_mut()
                .zip(keys)
                .for_each(|(entry, key)| *entry = (*key, value_of(**key, 0)));
            let mut answer = |_, previous: Option<u64>| right += u64::from(previous.is_none());
            self.0.insert_many(&entries[..keys.len()], &mut answer)?;
        } else {
            self.0.get_many(keys, &mut |place, value| {
                right += u64::from(value.is_some_and(|value| is_value_of(*keys[place], value)));
            });
        }
        // What is not answered is wrong, too.
        Ok(steps.len() as u64 - right)
    }

    fn perform_timed(
        &self,
        steps: &[Step],
        at_once: usize,
        interval: usize,
        latencies: &mut Latencies,
    ) -> Result<u64, IndexError> {
        let mut wrong = 0;
        if at_once > 1 {
            for group in steps.chunks(at_once) {
                let start = Instant::now();
                wrong += self.perform_many(group)?;
                latencies.record(start.elapsed());
            }
            return Ok(wrong);
        }
        for batch in steps.chunks(interval) {
            let Some((&timed, rest)) = batch.split_first() else { break };
            let start = Instant::now();
            let right = self.perform(timed)?;
            latencies.record(start.elapsed());
            wrong += u64::from(!right);
            for &step in rest {
                wrong += u64::from(!self.perform(step)?);
            }
        }
        Ok(wrong)
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

/// Does the steps of each logical worker, `at_once` by one call, interleaved by their clocks, each with what it costs
/// beyond its accesses, and counts them, and nothing of what went before. The number of wrong answers comes with the
/// section.
pub(crate) fn count(
    meter: &ModelMeter,
    index: &dyn AnyContender,
    plans: &[Vec<Step>],
    at_once: usize,
    operation_ns: u64,
) -> Result<(u64, Section), ExperimentError> {
    let mut done = vec![0; plans.len()];
    meter.settle();
    meter.section(plans.len(), || {
        let mut wrong = 0;
        meter.interleave(plans.len(), |worker| {
            let at = usize::from(worker);
            let left = &plans[at][done[at]..];
            let steps = &left[..at_once.min(left.len())];
            done[at] += steps.len();
            meter.machine().spend_ns(worker, operation_ns * steps.len() as u64);
            match steps {
                [] => return Ok(ControlFlow::Break(())),
                [step] => wrong += u64::from(!index.perform(*step)?),
                _ => wrong += index.perform_many(steps)?,
            }
            Ok::<_, ExperimentError>(ControlFlow::Continue(()))
        })?;
        Ok(wrong)
    })
}

/// Caches of the same ways with a share of the lines, at least one set of each.
pub(crate) fn with_smaller_caches(machine: MachineShape, share: f64) -> MachineShape {
    let level = |cache: CacheShape| {
        let set_bytes = cache.ways * LINE_BYTES;
        let sets = (cache.capacity_bytes as f64 * share / set_bytes as f64).round() as usize;
        CacheShape { capacity_bytes: sets.max(1) * set_bytes, ..cache }
    };
    let caches = machine.caches;
    let caches = HierarchyShape {
        l1: level(caches.l1),
        l2: level(caches.l2),
        l3: level(caches.l3),
        ..caches
    };
    MachineShape { caches, ..machine }
}

struct Thread {
    begin: Instant,
    end: Instant,
    latencies: Latencies,
    wrong: u64,
}

/// Does the steps of each thread on a thread of its own and takes the time. The number of wrong
/// answers comes with the figures.
pub(crate) fn measure(
    index: &dyn AnyContender,
    plans: &[Vec<Step>],
    at_once: usize,
) -> Result<(Measured, u64), IndexError> {
    let steps: usize = plans.iter().map(Vec::len).sum();
    // Odd, so as not to fall into step with what happens every 64th time.
    let interval = (steps / ENOUGH_SAMPLES).clamp(1, SAMPLE_INTERVAL - 1) | 1;
    let barrier = Barrier::new(plans.len());
    let threads: Vec<Result<Thread, IndexError>> = std::thread::scope(|scope| {
        let barrier = &barrier;
        let workers: Vec<_> = plans
            .iter()
            .map(|steps| {
                scope.spawn(move || measure_thread(index, (steps, at_once), interval, barrier))
            })
            .collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    let threads = threads.into_iter().collect::<Result<Vec<_>, _>>()?;
    let begin = threads.iter().map(|thread| thread.begin).min();
    let end = threads.iter().map(|thread| thread.end).max();
    let elapsed = begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
    let mut latencies = Latencies::new();
    threads.iter().for_each(|thread| latencies.merge(&thread.latencies));
    let quantiles = latencies.quantiles();
    let mops = if elapsed > 0.0 { steps as f64 / elapsed / 1e6 } else { 0.0 };
    let measured = Measured {
        repetitions: 1,
        mops,
        mops_min: mops,
        mops_max: mops,
        p50_ns: quantiles.p50,
        p99_ns: quantiles.p99,
        p9999_ns: quantiles.p9999,
    };
    Ok((measured, threads.iter().map(|thread| thread.wrong).sum()))
}

fn measure_thread(
    index: &dyn AnyContender,
    (steps, at_once): (&[Step], usize),
    interval: usize,
    barrier: &Barrier,
) -> Result<Thread, IndexError> {
    let mut latencies = Latencies::new();
    barrier.wait();
    let begin = Instant::now();
    let wrong = index.perform_timed(steps, at_once, interval, &mut latencies)?;
    Ok(Thread { begin, end: Instant::now(), latencies, wrong })
}
