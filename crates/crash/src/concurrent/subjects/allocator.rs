//! The allocator: a directory of blocks, of which each worker has slots of its own.

use std::collections::BTreeMap;

use lapis_pmem::AuditReport;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subject::{Live, Subject};
use crate::subjects::{AllocatorOperation, AllocatorSubject, LiveDirectory};

/// Slots of each worker.
const OWN_SLOTS: usize = 4;
/// Lengths of tails: classes of blocks in slabs of one chunk and of several, and runs of chunks.
const TAILS_BYTES: [usize; 6] = [100, 700, 3000, 9000, 30_000, 70_000];

/// The allocator and the pool that several workers use.
#[derive(Debug)]
pub struct ConcurrentAllocator {
    alone: AllocatorSubject,
}

impl Default for ConcurrentAllocator {
    fn default() -> Self {
        Self { alone: AllocatorSubject::new("allocator", 0xA5) }
    }
}

impl Specification for ConcurrentAllocator {
    type State = BTreeMap<usize, (usize, u64)>;
    type Operation = AllocatorOperation;
    type Returned = ();

    fn step(&self, state: &Self::State, operation: &AllocatorOperation) -> (Self::State, ()) {
        let mut after = state.clone();
        self.alone.apply(&mut after, operation);
        (after, ())
    }
}

impl ConcurrentSubject for ConcurrentAllocator {
    type Operation = AllocatorOperation;
    type Returned = ();
    type State = BTreeMap<usize, (usize, u64)>;
    type Live = LiveDirectory;

    fn name(&self) -> &'static str {
        self.alone.name()
    }

    fn pool_bytes(&self) -> usize {
        4 << 20
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<AllocatorOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        // Few classes, so that workers meet at their slabs, and slabs become empty.
        let tails: Vec<usize> =
            (0..2).map(|_| TAILS_BYTES[random.random_range(0..TAILS_BYTES.len())]).collect();
        let operation = |worker: usize, random: &mut SmallRng| {
            let slot = worker * OWN_SLOTS + random.random_range(0..OWN_SLOTS);
            if random.random_range(0..3) == 0 {
                return AllocatorOperation::Free { slot };
            }
            let tail_bytes = tails[random.random_range(0..tails.len())];
            AllocatorOperation::Replace { slot, tail_bytes, number: random.random() }
        };
        let filled = random.random_range(0..6);
        let before = (0..filled)
            .map(|_| {
                let worker = random.random_range(0..workers);
                operation(worker, &mut random)
            })
            .collect();
        Plan::sharing(before, workers, operations, |worker| operation(worker, &mut random))
    }

    fn create(&self, storage: Storage) -> Result<LiveDirectory, String> {
        self.alone.create(storage)
    }

    fn open(&self, storage: Storage) -> Result<LiveDirectory, String> {
        self.alone.open(storage)?.ok_or_else(|| "the root is gone".to_owned())
    }

    fn perform(&self, live: &LiveDirectory, operation: &AllocatorOperation) -> Result<(), String> {
        live.perform_alone(operation)
    }

    fn observe(&self, live: &LiveDirectory) -> Result<Self::State, String> {
        live.observe()
    }

    fn problems(&self, live: &LiveDirectory) -> Vec<String> {
        live.check()
    }

    fn audit(&self, live: &LiveDirectory) -> AuditReport {
        live.reclaim_and_audit()
    }

    fn judge(
        &self,
        initial: &Self::State,
        calls: &[Call<AllocatorOperation, ()>],
        found: &Self::State,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn owns_source(&self, file: &str) -> bool {
        self.alone.owns_source(file)
    }
}
