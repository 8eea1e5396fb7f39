//! Lines on their way from modules to cores that wait for none of them.
//!
//! Of a unit that several lines are asked of the media are read for the first; the others come out of
//! the module's buffer. A module takes requests in their order as long as there are no more than its
//! queue has room for. Further ones wait outside, and any of them comes next:
//!
//! ```text
//!                          any of them   ┌───┬───┬─ … ─┐  in order
//!  further requests, outside   ──────▶   │   │   │     │ ──────────▶ buffer ─▶ core
//!                                        └───┴───┴─ … ─┘
//! ```
//!
//! So lines of a unit come apart where many cores read one module, and the unit may have left the buffer
//! when the last of them is sent. Then the media read it again. How many are under way is taken from the
//! events alone: those that a worker has asked for since it last waited for one, at most as many as its
//! core has fill buffers, evenly on all modules.

use crate::counting::xp_buffer::Place;
use crate::random::Random;

/// The reads of all workers that nobody waits for.
#[derive(Clone, Debug)]
pub(crate) struct ReadsUnderWay {
    /// How many a core can have, and how many a module takes in their order.
    of_a_core: usize,
    of_a_queue: usize,
    /// How many each worker has, and all together.
    of_worker: Vec<usize>,
    all: usize,
    /// For each module what waits outside of its queue; nothing for a line that its unit was read for.
    outside: Vec<Vec<Option<Place>>>,
    random: Random,
}

impl ReadsUnderWay {
    pub(crate) fn new(of_a_core: usize, of_a_queue: usize, modules: usize, seed: u64) -> Self {
        Self {
            of_a_core,
            of_a_queue,
            of_worker: vec![0; 256],
            all: 0,
            outside: vec![Vec::new(); modules.max(1)],
            random: Random::new(seed),
        }
    }

    /// A worker asks for a line, and goes on. The line came out of the buffer, or its unit was read for it.
    #[inline]
    pub(crate) fn begin(&mut self, worker: u8, place: Place, from_media: bool) {
        let own = &mut self.of_worker[usize::from(worker)];
        let more = usize::from(*own < self.of_a_core);
        *own += more;
        self.all += more;
        if self.most_outside() > 0 {
            self.outside[place.module as usize].push((!from_media).then_some(place));
        }
    }

    /// A line that came out of the buffer and is sent only now, as its turn has come. To be asked until
    /// there is none.
    #[inline]
    pub(crate) fn sent(&mut self, module: u32) -> Option<Place> {
        let most = self.most_outside();
        let outside = &mut self.outside[module as usize];
        while outside.len() > most {
            let turn = self.random.below(outside.len());
            if let Some(place) = outside.swap_remove(turn) {
                return Some(place);
            }
        }
        None
    }

    /// A worker waits: what it asked for has come.
    #[inline]
    pub(crate) fn wait(&mut self, worker: u8) {
        self.all -= std::mem::take(&mut self.of_worker[usize::from(worker)]);
    }

    /// All has come.
    pub(crate) fn forget(&mut self) {
        self.of_worker.fill(0);
        self.all = 0;
        self.outside.iter_mut().for_each(Vec::clear);
    }

    #[inline]
    fn most_outside(&self) -> usize {
        (self.all / self.outside.len()).saturating_sub(self.of_a_queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u32) -> Place {
        Place { line, stripe: 0, module: 0, row: 0 }
    }

    /// A module whose queue has room for four, and cores that have as many under way.
    fn reads() -> ReadsUnderWay {
        ReadsUnderWay::new(4, 4, 1, 1)
    }

    /// Asks for lines, each of another one of so many workers; those that are sent late, in order.
    fn ask(reads: &mut ReadsUnderWay, workers: u32, lines: std::ops::Range<u32>) -> Vec<u32> {
        let mut late = Vec::new();
        for line in lines {
            reads.begin((line % workers) as u8, place(line), false);
            late.extend(std::iter::from_fn(|| reads.sent(0)).map(|place| place.line));
        }
        late
    }

    #[test]
    fn what_the_queue_has_room_for_waits_for_nobody() {
        let mut reads = reads();
        assert_eq!(ask(&mut reads, 1, 0..100), []);
        assert!(reads.outside[0].is_empty());
    }

    #[test]
    fn of_what_waits_outside_any_is_sent_and_each_once() {
        let mut reads = reads();
        let mut sent = ask(&mut reads, 3, 0..100);
        assert_eq!(reads.outside[0].len(), 8);
        assert!(!sent.is_sorted());
        sent.extend(reads.outside[0].iter().flatten().map(|place| place.line));
        // The first four found the queue empty.
        sent.sort_unstable();
        assert_eq!(sent, (4..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_that_its_unit_was_read_for_is_not_sent_late() {
        let mut reads = reads();
        ask(&mut reads, 3, 0..12);
        for line in 12..100 {
            reads.begin(0, place(line), true);
            while reads.sent(0).is_some_and(|late| late.line < 12) {}
        }
        assert!(reads.outside[0].iter().flatten().all(|late| late.line < 12));
    }

    #[test]
    fn who_waits_has_none_under_way() {
        let mut reads = reads();
        ask(&mut reads, 3, 0..100);
        (0..3).for_each(|worker| reads.wait(worker));
        assert_eq!(reads.all, 0);
        assert_eq!(std::iter::from_fn(|| reads.sent(0)).count(), 8);
    }

    #[test]
    fn what_is_forgotten_is_never_sent() {
        let mut reads = reads();
        ask(&mut reads, 3, 0..100);
        reads.forget();
        assert_eq!(ask(&mut reads, 1, 100..200), []);
    }
}
