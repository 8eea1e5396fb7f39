//! Written lines on their way from cores to modules.
//!
//! A line that a core writes back, or stores past its caches, is in one of the core's fill buffers
//! until its module has it. The buffers leave in no order, and at a fence all of them:
//!
//! ```text
//!  lines, as they   ┌───┬───┬─ … ─┐   any of them, when there
//!  are flushed  ──▶ │   │   │     │ ──▶ is no room for one more  ──▶ module
//!                   └───┴───┴─ … ─┘
//! ```
//!
//! So a core that writes without fences has several media units open at a module at a time, and many
//! cores have more than the module's buffer holds: units leave it half written. That is the whole of
//! what many writers lose (`docs/calibration.md`); no constant is its own.

use crate::counting::xp_buffer::Place;
use crate::random::Random;

/// The lines of all workers that are on their way.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// How many lines of a worker can be.
    buffers: usize,
    of_worker: Vec<Vec<Place>>,
    random: Random,
}

impl InFlight {
    pub(crate) fn new(buffers: usize, seed: u64) -> Self {
        Self { buffers: buffers.max(1), of_worker: Vec::new(), random: Random::new(seed) }
    }

    /// Takes in a line. The one that arrives at its module to make room for it, if there was none.
    #[inline]
    pub(crate) fn push(&mut self, worker: u8, place: Place) -> Option<Place> {
        let worker = usize::from(worker);
        if worker >= self.of_worker.len() {
            self.grow(worker);
        }
        let lines = &mut self.of_worker[worker];
        if lines.len() < self.buffers {
            lines.push(place);
            return None;
        }
        let leaves = self.random.below(lines.len());
        Some(std::mem::replace(&mut lines[leaves], place))
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, worker: usize) {
        let buffers = self.buffers;
        self.of_worker.resize_with(worker + 1, || Vec::with_capacity(buffers));
    }

    /// How many workers have had lines on their way.
    pub(crate) fn workers(&self) -> usize {
        self.of_worker.len()
    }

    /// Whether a line of a worker is on its way.
    #[inline]
    pub(crate) fn holds(&self, worker: u8, line: u32) -> bool {
        let lines = self.of_worker.get(usize::from(worker));
        lines.is_some_and(|lines| lines.iter().any(|place| place.line == line))
    }

    /// All lines of a worker, which arrive now. To be given back, for its memory.
    #[inline]
    pub(crate) fn take(&mut self, worker: u8) -> Vec<Place> {
        self.of_worker.get_mut(usize::from(worker)).map(std::mem::take).unwrap_or_default()
    }

    /// Gives back what [`InFlight::take`] gave; its lines have arrived.
    #[inline]
    pub(crate) fn give_back(&mut self, worker: u8, mut lines: Vec<Place>) {
        lines.clear();
        if let Some(own) = self.of_worker.get_mut(usize::from(worker)) {
            *own = lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u32) -> Place {
        Place { line, stripe: 0, module: 0, row: 0 }
    }

    fn lines(places: &[Place]) -> Vec<u32> {
        places.iter().map(|place| place.line).collect()
    }

    #[test]
    fn a_few_lines_arrive_at_the_fence_in_their_order() {
        let mut flight = InFlight::new(4, 1);
        assert!((0..4).all(|line| flight.push(3, place(line)).is_none()));
        assert!(flight.holds(3, 2) && !flight.holds(2, 2) && !flight.holds(3, 4));
        let all = flight.take(3);
        assert_eq!(lines(&all), [0, 1, 2, 3]);
        flight.give_back(3, all);
        assert!(flight.take(3).is_empty());
    }

    #[test]
    fn of_more_lines_any_arrives_and_each_once() {
        let mut flight = InFlight::new(4, 1);
        let mut arrived: Vec<u32> = (0..100)
            .filter_map(|line| flight.push(0, place(line)))
            .map(|place| place.line)
            .collect();
        assert!(!arrived.is_sorted());
        arrived.extend(lines(&flight.take(0)));
        arrived.sort_unstable();
        assert_eq!(arrived, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn workers_have_buffers_of_their_own() {
        let mut flight = InFlight::new(1, 1);
        assert!(flight.push(0, place(0)).is_none() && flight.push(1, place(1)).is_none());
        assert_eq!(flight.push(0, place(2)).map(|place| place.line), Some(0));
    }
}
