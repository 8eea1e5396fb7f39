//! The violations that come first in an exploration, whichever thread finds one first.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Of threads that go forward each in places of its own: how far they must go for the first violations.
///
/// A thread goes on until it is past the last of them, even where another has found as many further on. So
/// what is reported does not depend on which thread was quicker.
pub(crate) struct FirstViolations {
    limit: usize,
    /// The places of the first violations known, in order.
    places: Mutex<Vec<u64>>,
    /// The last of them, once there are as many as are wanted.
    last: AtomicU64,
}

impl FirstViolations {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { limit, places: Mutex::default(), last: AtomicU64::new(u64::MAX) }
    }

    /// Takes note of a violation at `place`.
    pub(crate) fn add(&self, place: u64) {
        let mut places = self.places.lock();
        let at = places.partition_point(|&known| known <= place);
        places.insert(at, place);
        places.truncate(self.limit);
        if places.len() == self.limit {
            self.last.store(places[self.limit - 1], Ordering::Relaxed);
        }
    }

    /// Whether nothing that is found at `place` from now on is among the first.
    pub(crate) fn are_before(&self, place: u64) -> bool {
        self.last.load(Ordering::Relaxed) <= place
    }

    /// Puts what all threads found in order of `place`, and keeps the first.
    pub(crate) fn keep<V>(&self, violations: &mut Vec<V>, place: impl Fn(&V) -> u64) {
        violations.sort_by_key(place);
        violations.truncate(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_further_on_does_not_hide_one_that_comes_before() {
        let first = FirstViolations::new(2);
        first.add(70);
        assert!(!first.are_before(70));
        first.add(90);
        assert!(first.are_before(90) && !first.are_before(89));
        first.add(10);
        assert!(first.are_before(70) && !first.are_before(69));
        let mut found = vec![(70, 'b'), (90, 'c'), (10, 'a')];
        first.keep(&mut found, |&(place, _)| place);
        assert_eq!(found, [(10, 'a'), (70, 'b')]);
    }
}
