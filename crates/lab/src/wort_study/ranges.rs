//! Range queries: scans of a share of the keys, beside a volatile ordered map.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use lapis_index::{AnyIndex, Direction, IndexError};
use lapis_pmem::Domain;

use super::RangeTimes;
use crate::index_experiment::engine::value_of;
use crate::keys::scatter;

/// Percentages of the keys that a query returns: those of Fig. 10.
pub(super) const PERCENTS: [f64; 2] = [0.001, 0.01];

/// Entries that all queries of a row return together, about.
const MEASURED_ENTRIES: usize = 1_000_000;
const MOST_QUERIES: usize = 20_000;
const FEWEST_QUERIES: usize = 20;

/// Range queries of one length.
pub(super) struct Queries {
    /// Entries of each.
    pub(super) entries: usize,
    /// First and last key of each.
    bounds: Vec<(u64, u64)>,
}

impl Queries {
    /// Queries for `percent` of the keys, at random places, about `total` entries in all.
    pub(super) fn over(ascending: &[u64], percent: f64, total: usize, seed: u64) -> Self {
        let entries = ((ascending.len() as f64 * percent / 100.0).round() as usize).max(1);
        let count = (total / entries).clamp(FEWEST_QUERIES, MOST_QUERIES);
        let places = (ascending.len() - entries + 1) as u64;
        let bounds = (0..count as u64).map(|number| {
            let first = (scatter(seed ^ scatter(number)) % places) as usize;
            (ascending[first], ascending[first + entries - 1])
        });
        Self { entries, bounds: bounds.collect() }
    }

    /// The same queries for what is measured here.
    pub(super) fn measured(ascending: &[u64], percent: f64, seed: u64) -> Self {
        Self::over(ascending, percent, MEASURED_ENTRIES, seed)
    }

    pub(super) fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Asks all of them of `query`, which returns the number of entries and the sum of their values.
    /// How many answers are wrong.
    fn ask(&self, mut query: impl FnMut(u64, u64) -> (usize, u64)) -> u64 {
        let mut wrong = 0;
        for &(first, last) in &self.bounds {
            let (entries, sum) = query(first, last);
            // The sum keeps the values from being left out; one entry alone is looked at.
            let plausible = entries != 1 || sum == value_of(first, 0);
            wrong += u64::from(entries != self.entries || !plausible);
        }
        wrong
    }

    /// Asks all of them of an index.
    pub(super) fn ask_index<D: Domain>(
        &self,
        index: &AnyIndex<D, u64>,
        mut before: impl FnMut(),
    ) -> u64 {
        self.ask(|first, last| {
            before();
            let (mut entries, mut sum) = (0, 0_u64);
            index.scan(Bound::Included(&first), Direction::Forward, &mut |&key, value| {
                if key > last {
                    return ControlFlow::Break(());
                }
                entries += 1;
                sum = sum.wrapping_add(value);
                ControlFlow::Continue(())
            });
            (entries, sum)
        })
    }

    fn ask_map(&self, map: &BTreeMap<u64, u64>) -> u64 {
        self.ask(|first, last| {
            map.range(first..=last)
                .fold((0, 0), |(entries, sum), (_, &value)| (entries + 1, sum.wrapping_add(value)))
        })
    }
}

/// Measures queries of each length. The number of wrong answers comes with the times.
pub(super) fn measure<D: Domain>(
    index: &AnyIndex<D, u64>,
    ascending: &[u64],
    seed: u64,
) -> Result<(Vec<RangeTimes>, u64), IndexError> {
    let mut wrong = 0;
    let times = PERCENTS.map(|percent| {
        let queries = Queries::measured(ascending, percent, seed);
        timed(&queries, || wrong += queries.ask_index(index, || ()))
    });
    Ok((times.to_vec(), wrong))
}

fn timed(queries: &Queries, mut ask: impl FnMut()) -> RangeTimes {
    let begin = Instant::now();
    ask();
    RangeTimes {
        entries: queries.entries,
        queries: queries.len(),
        query_ns: begin.elapsed().as_nanos() as f64 / queries.len() as f64,
        llc_misses_per_entry: None,
    }
}

/// The same of the standard library's ordered map, filled in the same order.
pub(super) fn reference(loading: &[u64], ascending: &[u64], seed: u64) -> Vec<RangeTimes> {
    let map: BTreeMap<u64, u64> = loading.iter().map(|&key| (key, value_of(key, 0))).collect();
    let times = PERCENTS.map(|percent| {
        let queries = Queries::measured(ascending, percent, seed);
        let mut wrong = 0;
        let times = timed(&queries, || wrong += queries.ask_map(&map));
        assert_eq!(wrong, 0, "the standard library's map is right");
        times
    });
    times.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_return_the_share_they_are_named_after() {
        let ascending: Vec<u64> = (1..=200_000).collect();
        for (percent, entries) in [(0.001, 2), (0.01, 20)] {
            let queries = Queries::over(&ascending, percent, 10_000, 1);
            assert_eq!(queries.entries, entries);
            assert_eq!(queries.len(), 10_000 / entries);
            assert!(queries.bounds.iter().all(|(first, last)| last - first + 1 == entries as u64));
        }
    }

    #[test]
    fn a_missing_entry_is_noticed() {
        let ascending: Vec<u64> = (1..=200_000).collect();
        let mut map: BTreeMap<u64, u64> =
            ascending.iter().map(|&key| (key, value_of(key, 0))).collect();
        let queries = Queries::over(&ascending, 0.01, 10_000, 1);
        assert_eq!(queries.ask_map(&map), 0);
        let (first, _) = queries.bounds[0];
        map.remove(&first);
        assert!(queries.ask_map(&map) > 0);
    }
}
