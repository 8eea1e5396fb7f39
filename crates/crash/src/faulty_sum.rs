//! Sums that go wrong after a power cut, for tests of the checker.

use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Link, PCell, Pool};

use crate::storage::Storage;
use crate::subject::{Live, Subject};

/// A number in persistent memory to which numbers are added.
#[derive(Clone, Copy)]
pub(crate) enum FaultySum {
    /// Opened after a power cut it does a few operations and no more.
    WornOut,
    /// What is added after a power cut is gone at the next opening.
    Forgetful,
}

/// An open one.
pub(crate) struct Sum {
    pool: Pool<Modelled>,
    cell: Link<PCell<u64>>,
    operations_left: usize,
    /// What was added and is not in the cell; none if it goes there.
    unsaved: Option<u64>,
}

impl Subject for FaultySum {
    type Operation = u64;
    type State = u64;
    type Live = Sum;

    fn name(&self) -> &'static str {
        match self {
            Self::WornOut => "worn-out",
            Self::Forgetful => "forgetful",
        }
    }
    fn pool_bytes(&self) -> usize {
        1 << 20
    }
    fn operations(&self, count: usize, _seed: u64) -> Vec<u64> {
        (1..=count as u64).collect()
    }
    fn probes(&self, _state: &u64, _interrupted: Option<&u64>, _seed: u64) -> Vec<u64> {
        vec![1]
    }
    fn create(&self, storage: Storage) -> Result<Sum, String> {
        let pool = storage.into_pool();
        let sum = pool.allocate::<PCell<u64>>().map_err(|e| e.to_string())?;
        sum.store(pool.domain(), 0);
        let sum = pool.fence(sum.flush());
        let cell = sum.link();
        let root = pool.publish_root("sum", 0, sum).map_err(|e| e.to_string())?;
        let _committed = root.persist();
        Ok(Sum { pool, cell, operations_left: usize::MAX, unsaved: None })
    }
    fn open(&self, storage: Storage) -> Result<Option<Sum>, String> {
        let pool = storage.into_pool();
        let (operations_left, unsaved) = match self {
            _ if pool.opened_clean() => (usize::MAX, None),
            Self::WornOut => (5, None),
            Self::Forgetful => (usize::MAX, Some(0)),
        };
        let cell = pool.root("sum");
        Ok(cell.map(|cell| Sum { pool, cell, operations_left, unsaved }))
    }
    fn initial(&self) -> u64 {
        0
    }
    fn apply(&self, state: &mut u64, operation: &u64) {
        *state += operation;
    }
    fn owns_source(&self, file: &str) -> bool {
        file == file!()
    }
}

impl Live<u64, u64> for Sum {
    fn perform(&mut self, operation: &u64) -> Result<(), String> {
        self.operations_left = self.operations_left.checked_sub(1).ok_or("it is worn out")?;
        if let Some(unsaved) = &mut self.unsaved {
            *unsaved += operation;
            return Ok(());
        }
        let (domain, cell) = (self.pool.domain(), self.pool.at(self.cell));
        let sum = cell.load(domain) + operation;
        let _committed = cell.publish(domain, sum).persist();
        Ok(())
    }
    fn observe(&self) -> Result<u64, String> {
        let saved = self.pool.at(self.cell).load(self.pool.domain());
        Ok(saved + self.unsaved.unwrap_or(0))
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        let reachable = self.pool.reachable(|visitor| {
            visitor.visit(self.cell, 8);
        });
        self.pool.reclaim_and_audit(&reachable)
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(&self.pool)
    }
}
