//! What can be checked.

use std::any::Any;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;
use std::rc::Rc;

use lapis_device::{BytesOfLine, Modelled};
use lapis_pmem::{AuditReport, Pool, PoolError};

use crate::storage::{DeviceFault, Storage};

/// What makes the death of a process without a power cut survivable: what it has stored stays in the caches,
/// visible and not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kills {
    /// That is not tried.
    Untried,
    /// The structure itself.
    Outlived,
    /// The pool: opening it on the same boot of the machine writes everything back.
    WrittenBack,
}

/// A structure together with the operations to run on it and their meaning.
pub trait Subject: Sync + 'static {
    /// One operation.
    type Operation: Clone + Debug + Send + Sync;
    /// The meaning of the operations so far, in a form that can be compared.
    type State: Clone + Eq + Hash + Debug + Send + Sync;
    /// The structure, open.
    type Live: Live<Self::Operation, Self::State>;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Bytes of the pool that the operations need; 0 for no pool.
    fn pool_bytes(&self) -> usize;

    /// Blocks of each block device that the operations need.
    fn device_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Blocks that the disk beneath each device has room for, in the run or after a crash; none: more than any.
    fn most_blocks(&self, _after_crash: bool) -> Vec<u64> {
        Vec::new()
    }

    /// Which requests to block devices fail.
    fn device_faults(&self, _seed: u64) -> Vec<DeviceFault> {
        Vec::new()
    }

    /// Bytes of the pool when it is created, if it is to grow during the operations.
    fn created_bytes(&self) -> usize {
        self.pool_bytes()
    }

    /// What the memory holds before the pool is created: zero, as a new file does, or anything, as
    /// a device does.
    fn prior_contents(&self) -> u8 {
        0
    }

    /// Where it holds that; elsewhere it is zero.
    fn prior_range(&self) -> Range<usize> {
        0..self.created_bytes()
    }

    /// What makes the death of its process without a power cut survivable.
    fn kills(&self) -> Kills {
        Kills::Untried
    }

    /// A seed, and the operation in which the power is cut first, that show a flush or fence of recoveries which others hardly do.
    fn rare_cut(&self) -> Option<(u64, usize)> {
        None
    }

    /// The power is cut from this operation on: those before make what there is beforehand.
    fn first_operation(&self) -> usize {
        0
    }

    /// The operations of a run.
    fn operations(&self, count: usize, seed: u64) -> Vec<Self::Operation>;

    /// Some operations to try on a structure that has just been recovered to `state`, to see that it
    /// still works; they should touch what an interrupted operation may have left half done.
    fn probes(
        &self,
        state: &Self::State,
        interrupted: Option<&Self::Operation>,
        seed: u64,
    ) -> Vec<Self::Operation>;

    /// Makes the structure on new storage, durably.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn create(&self, storage: Storage) -> Result<Self::Live, String>;

    /// Opens the structure, recovering it if need be. `None` if it was never created; that is
    /// legal only for a crash during creation.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn open(&self, storage: Storage) -> Result<Option<Self::Live>, String>;

    /// The state after creation.
    fn initial(&self) -> Self::State;

    /// The state after `operation`.
    fn apply(&self, state: &mut Self::State, operation: &Self::Operation);

    /// Whether the files that make up the structure include this source file: whose persist points
    /// are to be shown necessary.
    fn owns_source(&self, file: &str) -> bool;

    /// An empty memory of walks over the structure, if that can leave out what it knows.
    fn walk_memory(&self) -> Option<Rc<dyn WalkMemory>> {
        None
    }
}

/// What is known of a structure from earlier walks over it, in much the same memory: of the parts
/// ([`lapis_pmem::parts`]) in which nothing was read that is different now. Whoever checks images one
/// after the other says what is different.
pub trait WalkMemory: Any {
    /// A crash point. Of the lines `watched`, it is noted what is read on its images.
    fn begin_point(&self, watched: &[u32]);

    /// A run begins, on an image that has these bytes otherwise than they are durably, and no others.
    fn begin_run(&self, differing: &[BytesOfLine]);

    /// These bytes are about to be something else durably.
    fn changes_durably(&self, changed: BytesOfLine);

    /// Forgets everything: the memory is another one.
    fn forget(&self);

    /// How many parts were passed over so far.
    fn passed(&self) -> u64;
}

/// An open structure.
pub trait Live<Operation, State: Eq> {
    /// Performs an operation; durable on return.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn perform(&mut self, operation: &Operation) -> Result<(), String>;

    /// Whether the last operation was refused, as it may be, and so has changed nothing.
    fn was_refused(&self) -> bool {
        false
    }

    /// The meaning of what is there.
    ///
    /// # Errors
    /// What cannot be read.
    fn observe(&self) -> Result<State, String>;

    /// Which of these states, at most two, is what is there; none if none is. What does not
    /// follow from the states alone, such as a look-up, may be tried for a part of them that
    /// depends on `turn`.
    ///
    /// # Errors
    /// What cannot be read, or contradicts itself.
    fn find(&self, expected: &[&State], _turn: u64) -> Result<Option<usize>, String> {
        let found = self.observe()?;
        Ok(expected.iter().position(|state| **state == found))
    }

    /// What is wrong with the structure's invariants.
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether [`Live::reclaim_and_audit`] finds everything that [`Live::check`] does.
    fn audit_checks(&self) -> bool {
        false
    }

    /// How often what has happened since it was created or opened, by name: what the structure counts itself,
    /// besides what it tells its machine ([`Observed::happens`](lapis_pmem::Observed::happens)).
    fn events(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Finds free space again if the pool was not closed cleanly, and compares allocated with
    /// reachable.
    fn reclaim_and_audit(&self) -> AuditReport;

    /// From here on walks over the structure may leave out what this memory, one that
    /// [`Subject::walk_memory`] has made, knows.
    fn remember_walks(&mut self, _memory: &Rc<dyn WalkMemory>) {}

    /// The pool, if there is one.
    fn pool(&self) -> Option<&Pool<Modelled>>;
}

/// What went wrong, for a person.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Whether a pool that cannot be opened was caught in its creation.
pub(crate) fn is_interrupted_creation(error: &PoolError) -> bool {
    matches!(error, PoolError::InterruptedCreation)
}
