//! Leaves as FPTree has them, one operation after the other.
//!
//! Power cuts with a whole group in flight, of which any may be done and any not, are tried by the tests
//! of `lapis-blocks`: a subject has one operation in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::fp_leaves::{FpLeaves, FpLeavesError, FpLeavesRoot, Overlap};
use lapis_blocks::interleave::Interleaver;
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const ROOT: &str = "leaves";
/// Few, so that leaves are shared; and keys that do not fill them.
const LEAVES: usize = 4;
const KEYS: u64 = 40;

/// Gives a key a value, or removes it.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The key.
    pub key: u64,
    /// Its value from then on.
    pub value: Option<u64>,
}

/// The leaves, to check.
#[derive(Clone, Copy, Debug)]
pub struct FpLeavesSubject;

/// Open leaves.
#[derive(Debug)]
pub struct LiveLeaves {
    leaves: FpLeaves<Modelled>,
}

impl Subject for FpLeavesSubject {
    type Operation = Change;
    type State = BTreeMap<u64, u64>;
    type Live = LiveLeaves;

    fn name(&self) -> &'static str {
        "fp-leaves"
    }

    fn pool_bytes(&self) -> usize {
        1 << 20
    }

    fn prior_contents(&self) -> u8 {
        0x5A
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<Change> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|_| Change {
                key: random.random_range(1..=KEYS),
                value: (random.random_range(0..4) > 0).then(|| random.random()),
            })
            .collect()
    }

    fn probes(&self, _: &Self::State, interrupted: Option<&Change>, seed: u64) -> Vec<Change> {
        // The key that may have been left half changed, and others that may find its slot free.
        let key = interrupted.map_or(1, |change| change.key);
        let set = |key, value| Change { key, value: Some(value) };
        let another = KEYS + 1 + seed % 8;
        vec![
            set(another, seed),
            set(key, seed ^ 1),
            Change { key, value: None },
            set(key, seed ^ 2),
        ]
    }

    fn create(&self, storage: Storage) -> Result<LiveLeaves, String> {
        let pool = storage.into_pool();
        let pool = Arc::new(pool);
        let made = pool.fence(FpLeaves::create(&pool, LEAVES).map_err(text)?);
        let root = made.link();
        let _committed = pool.publish_root(ROOT, 0, made).map_err(text)?.persist();
        Ok(LiveLeaves { leaves: FpLeaves::open(&pool, root).map_err(text)? })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveLeaves>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root::<FpLeavesRoot>(ROOT) else { return Ok(None) };
        let leaves = FpLeaves::open(&Arc::new(pool), root).map_err(text)?;
        Ok(Some(LiveLeaves { leaves }))
    }

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, change: &Change) {
        match change.value {
            Some(value) => state.insert(change.key, value),
            None => state.remove(&change.key),
        };
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("blocks/src/fp_leaves") || file.contains("blocks/src/interleave")
    }
}

impl Live<Change, BTreeMap<u64, u64>> for LiveLeaves {
    fn perform(&mut self, change: &Change) -> Result<(), String> {
        let (leaves, mut result) = (&self.leaves, Ok(()));
        Interleaver::new(leaves.pool().domain(), 1).run(
            [*change],
            |turn, Change { key, value }| async move {
                match value {
                    Some(value) => leaves.insert(turn, key, value, Overlap::BOTH).await.map(|_| ()),
                    None => {
                        leaves.remove(turn, key, Overlap::BOTH).await;
                        Ok::<(), FpLeavesError>(())
                    }
                }
            },
            |done| result = done,
        );
        result.map_err(text)
    }

    fn observe(&self) -> Result<BTreeMap<u64, u64>, String> {
        let mut found = BTreeMap::new();
        let mut twice = None;
        self.leaves.for_each(|key, value| {
            if found.insert(key, value).is_some() {
                twice = Some(key);
            }
        });
        twice.map_or(Ok(found), |key| Err(format!("key {key} is there twice")))
    }

    fn check(&self) -> Vec<String> {
        self.leaves.check()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.leaves.pool();
        let reachable = pool.reachable(|visitor| self.leaves.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.leaves.pool())
    }
}
