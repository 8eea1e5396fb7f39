//! The flat map survives every power cut, and each of its flushes and fences is necessary.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_crash::{ExploreOptions, Live, Modelled, Storage, Subject, explore, persist_points};
use lapis_example_ring::flat_map::FlatMap;
use lapis_index::Change;
use lapis_pmem::{AuditReport, Pool};

/// Fewer than the slots.
const KEYS: u64 = 24;
const CAPACITY: usize = 32;

struct MapSubject;

type Operation = (u64, Change);

impl Subject for MapSubject {
    type Operation = Operation;
    type State = BTreeMap<u64, u64>;
    type Live = LiveMap;

    fn name(&self) -> &'static str {
        "flat-map"
    }

    fn pool_bytes(&self) -> usize {
        1 << 20
    }

    fn prior_contents(&self) -> u8 {
        // As a device that held something else before: nothing may rest on zeroes.
        0xA5
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        let mut below = crate::below(seed);
        (0..count as u64)
            .map(|number| {
                let change = match below(8) {
                    0 | 1 => Change::Insert(number),
                    2 => Change::Update(number),
                    3..6 => Change::Put(number),
                    _ => Change::Remove,
                };
                (below(KEYS), change)
            })
            .collect()
    }

    fn probes(&self, _: &Self::State, cut: Option<&Operation>, seed: u64) -> Vec<Operation> {
        // The slot of what was cut short is used again.
        let key = cut.map_or(seed % KEYS, |&(key, _)| key);
        vec![(seed % KEYS, Change::Remove), (key, Change::Insert(1_000_000))]
    }

    fn create(&self, storage: Storage) -> Result<LiveMap, String> {
        let pool = Arc::new(storage.into_pool());
        FlatMap::create(pool, CAPACITY).map(LiveMap).map_err(|error| error.to_string())
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveMap>, String> {
        Ok(FlatMap::open(Arc::new(storage.into_pool())).map(LiveMap))
    }

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, &(key, change): &Operation) {
        match (change, state.contains_key(&key)) {
            (Change::Insert(value), false) | (Change::Update(value), true) => {
                state.insert(key, value);
            }
            (Change::Put(value), _) => {
                state.insert(key, value);
            }
            (Change::Remove, _) => {
                state.remove(&key);
            }
            (Change::Insert(_), true) | (Change::Update(_), false) => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("bring-your-own/src")
    }
}

struct LiveMap(FlatMap<Modelled>);

impl Live<Operation, BTreeMap<u64, u64>> for LiveMap {
    fn perform(&mut self, &(key, change): &Operation) -> Result<(), String> {
        self.0.change(key, change).map(|_| ()).map_err(|error| error.to_string())
    }

    fn observe(&self) -> Result<BTreeMap<u64, u64>, String> {
        Ok(self.0.entries().into_iter().collect())
    }

    fn check(&self) -> Vec<String> {
        let found = self.0.entries().into_iter();
        let lost = found.filter(|&(key, value)| self.0.get(key) != Some(value));
        lost.map(|(key, _)| format!("the search does not come to {key}")).collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.0.pool();
        let reachable = pool.reachable(|visitor| self.0.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.0.pool())
    }
}

fn options() -> ExploreOptions {
    ExploreOptions { ops: 100, exhaustive_limit: 256, samples: 32, ..ExploreOptions::default() }
}

#[test]
fn the_map_survives_every_power_cut() {
    let report = explore(&MapSubject, &options(), &|_| {}).unwrap();
    assert!(report.violations.is_empty(), "{}", report.violations[0].what);
    assert!(report.images > 200, "only {} images", report.images);
    assert!(report.distinct_states > 50, "only {} states", report.distinct_states);
}

#[test]
fn every_flush_and_fence_of_the_map_is_necessary() {
    let rows = persist_points(&MapSubject, &options(), &[1], &|_| {}).unwrap();
    let survived: Vec<_> = rows.iter().filter(|row| !row.killed).map(|row| &row.name).collect();
    assert!(survived.is_empty(), "not shown to be necessary: {survived:?}");
    // Of creation 5, of a change 2.
    assert_eq!(rows.len(), 7);
}
