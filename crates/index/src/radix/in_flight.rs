//! The names of the words that are visible and may not be durable (I6).
//!
//! Each writer that publishes names its word in a lane. A reader looks at all lanes before it
//! answers; while nobody publishes, none of these lines is written.
//!
//! A thread has a lane of its own, as long as there are enough: naming is a plain store then. Threads
//! that came when all were taken share the last one, which takes a locked instruction. Lanes nobody
//! ever wrote in are not looked at.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lapis_pmem::{Domain, Link, LockWait, PCell, Pool, persist_before_answer};

use super::thread_number;
use super::word::Place;

/// How many words can be in flight at the same time.
const LANES: usize = 8;
/// The lane of those who have none of their own.
const SHARED: usize = LANES - 1;
const _: () = assert!(thread_number::NUMBERS == SHARED);

/// The offset of a word, or zero. Two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

/// The words in flight.
#[derive(Debug, Default)]
pub struct InFlightPlaces {
    lanes: [Lane; LANES],
    /// How many of the lanes somebody has written in. It only grows, and is stored before the name is: whoever sees
    /// what was published under a name sees it counted.
    used: AtomicUsize,
}

/// The lane that the calling thread, or the worker that it acts as, has for itself.
#[inline(always)]
fn own_lane<D: Domain>(domain: &D) -> Option<usize> {
    let number = domain.worker().or_else(thread_number::own)?;
    (number < SHARED).then_some(number)
}

/// A word that has been named.
#[derive(Debug)]
pub struct Named<'l>(&'l Lane);

impl Named<'_> {
    /// Takes the name away: the word is durable.
    #[inline(always)]
    pub fn forget(self) {
        self.0.0.store(0, Ordering::Release);
    }
}

impl InFlightPlaces {
    /// Names `place`. Whoever sees what is stored there afterwards, with a release, sees the name,
    /// too, unless it has been taken away again.
    #[inline(always)]
    pub fn name<D: Domain>(&self, domain: &D, place: Place) -> Named<'_> {
        let Some(own) = own_lane(domain) else { return self.name_in_shared(domain, place) };
        let lane = self.lane(own);
        // A thread publishes one word at a time.
        debug_assert_eq!(lane.0.load(Ordering::Relaxed), 0, "somebody else has this lane, too");
        lane.0.store(place.offset(), Ordering::Relaxed);
        Named(lane)
    }

    /// A lane to write in.
    #[inline(always)]
    fn lane(&self, number: usize) -> &Lane {
        if self.used.load(Ordering::Relaxed) <= number {
            self.used.fetch_max(number + 1, Ordering::Relaxed);
        }
        &self.lanes[number]
    }

    #[cold]
    fn name_in_shared<D: Domain>(&self, domain: &D, place: Place) -> Named<'_> {
        let lane = self.lane(SHARED);
        let claim = || {
            lane.0.compare_exchange(0, place.offset(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let mut wait = LockWait::default();
        while !claim() {
            wait.once(domain);
        }
        Named(lane)
    }

    /// Makes durable what the caller may have seen of changes that are under way. Called after the
    /// last load an answer rests on, which was an acquire.
    #[inline(always)]
    pub fn make_durable<D: Domain>(&self, pool: &Pool<D>) {
        let lanes = self.lanes.iter().take(self.used.load(Ordering::Relaxed));
        let name = |lane: &Lane| lane.0.load(Ordering::Acquire);
        if lanes.clone().fold(0, |any, lane| any | name(lane)) != 0 {
            // A name that was taken away meanwhile is that of a word that is durable.
            let named = lanes.map(name).filter(|&place| place != 0);
            let words = named.map(|place| pool.at::<PCell<u64>>(Link::from_bits(place)));
            persist_before_answer(pool.domain(), words);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use lapis_pmem::Hardware;

    use super::*;

    fn named(places: &InFlightPlaces) -> Vec<u64> {
        let offsets = places.lanes.each_ref().map(|lane| lane.0.load(Ordering::Relaxed));
        let mut offsets: Vec<_> = offsets.into_iter().filter(|&offset| offset != 0).collect();
        offsets.sort_unstable();
        offsets
    }

    #[test]
    fn a_name_is_there_until_it_is_taken_away_in_each_tree() {
        let (domain, places) = (Hardware::detect(), [(); 2].map(|()| InFlightPlaces::default()));
        let [first, second] =
            [0, 1].map(|tree| places[tree].name(&domain, Link::from_bits(8 + 8 * tree as u64)));
        assert_eq!((named(&places[0]), named(&places[1])), (vec![8], vec![16]));
        first.forget();
        assert_eq!((named(&places[0]), named(&places[1])), (vec![], vec![16]));
        second.forget();
        assert!(named(&places[1]).is_empty());
    }

    #[test]
    fn more_threads_than_lanes_name_one_word_each_at_a_time() {
        const THREADS: u64 = LANES as u64 + 4;
        let (domain, places) = (&Hardware::detect(), &InFlightPlaces::default());
        let barrier = &Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                scope.spawn(move || {
                    barrier.wait();
                    for turn in 1..200 {
                        let offset = 16 * (turn * THREADS + thread);
                        let name = places.name(domain, Link::from_bits(offset));
                        assert!(named(places).contains(&offset));
                        name.forget();
                        assert!(!named(places).contains(&offset));
                    }
                    barrier.wait();
                });
            }
        });
        assert!(named(places).is_empty());
    }
}
