//! How long things took: counts in buckets whose width is an eighth of what they count, or less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for each doubling.
const STEPS: usize = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// The last has everything from about 9 minutes on.
const BUCKETS: usize = (40 - STEP_BITS as usize) * STEPS;

/// The bucket of so many nanoseconds: below 8 each has its own, and above the first four bits say which.
fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS as u64 {
        return nanoseconds as usize;
    }
    let doublings = nanoseconds.ilog2() - STEP_BITS;
    let step = (nanoseconds >> doublings) as usize - STEPS;
    ((1 + doublings as usize) * STEPS + step).min(BUCKETS - 1)
}

/// The most nanoseconds that come into a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (doublings, step) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + step + 1) as u64) << doublings
}

/// The counts, while there is counting.
#[derive(Debug)]
pub(crate) struct LatencyCounters(Box<[AtomicU64]>);

impl Default for LatencyCounters {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LatencyCounters {
    pub(crate) fn count(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn latencies(&self) -> Latencies {
        Latencies { counts: self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect() }
    }
}

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: Vec<u64>,
}

impl Latencies {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time that `part` of them, from 0 to 1, took at most, an eighth too long at most; none if there were none.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let wanted = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let bucket = self.counts.iter().position(|count| {
            counted += count;
            counted >= wanted
        });
        bucket.map(|bucket| Duration::from_nanos(end_of(bucket)))
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = self.counts.iter().zip(before).map(|(now, then)| now.saturating_sub(then));
        Self { counts: counts.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_ends_where_the_next_begins_and_is_an_eighth_wide_at_most() {
        for nanoseconds in (0..2000).chain((11..39).map(|bits| (1 << bits) + 12345 % (1 << bits))) {
            let bucket = bucket_of(nanoseconds);
            assert!(nanoseconds <= end_of(bucket), "{nanoseconds}");
            assert!(end_of(bucket) as f64 <= nanoseconds as f64 * 1.125 + 1.0, "{nanoseconds}");
            assert!(bucket == 0 || nanoseconds >= end_of(bucket - 1), "{nanoseconds}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let counters = LatencyCounters::default();
        assert_eq!(counters.latencies().quantile(0.5), None);
        for microseconds in 1..=1000 {
            counters.count(Duration::from_micros(microseconds));
        }
        let latencies = counters.latencies();
        assert_eq!(latencies.count(), 1000);
        for (part, microseconds) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = latencies.quantile(part).unwrap();
            let least = Duration::from_micros(microseconds);
            assert!(found >= least && found <= least * 9 / 8, "{part}: {found:?}");
        }
    }

    #[test]
    fn what_was_counted_before_is_taken_away() {
        let counters = LatencyCounters::default();
        counters.count(Duration::from_secs(1));
        let earlier = counters.latencies();
        counters.count(Duration::from_micros(3));
        let between = counters.latencies().since(&earlier);
        assert_eq!(between.count(), 1);
        assert!(between.quantile(1.0).unwrap() < Duration::from_micros(4));
    }
}
