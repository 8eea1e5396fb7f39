//! Bandwidth and write amplification by operation, access size and number of workers, done to a
//! modelled machine as the programs of the FAST 2020 study did it to a real one: every worker goes from
//! one access to the next, nothing waits for anything, and there is no fence.

use std::cell::Cell;
use std::ops::ControlFlow;

use lapis_device::{CacheShape, HierarchyShape, MachineShape, Profile, interleave};

use super::experiments::{Figures, figure};
use super::patterns::{Bench, Persist, scattered};
use crate::experiment::ExperimentError;

const LINE: usize = 64;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Far more than what the modules' translations reach.
const READ_BYTES: usize = 1024 * MIB;
const WRITTEN_BYTES: usize = 64 * MIB;
/// Lines of all workers together that are looked at, and those before, which fill the queues.
const LINES: usize = 12_000;
const WARM_UP_LINES: usize = 6_000;
/// The same where caches have to be filled.
const CACHED_WARM_UP_LINES: usize = 30_000;

/// What the workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Load,
    Persist(Persist),
    /// Stores that leave the caches when they have to.
    Store,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    sequential: bool,
    one_module: bool,
    operation: Operation,
    access_bytes: usize,
    workers: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bandwidth {
    pub(super) gb_s: f64,
    /// Bytes that the program wrote for each byte that the media did.
    pub(super) effective_write_ratio: f64,
}

const HOW: &str = "each worker in its own part, nothing waits for anything, no fence";

/// The measurements that figures are of, each of them a bandwidth or an effective write ratio.
pub(super) fn figures(profile: &Profile, names: &[&str]) -> Figures {
    let mut figures = Vec::new();
    let mut last: Option<(Run, Bandwidth)> = None;
    for name in names {
        let Some((run, kind)) = Run::of_figure(name) else { continue };
        let bandwidth = match last {
            Some((same, bandwidth)) if same == run => bandwidth,
            _ => run.on(profile)?,
        };
        last = Some((run, bandwidth));
        figures.push(match kind {
            "gb_s" => figure(*name, run.in_words(), "GB/s", bandwidth.gb_s, HOW),
            _ => figure(
                *name,
                format!("{}: written, by media", run.in_words()),
                "bytes",
                bandwidth.effective_write_ratio,
                HOW,
            ),
        });
    }
    Ok(figures)
}

/// Caches of the same shape that are filled soon.
fn small_caches(machine: MachineShape) -> MachineShape {
    let level = |capacity_bytes, ways| CacheShape { capacity_bytes, ways };
    let caches = HierarchyShape {
        l1: level(4 * KIB, 8),
        l2: level(16 * KIB, 16),
        l3: level(704 * KIB, 11),
        ..machine.caches
    };
    MachineShape { caches, ..machine }
}

impl Run {
    /// `runs/PATTERN/MODULES/OPERATION/BYTES/WORKERS/KIND`: the run, and which figure of it.
    pub(super) fn of_figure(name: &str) -> Option<(Self, &str)> {
        let mut parts = name.strip_prefix("runs/")?.split('/');
        let mut part = || parts.next();
        let sequential = part()? == "sequential";
        let one_module = part()? == "1";
        let operation = match part()? {
            "load" => Operation::Load,
            "ntstore" => Operation::Persist(Persist::NonTemporal),
            "store+clwb" => Operation::Persist(Persist::StoreAndFlush),
            _ => Operation::Store,
        };
        let access_bytes = part()?.parse().ok()?;
        let workers = part()?.parse().ok()?;
        Some((Self { sequential, one_module, operation, access_bytes, workers }, part()?))
    }

    fn in_words(&self) -> String {
        let modules = if self.one_module { "one module" } else { "all modules" };
        let order = if self.sequential { "in order" } else { "at random" };
        let operation = match self.operation {
            Operation::Load => "read",
            Operation::Persist(Persist::NonTemporal) => "ntstore",
            Operation::Persist(Persist::StoreAndFlush) => "store+clwb",
            Operation::Store => "store, evicted",
        };
        let (bytes, workers) = (self.access_bytes, self.workers);
        format!("{modules}, {operation}, {bytes} B {order}, {workers} workers")
    }

    /// The place of a worker's line.
    fn line(&self, worker: usize, step: usize, bytes: usize) -> usize {
        let lines_per_access = self.access_bytes / LINE;
        let (access, within) = (step / lines_per_access, step % lines_per_access * LINE);
        if self.sequential {
            // Streams begin on modules in turn.
            let stretch = bytes / self.workers / (24 * KIB) * (24 * KIB);
            return (worker * stretch + worker % 6 * 4 * KIB + step * LINE) % bytes;
        }
        // No two workers go from module to module in the same order.
        let slots = bytes / self.access_bytes;
        let first = slots / self.workers * worker;
        scattered(first + access, slots) * self.access_bytes + within
    }

    /// Does it to the machine of a profile.
    pub(super) fn on(&self, profile: &Profile) -> Result<Bandwidth, ExperimentError> {
        let machine =
            if self.one_module { profile.machine_of_one_module() } else { profile.machine() };
        let (machine, bytes, warm_up) = match self.operation {
            Operation::Load => (machine, READ_BYTES, WARM_UP_LINES),
            Operation::Persist(_) => (machine, WRITTEN_BYTES, WARM_UP_LINES),
            Operation::Store => (small_caches(machine), WRITTEN_BYTES, CACHED_WARM_UP_LINES),
        };
        let bench = Bench::new(machine, bytes)?;
        let mut steps = vec![0; self.workers];
        // The worker that goes next is always the one whose clock is least: it shows the time.
        let until = |lines: usize, steps: &mut [usize]| {
            let (left, now) = (Cell::new(lines), Cell::new(0));
            interleave(&bench.machine, self.workers, |number| {
                if left.get() == 0 {
                    return ControlFlow::Break(());
                }
                let worker = usize::from(number);
                let line = self.line(worker, steps[worker], bytes);
                steps[worker] += 1;
                match self.operation {
                    Operation::Load => bench.prefetch(line),
                    Operation::Persist(persist) => bench.write(line, LINE, persist),
                    Operation::Store => bench.store(line, LINE),
                }
                left.set(left.get() - 1);
                if left.get() == 0 {
                    now.set(bench.machine.now(number).0);
                }
                ControlFlow::Continue(())
            });
            now.get()
        };
        let begin = until(warm_up, &mut steps);
        let mut end = begin;
        let counts = bench.counts(|| end = until(LINES, &mut steps));
        Ok(Bandwidth {
            gb_s: (LINES * LINE) as f64 * 1000.0 / (end - begin) as f64,
            effective_write_ratio: counts.wpq_inserts() as f64 / counts.media_writes as f64,
        })
    }
}
