//! Cells that are updated by way of one log.

use lapis_blocks::CellRun;
use lapis_blocks::in_place::LogCell;
use lapis_blocks::log::{Layout, Placement};
use lapis_blocks::pop_log::PopLog;
use lapis_device::Modelled;
use lapis_pmem::AuditReport;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subject::{Live, Subject};
use crate::subjects::{CELLS, InPlaceSubject, LiveCells, Update};

type Scheme = LogCell<Modelled, PopLog<Modelled>>;

/// A log that histories fill.
const LAYOUT: Layout = Layout { bytes: 4096, placement: Placement::Padded, size_fields: 0 };
/// Updates before a history, at most: some fill the log nearly.
const MOST_BEFORE: usize = 32;

/// Cells of which each worker has its own, with one log.
#[derive(Debug)]
pub struct ConcurrentCells {
    alone: InPlaceSubject<Scheme>,
}

impl ConcurrentCells {
    /// Cells of so many bytes.
    pub fn new(run: &CellRun) -> Self {
        Self { alone: InPlaceSubject::new(run.name, run.value_bytes, LAYOUT) }
    }
}

impl Specification for ConcurrentCells {
    type State = Vec<Vec<u8>>;
    type Operation = Update;
    type Returned = ();

    fn step(&self, state: &Self::State, update: &Update) -> (Self::State, ()) {
        let mut after = state.clone();
        self.alone.apply(&mut after, update);
        (after, ())
    }
}

impl ConcurrentSubject for ConcurrentCells {
    type Operation = Update;
    type Returned = ();
    type State = Vec<Vec<u8>>;
    type Live = LiveCells<Scheme>;

    fn name(&self) -> &'static str {
        self.alone.name()
    }

    fn pool_bytes(&self) -> usize {
        self.alone.pool_bytes()
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Update> {
        let mut random = SmallRng::seed_from_u64(seed);
        let before = self.alone.operations(random.random_range(0..MOST_BEFORE), seed);
        // A cell has one writer at a time.
        let workers = workers.min(CELLS);
        Plan::sharing(before, workers, operations, |worker| {
            let own = (CELLS - worker).div_ceil(workers);
            let cell = worker + workers * random.random_range(0..own);
            Update { cell, number: random.random() }
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        self.alone.create(storage)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        self.alone.open(storage)?.ok_or_else(|| "the root is gone".to_owned())
    }

    fn perform(&self, live: &Self::Live, update: &Update) -> Result<(), String> {
        live.update(update)
    }

    fn observe(&self, live: &Self::Live) -> Result<Self::State, String> {
        live.observe()
    }

    fn problems(&self, live: &Self::Live) -> Vec<String> {
        live.check()
    }

    fn audit(&self, live: &Self::Live) -> AuditReport {
        live.reclaim_and_audit()
    }

    fn judge(
        &self,
        initial: &Self::State,
        calls: &[Call<Update, ()>],
        found: &Self::State,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn owns_source(&self, file: &str) -> bool {
        self.alone.owns_source(file)
    }
}
