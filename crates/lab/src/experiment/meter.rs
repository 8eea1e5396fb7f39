//! Counted and timed sections of a run: where every figure of the laboratory comes from.
//!
//! A [`Section`] exists once it is closed, and nothing else has figures to give. On the modelled machine
//! to close one is to let all clocks wait for the latest and for what is on its way, and to write
//! to the media what the buffers hold: what an operation has written belongs to it, wherever it
//! is. Left out, a short run would seem to write next to nothing.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use lapis_device::{Config, Counts, MachineShape, Modelled, Picoseconds, interleave};
use lapis_pmem::{Pool, Region};
use serde::Serialize;

use super::error::ExperimentError;

/// What was done between two instants, by the clock of a machine and, if it counts, by its counters.
#[derive(Clone, Debug)]
pub struct Section {
    /// When it began and ended, by each clock of the machine.
    clocks: Vec<(Picoseconds, Picoseconds)>,
    counts: Counts,
}

/// Counts of the modelled machine per operation. Media counts are in units of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CountsPerOperation {
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Lines that reached the memory controller.
    pub wpq_inserts: f64,
    /// Media writes.
    pub media_writes: f64,
    /// Media reads.
    pub media_reads: f64,
    /// Misses of the last-level cache.
    pub llc_misses: f64,
    /// Those of them whose line the worker had just flushed itself ([`Counts::flushed_reads`]).
    pub flushed_reads: f64,
}

impl Section {
    /// How long it took, in picoseconds.
    pub fn picoseconds(&self) -> u64 {
        self.clocks[0].1.0 - self.clocks[0].0.0
    }

    /// How long it took in nanoseconds, by each clock of the machine.
    pub fn times_ns(&self) -> impl Iterator<Item = f64> {
        self.clocks.iter().map(|(begin, end)| (end.0 - begin.0) as f64 / 1000.0)
    }

    /// Whole nanoseconds from the one in which it began to the one in which it ended.
    pub fn whole_ns(&self) -> u64 {
        self.clocks[0].1.0 / 1000 - self.clocks[0].0.0 / 1000
    }

    /// Million operations per second, if it was so many.
    pub fn mops(&self, operations: usize) -> f64 {
        operations as f64 * 1e3 / self.whole_ns().max(1) as f64
    }

    /// What was counted; nothing on hardware.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The same for each of so many operations; nothing if there were none.
    pub fn per_operation(&self, operations: u64) -> CountsPerOperation {
        let each = |count: u64| if operations > 0 { count as f64 / operations as f64 } else { 0.0 };
        CountsPerOperation {
            flushes: each(self.counts.flushes),
            fences: each(self.counts.fences),
            wpq_inserts: each(self.counts.wpq_inserts()),
            media_writes: each(self.counts.media_writes),
            media_reads: each(self.counts.media_reads),
            llc_misses: each(self.counts.llc_misses),
            flushed_reads: each(self.counts.flushed_reads),
        }
    }
}

/// A machine that can be looked at.
pub trait Meter {
    /// Writes to the media what lies in the buffers, so that a section which is opened next does not
    /// answer for what went before. Nothing on hardware.
    fn settle(&self) {}

    /// What `run` does on so many logical workers, as a section.
    ///
    /// # Errors
    /// Those of `run`.
    fn section<T, E>(
        &self,
        workers: usize,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Section), E>;
}

/// This machine, which has a clock and no counters.
#[derive(Clone, Copy, Debug)]
pub struct WallClock;

impl Meter for WallClock {
    fn section<T, E>(
        &self,
        _: usize,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Section), E> {
        let started = Instant::now();
        let found = run()?;
        Ok((found, Section::from(started.elapsed())))
    }
}

impl From<Duration> for Section {
    fn from(elapsed: Duration) -> Self {
        let end = Picoseconds(elapsed.as_nanos() as u64 * 1000);
        Self { clocks: vec![(Picoseconds::default(), end)], counts: Counts::default() }
    }
}

/// The modelled machine, with virtual clocks and counters.
#[derive(Clone, Debug)]
pub struct ModelMeter {
    machine: Modelled,
}

impl ModelMeter {
    /// A meter of `machine`, which counts.
    pub fn of(machine: &Modelled) -> Self {
        Self { machine: machine.clone() }
    }

    /// A new machine of this shape with so many bytes of persistent memory, which can grow to
    /// `reserved_bytes`, and a new pool on them.
    ///
    /// # Errors
    /// [`ExperimentError::Region`], [`ExperimentError::Pool`].
    pub fn with_pool(
        shape: MachineShape,
        bytes: usize,
        reserved_bytes: usize,
    ) -> Result<(Self, Pool<Modelled>), ExperimentError> {
        Self::with_pool_on(shape, bytes, reserved_bytes, Config::default())
    }

    /// The same on a machine that is otherwise as `config` says.
    ///
    /// # Errors
    /// As [`ModelMeter::with_pool`].
    pub fn with_pool_on(
        shape: MachineShape,
        bytes: usize,
        reserved_bytes: usize,
        config: Config,
    ) -> Result<(Self, Pool<Modelled>), ExperimentError> {
        let region = Region::anonymous(bytes, reserved_bytes)?;
        let config = Config { counting: Some(shape), ..config };
        let meter = Self { machine: Modelled::over(&region, config) };
        let pool = Pool::create(region, meter.machine.clone())?;
        Ok((meter, pool))
    }

    /// The machine.
    pub fn machine(&self) -> &Modelled {
        &self.machine
    }

    /// Lets workers take steps, always the one whose clock is least, until each has broken off, or
    /// one has failed.
    ///
    /// # Errors
    /// The first of a step.
    pub fn interleave<E>(
        &self,
        workers: usize,
        mut step: impl FnMut(u8) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        interleave(&self.machine, workers, |worker| {
            if outcome.is_err() {
                return ControlFlow::Break(());
            }
            step(worker).unwrap_or_else(|error| {
                outcome = Err(error);
                ControlFlow::Break(())
            })
        });
        outcome
    }

    /// What is counted while `run` goes on with what went on before and will go on after. What the
    /// buffers hold at one end stands for what they hold at the other, and nothing is written
    /// ahead of its time.
    pub fn in_steady_state(&self, run: impl FnOnce()) -> Counts {
        let before = self.machine.counts();
        run();
        self.machine.counts() - before
    }
}

impl Meter for ModelMeter {
    fn settle(&self) {
        self.machine.drain();
    }

    fn section<T, E>(
        &self,
        workers: usize,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Section), E> {
        let machine = &self.machine;
        machine.align_clocks(workers);
        let (before, begin) = (machine.counts(), machine.all_now(0));
        let found = run()?;
        machine.align_clocks(workers);
        let clocks = begin.into_iter().zip(machine.all_now(0)).collect();
        machine.drain();
        Ok((found, Section { clocks, counts: machine.counts() - before }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use lapis_pmem::Domain;

    use super::*;

    #[test]
    fn what_still_lies_in_the_buffers_belongs_to_the_section() {
        let (meter, pool) =
            ModelMeter::with_pool(MachineShape::default(), 1 << 20, 1 << 20).unwrap();
        let line = pool.region().base().wrapping_add(1 << 19);
        let persist = || {
            // SAFETY: inside the region, which nobody else uses.
            unsafe { meter.machine().copy_nontemporal(line, &[1; 64]) };
            meter.machine().fence();
        };
        meter.settle();
        let undrained = meter.in_steady_state(persist);
        assert_eq!((undrained.wpq_inserts(), undrained.media_writes), (1, 0));
        let ((), section) = meter
            .section(1, || {
                persist();
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert_eq!(section.per_operation(1).wpq_inserts, 1.0);
        assert_eq!(section.per_operation(1).media_writes, 4.0);
        assert!(section.picoseconds() > 0);
    }

    #[test]
    fn workers_stop_once_one_has_failed() {
        let (meter, _pool) =
            ModelMeter::with_pool(MachineShape::default(), 1 << 20, 1 << 20).unwrap();
        meter.machine().align_clocks(3);
        let mut steps = 0;
        let outcome = meter.interleave(3, |worker| {
            steps += 1;
            meter.machine().spend_ns(worker, 1);
            if worker == 1 { Err("failed") } else { Ok(ControlFlow::Continue(())) }
        });
        assert_eq!((outcome, steps), (Err("failed"), 2));
    }

    /// Whoever reads the counters elsewhere reads them of a section that is not closed.
    #[test]
    fn nothing_else_in_the_laboratory_reads_the_counters() {
        let mut directories = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/src").into()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir::<std::path::PathBuf>(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if !path.ends_with("experiment/meter.rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    for reads in ["machine.counts()", "machine().counts()", "domain().counts()"] {
                        assert!(!text.contains(reads), "{} has {reads}", path.display());
                    }
                }
            }
        }
    }
}
