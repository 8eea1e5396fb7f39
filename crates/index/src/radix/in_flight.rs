//! The names of the words that are visible and may not be durable (I6).
//!
//! Each writer that publishes names its word in a lane. A reader looks at all lanes before it
//! answers; while nobody publishes, none of these lines is written.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lapis_pmem::{Domain, Link, Pool};

use super::tree::Place;

/// How many writers can publish at the same time; one more waits.
const LANES: usize = 8;

/// The offset of a word, or zero. Two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

/// The words in flight.
#[derive(Debug, Default)]
pub struct InFlightPlaces([Lane; LANES]);

thread_local! {
    static FIRST_LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_LANE: AtomicUsize = AtomicUsize::new(0);

/// The lane in which the calling thread, or the worker that it acts as, looks for room first.
#[inline]
fn first_lane<D: Domain>(domain: &D) -> usize {
    if let Some(worker) = domain.worker() {
        return worker;
    }
    FIRST_LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(NEXT_LANE.fetch_add(1, Ordering::Relaxed));
        }
        lane.get()
    })
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
    /// Names `place`. Whoever sees what is stored there afterwards sees the name, too, unless it has
    /// been taken away again.
    #[inline]
    pub fn name<D: Domain>(&self, domain: &D, place: Place) -> Named<'_> {
        let first = first_lane(domain);
        loop {
            for at in first..first + LANES {
                let lane = &self.0[at % LANES];
                let free =
                    lane.0.compare_exchange(0, place.offset(), Ordering::AcqRel, Ordering::Relaxed);
                if free.is_ok() {
                    return Named(lane);
                }
            }
            if !D::DETERMINISTIC {
                std::thread::yield_now();
            }
            domain.pause();
        }
    }

    /// Makes durable what the caller may have seen of changes that are under way. Called after the
    /// last load an answer rests on, which was an acquire.
    #[inline(always)]
    pub fn persist<D: Domain>(&self, pool: &Pool<D>) {
        let places = self.0.each_ref().map(|lane| lane.0.load(Ordering::Acquire));
        if places.iter().fold(0, |any, place| any | place) != 0 {
            persist_all(pool, places);
        }
    }
}

#[cold]
fn persist_all<D: Domain>(pool: &Pool<D>, places: [u64; LANES]) {
    for place in places.into_iter().filter(|&place| place != 0) {
        let place: Place = Link::from_bits(place);
        pool.domain().flush(pool.at(place));
    }
    pool.domain().fence();
}

#[cfg(test)]
mod tests {
    use lapis_pmem::Hardware;

    use super::*;

    #[test]
    fn each_name_has_a_lane_until_it_is_taken_away() {
        let (domain, places) = (Hardware::detect(), InFlightPlaces::default());
        let offsets = |places: &InFlightPlaces| {
            let mut offsets = places.0.each_ref().map(|lane| lane.0.load(Ordering::Relaxed));
            offsets.sort_unstable();
            offsets
        };
        let names: Vec<_> =
            (1..=8).map(|number| places.name(&domain, Link::from_bits(8 * number))).collect();
        assert_eq!(offsets(&places), [8, 16, 24, 32, 40, 48, 56, 64]);
        let mut names = names.into_iter();
        names.next().unwrap().forget();
        assert_eq!(offsets(&places)[..2], [0, 16]);
        names.for_each(Named::forget);
        assert_eq!(offsets(&places), [0; LANES]);
    }
}
