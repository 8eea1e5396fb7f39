//! The sessions on this machine: insert, search, scan.

use std::ops::Range;
use std::time::Instant;

use lapis_index::{AnyIndex, Statistics};
use lapis_pmem::{Domain, Hardware, Pool, Region};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::byte_strings::Strings;
use super::key_list::{INTEGERS_HERE, KeyList};
use super::{Contestant, Experiment, MeasuredOperations, Options, RangeTimes, ranges};
use crate::experiment::ExperimentError;
use crate::index_experiment::{Operation, wrong_answers};
use crate::keys::{Distribution, KeySet};

/// Address space for a key, generously: regions grow to what they use.
const ROOM_BYTES_PER_KEY: usize = 384;
const LEAST_ROOM_BYTES: usize = 1 << 28;
/// Searches that are timed, at most; a mean over more of them is the same.
const MOST_SEARCHES: usize = 1_000_000;
/// What a region starts with.
const INITIAL_BYTES: usize = 16 << 20;

/// The keys of one distribution, in the orders in which they are used.
pub(super) struct Keys {
    /// In the order of inserting.
    pub(super) loading: Vec<u64>,
    /// In the order of searching.
    searching: Vec<u64>,
    /// For range queries.
    pub(super) ascending: Vec<u64>,
    pub(super) seed: u64,
}

impl Keys {
    pub(super) fn generate(distribution: Distribution, options: &Options) -> Self {
        let seed = options.seed;
        let loading = KeySet::generate(distribution, options.keys, 0, seed).into_loaded();
        let searching = in_another_order(&loading, seed);
        let mut ascending = Vec::new();
        if options.runs(Experiment::Ranges) {
            ascending.clone_from(&loading);
            ascending.sort_unstable();
        }
        Self { loading, searching, ascending, seed }
    }
}

/// What `make` makes for a distribution, unless that was the last it was asked for: cases come by
/// distribution, and keys of two would take memory that is not there.
pub(super) fn once_for<K>(
    made: &mut Option<(Distribution, K)>,
    distribution: Distribution,
    make: impl FnOnce() -> K,
) -> &K {
    if made.as_ref().is_some_and(|(of, _)| *of != distribution) {
        *made = None;
    }
    &made.get_or_insert_with(|| (distribution, make())).1
}

/// What a session found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) operations: Option<MeasuredOperations>,
    pub(super) ranges: Vec<RangeTimes>,
}

/// A pool of its own for so many keys.
pub(super) fn region(keys: usize) -> Result<Region, ExperimentError> {
    let room_bytes = LEAST_ROOM_BYTES.max(keys.saturating_mul(ROOM_BYTES_PER_KEY));
    Ok(Region::anonymous(INITIAL_BYTES, room_bytes)?)
}

/// Fails if answers were wrong.
pub(super) fn checked(
    contestant: Contestant,
    operation: Operation,
    wrong: u64,
) -> Result<(), ExperimentError> {
    match (wrong, contestant.index()) {
        (0, _) | (_, None) => Ok(()),
        (_, Some(index)) => Err(wrong_answers(index.name(), operation, wrong)),
    }
}

/// The keys of a load in the order of searching.
pub(super) fn in_another_order(loading: &[u64], seed: u64) -> Vec<u64> {
    let mut searching = loading.to_vec();
    searching.shuffle(&mut SmallRng::seed_from_u64(!seed));
    searching
}

/// Inserts the keys at `places`, one after another. How many were there already.
pub(super) fn insert_all<D: Domain, L: KeyList + ?Sized>(
    index: &AnyIndex<D, L::Key>,
    keys: &L,
    places: Range<usize>,
) -> Result<u64, ExperimentError> {
    let mut wrong = 0;
    for place in places {
        let key = keys.at(place);
        wrong += u64::from(index.insert(key, L::value_of(key))?.previous.is_some());
    }
    Ok(wrong)
}

/// Looks the keys at `places` up, one after another. How many answers were wrong.
pub(super) fn search_all<D: Domain, L: KeyList + ?Sized>(
    index: &AnyIndex<D, L::Key>,
    keys: &L,
    places: Range<usize>,
) -> u64 {
    let mut wrong = 0;
    for place in places {
        let key = keys.at(place);
        wrong += u64::from(index.get(key) != Some(L::value_of(key)));
    }
    wrong
}

/// Measures one structure with one distribution.
pub(super) fn session(
    contestant: Contestant,
    keys: &Keys,
    options: &Options,
) -> Result<Found, ExperimentError> {
    let (index, operations) =
        inserts_and_searches(contestant, &keys.loading[..], &keys.searching[..])?;
    let mut found = Found::default();
    if options.runs(Experiment::Operations) {
        found.operations = Some(operations);
    }
    if options.runs(Experiment::Ranges) {
        let (times, wrong) = ranges::measure(&index, &keys.ascending, keys.seed)?;
        checked(contestant, Operation::Range, wrong)?;
        found.ranges = times;
    }
    Ok(found)
}

/// Measures range queries of the standard library's ordered map.
pub(super) fn reference(keys: &Keys) -> Found {
    let ranges = ranges::reference(&keys.loading, &keys.ascending, keys.seed);
    Found { operations: None, ranges }
}

/// Measures one structure with byte-string keys, which come in the order of inserting and in that of
/// searching.
pub(super) fn string_session(
    contestant: Contestant,
    loading: &Strings,
    searching: &Strings,
) -> Result<MeasuredOperations, ExperimentError> {
    Ok(inserts_and_searches(contestant, loading, searching)?.1)
}

/// An index of all keys, and what its inserts and searches took.
fn inserts_and_searches<L: KeyList + ?Sized>(
    contestant: Contestant,
    loading: &L,
    searching: &L,
) -> Result<(AnyIndex<Hardware, L::Key>, MeasuredOperations), ExperimentError> {
    let keys = loading.count();
    let index =
        contestant.create(L::INDEXES_HERE, Pool::create(region(keys)?, Hardware::detect())?)?;
    let begin = Instant::now();
    let wrong = insert_all(&index, loading, 0..keys)?;
    let inserted = begin.elapsed();
    checked(contestant, Operation::Load, wrong)?;

    let searches = keys.min(MOST_SEARCHES);
    let begin = Instant::now();
    let wrong = search_all(&index, searching, 0..searches);
    let searched = begin.elapsed();
    checked(contestant, Operation::Get, wrong)?;
    let statistics = index.statistics();
    let operations = MeasuredOperations {
        keys,
        insert_ns: inserted.as_nanos() as f64 / keys as f64,
        search_ns: searched.as_nanos() as f64 / searches as f64,
        depth: statistics.mean_depth,
        bytes_per_key: statistics.bytes as f64 / keys as f64,
    };
    Ok((index, operations))
}

/// Inserts all keys and looks at what came of it.
pub(super) fn build_and_walk(
    contestant: Contestant,
    keys: &[u64],
) -> Result<Statistics, ExperimentError> {
    let pool = Pool::create(region(keys.len())?, Hardware::detect())?;
    let index = contestant.create(&INTEGERS_HERE, pool)?;
    checked(contestant, Operation::Load, insert_all(&index, keys, 0..keys.len())?)?;
    Ok(index.statistics())
}
