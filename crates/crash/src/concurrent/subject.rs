//! What can be checked with several workers.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};

use lapis_pmem::AuditReport;

use super::history::Call;
use crate::storage::{DeviceFault, Storage};

/// A structure that several workers use, the operations to run on it and their meaning.
pub trait ConcurrentSubject: Sync + 'static {
    /// One operation.
    type Operation: Clone + Debug + Send + Sync;
    /// Its answer.
    type Returned: Clone + Debug + Send + Sync;
    /// What is in the structure, as far as operations can tell.
    type State: Clone + Eq + Hash + Debug + Send + Sync;
    /// The structure, open.
    type Live: Send + Sync;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Bytes of the pool that the operations need; 0 for no pool.
    fn pool_bytes(&self) -> usize;

    /// Blocks of each block device that the operations need.
    fn device_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Which requests to block devices fail, by the number of the call.
    fn device_faults(&self, _seed: u64) -> Vec<DeviceFault> {
        Vec::new()
    }

    /// What to do before the history begins, and what each worker then does.
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Self::Operation>;

    /// Makes the structure on new storage, durably.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn create(&self, storage: Storage) -> Result<Self::Live, String>;

    /// Opens the structure, recovering it if need be.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn open(&self, storage: Storage) -> Result<Self::Live, String>;

    /// Performs an operation; durable on return.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn perform(
        &self,
        live: &Self::Live,
        operation: &Self::Operation,
    ) -> Result<Self::Returned, String>;

    /// What is in the structure.
    ///
    /// # Errors
    /// What cannot be read.
    fn observe(&self, live: &Self::Live) -> Result<Self::State, String>;

    /// What is wrong with the structure's invariants.
    fn problems(&self, _live: &Self::Live) -> Vec<String> {
        Vec::new()
    }

    /// Finds free space again if need be, and compares allocated with reachable.
    fn audit(&self, live: &Self::Live) -> AuditReport;

    /// Whether the calls, from `initial` on, explain `found`.
    ///
    /// # Errors
    /// [`Offence`]: which part of the history has no linearization.
    fn judge(
        &self,
        initial: &Self::State,
        calls: &[Call<Self::Operation, Self::Returned>],
        found: &Self::State,
    ) -> Result<(), Offence>;

    /// Workers of the structure's own, which run beside those that make calls; after a recovery they
    /// are started again.
    fn background_workers(&self) -> usize {
        0
    }

    /// What such a worker does, until it is to stop. It gives its turn away where it has nothing to
    /// do ([`lapis_pmem::Domain::pause`]).
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn work_in_background(
        &self,
        _live: &Self::Live,
        _worker: usize,
        _stop: &Stop,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Whether an operation may change something; others only read.
    fn changes(&self, _operation: &Self::Operation) -> bool {
        true
    }

    /// Whether the files that make up the structure include this source file.
    fn owns_source(&self, file: &str) -> bool;
}

/// Tells background workers when to stop: when every call has returned.
#[derive(Debug)]
pub struct Stop {
    /// Foreground workers that have not come to their end.
    at_work: AtomicUsize,
}

impl Stop {
    pub(super) fn after(workers: usize) -> Self {
        Self { at_work: AtomicUsize::new(workers) }
    }

    pub(super) fn one_has_ended(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether they are to stop.
    pub fn is_asked_for(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) == 0
    }
}

/// What is done before a history and in it.
#[derive(Clone, Debug)]
pub struct Plan<O> {
    /// By one worker, beforehand.
    pub before: Vec<O>,
    /// By each worker.
    pub workers: Vec<Vec<O>>,
}

impl<O> Plan<O> {
    /// A plan in which `workers` share `operations` evenly; `next` is asked for one operation of a
    /// worker after the other.
    pub fn sharing(
        before: Vec<O>,
        workers: usize,
        operations: usize,
        mut next: impl FnMut(usize) -> O,
    ) -> Self {
        let workers = (0..workers)
            .map(|worker| {
                let own = operations / workers + usize::from(worker < operations % workers);
                (0..own).map(|_| next(worker)).collect()
            })
            .collect();
        Self { before, workers }
    }

    /// The same with each operation as `other` makes it.
    pub fn map<P>(self, other: impl Fn(O) -> P) -> Plan<P> {
        let each = |all: Vec<O>| all.into_iter().map(&other).collect();
        Plan { before: each(self.before), workers: self.workers.into_iter().map(each).collect() }
    }
}

/// Why a history has no linearization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// A call that, had its result not become known, would have a place.
    pub operation: Option<String>,
    /// What does not fit, in a sentence.
    pub what: String,
}
