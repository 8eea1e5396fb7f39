//! The sessions on the modelled machine: one index, several clocks.
//!
//! The index is filled uncounted, if not the whole load is counted; then the counters see some inserts that warm the
//! caches, the inserts that are counted, and searches and scans. Each pair of latencies has a clock of its own
//! over the same events, so counts are the same under all of them.

use lapis_compiled_indexes::ModelledKey;
use lapis_device::{Config, MachineShape, Modelled, Profile};
use lapis_index::{AnyIndex, IndexKey};
use lapis_pmem::Pool;

use super::byte_strings::Strings;
use super::key_list::KeyList;
use super::measured::{checked, in_another_order, insert_all, region, search_all};
use super::ranges::{PERCENTS, Queries};
use super::{
    Contestant, Experiment, Latency, ModelledOperations, ModelledTime, Options, PerOperation,
    RangeTimes,
};
use crate::experiment::ExperimentError;
use crate::experiment::meter::{CountsPerOperation, Meter, ModelMeter, Section};
use crate::index_experiment::Operation;
use crate::keys::{Distribution, KeySet};

/// Operations that warm the caches, at most: several times what the paper's L3 holds.
const WARMING_OPERATIONS: usize = 200_000;
/// Entries that all modelled scans of a row return together, about.
const SCANNED_ENTRIES: usize = 20_000;

/// What a session found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) operations: Option<ModelledOperations>,
    pub(super) ranges: Vec<RangeTimes>,
}

/// The machine of a profile with these latencies of persistent memory.
fn machine_with(profile: &Profile, latency: Latency) -> MachineShape {
    let mut profile = profile.clone();
    let (read, write) = (f64::from(latency.read_ns), f64::from(latency.write_ns));
    profile.memory.read_buffer_ns.value = read;
    profile.memory.read_buffer_other_unit_ns.value = read;
    profile.memory.read_media_ns.value = read;
    profile.memory.flush_accept_ns.value = write;
    // Every flushed line is delayed, one after another, as the paper's emulation does it.
    profile.core.write_back_interval_ns.value = write;
    profile.machine()
}

/// An index on the modelled machine, and what an operation costs beyond its memory accesses.
struct Bench<K: IndexKey + ?Sized> {
    index: AnyIndex<Modelled, K>,
    meter: ModelMeter,
    operation_ns: u64,
}

impl<K: IndexKey + ?Sized> Bench<K> {
    fn spend(&self) {
        self.meter.machine().spend_ns(0, self.operation_ns);
    }
}

fn per_operation(section: &Section, operations: usize) -> PerOperation {
    let dram_misses = section.counts().dram_reads as f64 / operations as f64;
    let CountsPerOperation { flushes, fences, wpq_inserts, media_writes, llc_misses, .. } =
        section.per_operation(operations as u64);
    PerOperation { flushes, fences, llc_misses, dram_misses, wpq_inserts, media_writes }
}

/// Models one structure with one distribution.
pub(super) fn session(
    contestant: Contestant,
    distribution: Distribution,
    options: &Options,
    profile: &Profile,
) -> Result<Found, ExperimentError> {
    let loading = KeySet::generate(distribution, options.modelled_keys, 0, options.seed);
    let loading = loading.into_loaded();
    let searching = in_another_order(&loading, options.seed);
    let (bench, operations) =
        inserts_and_searches(contestant, &loading[..], &searching[..], options, profile)?;
    let mut found = Found::default();
    if options.runs(Experiment::Ranges) {
        found.ranges = scans(contestant, &bench, loading, options.seed)?;
    }
    if options.runs(Experiment::Operations) {
        found.operations = Some(operations);
    }
    Ok(found)
}

/// Models one structure with byte-string keys, which come in the order of inserting and in that of
/// searching.
pub(super) fn string_session(
    contestant: Contestant,
    loading: &Strings,
    searching: &Strings,
    options: &Options,
    profile: &Profile,
) -> Result<ModelledOperations, ExperimentError> {
    Ok(inserts_and_searches(contestant, loading, searching, options, profile)?.1)
}

/// An index of all keys on a machine that has counted its last inserts and some searches.
fn inserts_and_searches<L: KeyList + ?Sized>(
    contestant: Contestant,
    loading: &L,
    searching: &L,
    options: &Options,
    profile: &Profile,
) -> Result<(Bench<L::Key>, ModelledOperations), ExperimentError> {
    let keys = loading.count();
    let mut shapes = options.latencies.iter().map(|&latency| machine_with(profile, latency));
    let region = region(keys)?;
    let machine = Modelled::over(
        &region,
        Config {
            counting: shapes.next(),
            other_timings: shapes.map(|shape| shape.timing).collect(),
            ..Config::default()
        },
    );
    let meter = ModelMeter::of(&machine);
    let pool = Pool::create(region, machine.clone())?;
    let operation_ns = profile.core.operation_ns.value.round() as u64;

    let inserts = options.modelled_operations.min(keys);
    let warming = (keys - inserts).min(WARMING_OPERATIONS).min(inserts);
    let filling = keys - inserts - warming;

    let bench = Bench { index: contestant.create(L::Key::indexes(), pool)?, meter, operation_ns };
    let index = &bench.index;
    machine.set_counting(false);
    let wrong = insert_all(index, loading, 0..filling)?;
    checked(contestant, Operation::Load, wrong)?;
    machine.set_counting(true);
    let wrong = insert_all(index, loading, filling..filling + warming)?;
    checked(contestant, Operation::Load, wrong)?;
    let (wrong, inserting) = bench.meter.section(1, || {
        let mut wrong = 0;
        for place in keys - inserts..keys {
            bench.spend();
            wrong += insert_all(index, loading, place..place + 1)?;
        }
        Ok::<_, ExperimentError>(wrong)
    })?;
    checked(contestant, Operation::Load, wrong)?;

    let searches = inserts.div_ceil(4);
    let warming = (keys - searches).min(WARMING_OPERATIONS);
    let wrong = search_all(index, searching, 0..warming);
    checked(contestant, Operation::Get, wrong)?;
    let (wrong, sought) = bench.meter.section(1, || {
        let mut wrong = 0;
        for place in warming..warming + searches {
            bench.spend();
            wrong += search_all(index, searching, place..place + 1);
        }
        Ok::<_, ExperimentError>(wrong)
    })?;
    checked(contestant, Operation::Get, wrong)?;

    machine.set_counting(false);
    let statistics = index.statistics();
    machine.set_counting(true);
    let times = options.latencies.iter().zip(inserting.times_ns()).zip(sought.times_ns());
    let time = |((&latency, insert), search)| ModelledTime {
        latency,
        insert_ns: insert / inserts as f64,
        search_ns: search / searches as f64,
    };
    let operations = ModelledOperations {
        keys,
        inserts,
        searches,
        insert: per_operation(&inserting, inserts),
        search: per_operation(&sought, searches),
        times: times.map(time).collect(),
        depth: statistics.mean_depth,
        bytes_per_key: statistics.bytes as f64 / keys as f64,
    };
    Ok((bench, operations))
}

/// Models range queries of each length.
fn scans(
    contestant: Contestant,
    bench: &Bench<u64>,
    mut keys: Vec<u64>,
    seed: u64,
) -> Result<Vec<RangeTimes>, ExperimentError> {
    keys.sort_unstable();
    let mut found = Vec::new();
    for percent in PERCENTS {
        let queries = Queries::over(&keys, percent, SCANNED_ENTRIES, seed);
        let (wrong, section) = bench.meter.section(1, || {
            Ok::<_, ExperimentError>(queries.ask_index(&bench.index, || bench.spend()))
        })?;
        checked(contestant, Operation::Range, wrong)?;
        let entries = (queries.entries * queries.len()) as f64;
        found.push(RangeTimes {
            entries: queries.entries,
            queries: queries.len(),
            query_ns: section.picoseconds() as f64 / 1000.0 / queries.len() as f64,
            llc_misses_per_entry: Some(section.counts().llc_misses as f64 / entries),
        });
    }
    Ok(found)
}
