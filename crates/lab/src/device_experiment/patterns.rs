//! Access patterns on a modelled machine: what the published measurements did to a real one.

use std::ops::ControlFlow;

use lapis_device::{Config, Counts, MachineShape, Modelled, interleave};
use lapis_pmem::{Domain, Observed, Region, RegionError};

use crate::experiment::meter::ModelMeter;

const LINE: usize = 64;
const PICOSECONDS: f64 = 1000.0;

/// How bytes are made persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persist {
    /// Non-temporal stores.
    NonTemporal,
    /// Ordinary stores and a write-back of each line.
    StoreAndFlush,
}

/// A machine under measurement and its memory.
pub(super) struct Bench {
    region: Region,
    pub(super) machine: Modelled,
}

/// What is written; its contents do not matter.
static SOURCE: [u8; 4096] = [1; 4096];

impl Bench {
    /// A machine with so much persistent memory. Only what is written is really there.
    pub(super) fn new(shape: MachineShape, bytes: usize) -> Result<Self, RegionError> {
        let region = Region::anonymous(bytes, bytes)?;
        let config = Config { counting: Some(shape), ..Config::default() };
        let machine = Modelled::over(&region, config);
        Ok(Self { region, machine })
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset + bytes <= self.region.mapped_bytes(), "{offset} is outside");
        // SAFETY: inside the mapped region, as just checked.
        unsafe { self.region.base().add(offset) }
    }

    pub(super) fn read(&self, offset: usize, bytes: usize) {
        self.machine.note_read(self.at(offset, bytes), bytes);
    }

    pub(super) fn prefetch(&self, offset: usize) {
        self.machine.prefetch(self.at(offset, LINE));
    }

    pub(super) fn store(&self, offset: usize, bytes: usize) {
        let to = self.at(offset, bytes);
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe { self.machine.copy(to, &SOURCE[..bytes]) };
    }

    /// Writes, without a fence.
    pub(super) fn write(&self, offset: usize, bytes: usize, persist: Persist) {
        match persist {
            Persist::NonTemporal => {
                let to = self.at(offset, bytes);
                // SAFETY: inside the mapped region, which nobody else uses.
                unsafe { self.machine.copy_nontemporal(to, &SOURCE[..bytes]) };
            }
            Persist::StoreAndFlush => {
                for line in (offset..offset + bytes).step_by(LINE) {
                    self.store(line, LINE);
                    // SAFETY: inside the mapped region.
                    unsafe { self.machine.flush_range(self.at(line, LINE), LINE) };
                }
            }
        }
    }

    pub(super) fn fence(&self) {
        self.machine.fence();
    }

    pub(super) fn persist(&self, offset: usize, bytes: usize, persist: Persist) {
        self.write(offset, bytes, persist);
        self.fence();
    }

    /// Mean nanoseconds of worker 0 per step. A step begins when all of the one before is done, as it does
    /// between the time stamps of a measurement: nothing runs ahead of its fence.
    pub(super) fn latency_ns(&self, steps: usize, mut step: impl FnMut(usize)) -> f64 {
        let begin = self.machine.align_clocks(1);
        for number in 0..steps {
            step(number);
            self.machine.align_clocks(1);
        }
        let elapsed = self.machine.now(0).0 - begin.0;
        elapsed as f64 / steps as f64 / PICOSECONDS
    }

    /// Nanoseconds of worker 0 for each step.
    pub(super) fn latencies_ns(&self, steps: usize, mut step: impl FnMut(usize)) -> Vec<f64> {
        let mut begin = self.machine.align_clocks(1);
        let timed = |number| {
            step(number);
            let end = self.machine.align_clocks(1);
            let elapsed = end.0 - std::mem::replace(&mut begin, end).0;
            elapsed as f64 / PICOSECONDS
        };
        (0..steps).map(timed).collect()
    }

    /// Gigabytes per second of workers that each do so many steps of so many bytes.
    pub(super) fn bandwidth_gb_s(
        &self,
        workers: usize,
        steps: usize,
        bytes: usize,
        mut step: impl FnMut(usize, usize),
    ) -> f64 {
        let begin = self.machine.align_clocks(workers);
        let mut done = vec![0; workers];
        interleave(&self.machine, workers, |worker| {
            let worker = usize::from(worker);
            step(worker, done[worker]);
            done[worker] += 1;
            if done[worker] == steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let end = self.machine.align_clocks(workers);
        (workers * steps * bytes) as f64 * PICOSECONDS / (end.0 - begin.0) as f64
    }

    /// Gigabytes per second of workers that each go on for so long after a warm-up; a step says how
    /// many bytes it moved.
    pub(super) fn bandwidth_for(
        &self,
        workers: usize,
        warm_up_ns: u64,
        duration_ns: u64,
        mut step: impl FnMut(usize, usize) -> usize,
    ) -> f64 {
        let begin_ns = self.machine.align_clocks(workers).0 / 1000;
        let mut done = vec![0; workers];
        let mut bytes = 0;
        for (until_ns, counts) in
            [(begin_ns + warm_up_ns, false), (begin_ns + warm_up_ns + duration_ns, true)]
        {
            interleave(&self.machine, workers, |number| {
                if self.machine.now_ns(number) >= until_ns {
                    return ControlFlow::Break(());
                }
                let worker = usize::from(number);
                let moved = step(worker, done[worker]);
                done[worker] += 1;
                bytes += if counts { moved } else { 0 };
                ControlFlow::Continue(())
            });
        }
        bytes as f64 / duration_ns as f64
    }

    /// What `run` is counted for.
    pub(super) fn counts(&self, run: impl FnOnce()) -> Counts {
        ModelMeter::of(&self.machine).in_steady_state(run)
    }
}

/// A place for each step, none of them twice, in no order: a walk over `slots`, a power of two.
pub(super) fn scattered(step: usize, slots: usize) -> usize {
    debug_assert!(slots.is_power_of_two());
    // An odd factor and an offset are a permutation; folding the upper half in keeps it one.
    let mixed = step.wrapping_mul(0x9E37_79B1_85EB_CA87).wrapping_add(0x5851) & (slots - 1);
    let folded = mixed ^ (mixed >> (slots.trailing_zeros() / 2 + 1));
    folded.wrapping_mul(0xD605_1EB5) & (slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_walk_visits_every_slot_once() {
        for slots in [1, 2, 64, 4096] {
            let mut seen = vec![false; slots];
            (0..slots).for_each(|step| seen[scattered(step, slots)] = true);
            assert!(seen.iter().all(|&seen| seen), "{slots}");
        }
    }
}
