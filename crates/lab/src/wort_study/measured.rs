//! The sessions on this machine: insert, search, scan.

use std::time::Instant;

use lapis_index::{OrderedIndex, Statistics};
use lapis_pmem::{Hardware, Pool, Region};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::contestant::with_contestant;
use super::{Contestant, Experiment, MeasuredOperations, Options, RangeTimes, ranges};
use crate::index_experiment::engine::{create, value_of};
use crate::index_experiment::{ExperimentError, Operation};
use crate::keys::{Distribution, KeySet};

/// Address space for a key, generously: regions grow to what they use.
const ROOM_BYTES_PER_KEY: usize = 384;
const LEAST_ROOM_BYTES: usize = 1 << 28;
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
        let mut searching = loading.clone();
        searching.shuffle(&mut SmallRng::seed_from_u64(!seed));
        let mut ascending = Vec::new();
        if options.runs(Experiment::Ranges) {
            ascending.clone_from(&loading);
            ascending.sort_unstable();
        }
        Self { loading, searching, ascending, seed }
    }
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
        (_, Some(index)) => Err(ExperimentError::WrongAnswers { index, operation, wrong }),
    }
}

/// Inserts keys, one after another. How many were there already.
pub(super) fn insert_all<D, I>(index: &I, keys: &[u64]) -> Result<u64, ExperimentError>
where
    D: lapis_pmem::Domain,
    I: OrderedIndex<D, u64>,
{
    let mut wrong = 0;
    for key in keys {
        wrong += u64::from(index.insert(key, value_of(*key, 0))?.previous.is_some());
    }
    Ok(wrong)
}

/// Looks keys up, one after another. How many answers were wrong.
pub(super) fn search_all<D, I>(index: &I, keys: &[u64]) -> u64
where
    D: lapis_pmem::Domain,
    I: OrderedIndex<D, u64>,
{
    let wrong = |key: &&u64| index.get(key) != Some(value_of(**key, 0));
    keys.iter().filter(wrong).count() as u64
}

/// Measures one structure with one distribution.
pub(super) fn session(
    contestant: Contestant,
    keys: &Keys,
    options: &Options,
) -> Result<Found, ExperimentError> {
    with_contestant!(contestant, Hardware, |I| session_of::<I>(contestant, keys, options))
}

fn session_of<I: OrderedIndex<Hardware, u64>>(
    contestant: Contestant,
    keys: &Keys,
    options: &Options,
) -> Result<Found, ExperimentError> {
    let pool = Pool::create(region(keys.loading.len())?, Hardware::detect())?;
    let index: I = create(pool, &contestant.options())?;
    let begin = Instant::now();
    let wrong = insert_all(&index, &keys.loading)?;
    let inserted = begin.elapsed();
    checked(contestant, Operation::Load, wrong)?;

    let mut found = Found::default();
    if options.runs(Experiment::Operations) {
        let begin = Instant::now();
        let wrong = search_all(&index, &keys.searching);
        let searched = begin.elapsed();
        checked(contestant, Operation::Get, wrong)?;
        let statistics = index.statistics();
        let count = keys.loading.len() as f64;
        found.operations = Some(MeasuredOperations {
            keys: keys.loading.len(),
            insert_ns: inserted.as_nanos() as f64 / count,
            search_ns: searched.as_nanos() as f64 / count,
            depth: statistics.mean_depth,
            bytes_per_key: statistics.bytes as f64 / count,
        });
    }
    if options.runs(Experiment::Ranges) {
        let (times, wrong) = ranges::measure(&index, &keys.ascending, keys.seed)?;
        checked(contestant, Operation::Range, wrong)?;
        found.ranges = times;
    }
    Ok(found)
}

/// Inserts all keys and looks at what came of it.
pub(super) fn build_and_walk(
    contestant: Contestant,
    keys: &[u64],
) -> Result<Statistics, ExperimentError> {
    with_contestant!(contestant, Hardware, |I| {
        let pool = Pool::create(region(keys.len())?, Hardware::detect())?;
        let index: I = create(pool, &contestant.options())?;
        checked(contestant, Operation::Load, insert_all(&index, keys)?)?;
        Ok(lapis_index::Index::statistics(&index))
    })
}
