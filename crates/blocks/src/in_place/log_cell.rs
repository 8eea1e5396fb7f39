//! LogCell: the value where it is read, and a redo log for the update in flight.
//!
//! After section 3.4.2 of van Renen et al. (VLDB Journal 2020). One log serves any number of cells.
//!
//! # Layout
//!
//! ```text
//!  cell, word 0        w                 log entry, byte 0        8           8 + n
//!       +--------------+                       +---------+-----------+
//!       | value        |                       | offset  | value     |
//!       +--------------+                       +---------+-----------+
//!                                              of the cell in the pool
//! ```
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. Every cell holds its last acknowledged value, durably; but for the one that the newest
//!   log entry names, whose value is in that entry.
//! * I2. A word of a cell changes only when the entry with its new value is durable.
//! * I3. An entry is truncated only when its value is durable in its cell.
//!
//! # Order of stores, and cost
//!
//! Entry appended, durable on return (I2; one barrier with PopLog, its ring or RAWL, two with the
//! classic and the header log); value stored, flushed, fenced (I1). The last barrier is what lets
//! recovery look at the newest entry only, and the log be truncated at any time. Updates of cells that
//! share a log take turns.
//!
//! When the log is full, and at the latest once in [`LogCell::MOST_RETAINED`] updates, it is truncated
//! (I3), for another one to three barriers. Recovery, in [`LogCell::open`]: the newest entry's value
//! stored, flushed, fenced.

use crate::declaration::{CellRun, Declaration};
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Committed, Domain, LINE_BYTES, Link, PCell, Pool, host_lock};
use parking_lot::Mutex;

use super::mutants::{NO_REDO, TURN_GIVEN_UP_EARLY, UPDATE_BEFORE_LOG};
use super::{
    CellDamage, CellKind, InPlace, InPlaceError, LARGEST_VALUE_BYTES, SMALLEST_VALUE_BYTES,
    load_value, store_value, value_words,
};
use crate::log::{Damage, Layout, Log, LogError};

/// The name of the log of all cells in a pool.
const LOG: &str = "log";

/// Cells that are updated by way of a redo log, which is any [`Log`]. See the [module](super).
#[derive(Debug)]
pub struct LogCell<D: Domain, L> {
    pool: Arc<Pool<D>>,
    log: L,
    /// Entries appended since the log was last cleared. The lock is the turn of whoever updates.
    retained: Mutex<u64>,
}

impl<D: Domain, L: Log<D>> LogCell<D, L> {
    /// The log is cleared when it has so many entries.
    pub const MOST_RETAINED: u64 = 1024;

    /// Cells in `pool` with `log`, which serves nothing else. Completes the update that a crash
    /// interrupted: as long as the log has entries, the blocks of their cells stay where they are
    /// ([`LogCell::clear_log`]).
    ///
    /// # Errors
    /// [`InPlaceError::Damaged`] if the newest entry names no cell; [`InPlaceError::Log`].
    pub fn open(pool: &Arc<Pool<D>>, log: L) -> Result<Self, InPlaceError> {
        let cells = Self { pool: Arc::clone(pool), log, retained: Mutex::new(0) };
        let mut newest = None;
        for entry in cells.log.entries() {
            newest = Some(entry?.1);
        }
        if let Some(entry) = newest {
            cells.redo(&entry)?;
            // What is older, too, is to be cleared soon.
            *cells.retained.lock() = Self::MOST_RETAINED;
        }
        Ok(cells)
    }

    /// The log.
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Empties the log, so that no entry names any cell: before blocks with cells are freed.
    ///
    /// # Errors
    /// [`InPlaceError::Log`].
    pub fn clear_log(&self) -> Result<Committed, InPlaceError> {
        Ok(self.clear(&mut host_lock::lock(self.pool.domain(), &self.retained))?)
    }

    /// Only by whoever has the turn, while no update is under way: by I1 all values are durable in
    /// their cells (I3).
    fn clear(&self, retained: &mut u64) -> Result<Committed, LogError> {
        let committed = self.log.truncate(self.log.end())?;
        *retained = 0;
        Ok(committed)
    }

    /// Appends an entry, making room for it if there is none.
    fn log_value(&self, retained: &mut u64, offset: u64, value: &[u8]) -> Result<(), LogError> {
        let offset = offset.to_le_bytes();
        let entry = [&offset[..], value];
        if *retained >= Self::MOST_RETAINED {
            self.clear(retained)?;
        }
        match self.log.append_parts(&entry) {
            Err(LogError::NoRoom { .. } | LogError::Full(_)) if *retained > 0 => {
                self.clear(retained)?;
                self.log.append_parts(&entry)?;
            }
            appended => {
                appended?;
            }
        }
        *retained += 1;
        Ok(())
    }

    /// Stores the value of an entry into its cell, durably.
    fn redo(&self, entry: &[u8]) -> Result<(), InPlaceError> {
        let domain = self.pool.domain();
        if domain.commits(NO_REDO) {
            return Ok(());
        }
        let damaged = |what, pool_offset| Err(InPlaceError::Damaged { what, pool_offset });
        let Some((offset, value)) = entry.split_first_chunk::<8>() else {
            return damaged("a log entry names no cell", 0);
        };
        let offset = u64::from_le_bytes(*offset);
        if !(SMALLEST_VALUE_BYTES..=LARGEST_VALUE_BYTES).contains(&value.len())
            || !offset.is_multiple_of(8)
        {
            return damaged("a log entry names it that cannot be one of its updates", offset);
        }
        let first = Link::<PCell<u64>>::from_bits(offset);
        let Some(cell) = self.pool.try_slice(first, value_words(value.len())) else {
            return damaged("a log entry names it, and it lies outside of the pool", offset);
        };
        store_value(domain, cell, value);
        // I1 for this cell, before the next entry becomes the newest.
        domain.flush(cell);
        domain.fence();
        Ok(())
    }
}

impl<D: Domain, L: Log<D>> InPlace<D> for LogCell<D, L> {
    const KIND: CellKind = CellKind::Log;
    const BARRIERS: u64 = 2;

    fn make_in(pool: &Arc<Pool<D>>, log: Layout) -> Result<Self, InPlaceError> {
        Self::open(pool, L::create_named(pool, LOG, L::options(log))?)
    }

    fn open_in(pool: &Arc<Pool<D>>) -> Result<Self, InPlaceError> {
        let root = pool.root(LOG).ok_or(InPlaceError::NoLog)?;
        Self::open(pool, L::open(Arc::clone(pool), root)?)
    }

    fn check(&self) -> Vec<Damage> {
        self.log.check()
    }

    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.log.visit_blocks(visitor);
    }

    fn cell_words(&self, value_bytes: usize) -> usize {
        value_words(value_bytes)
    }

    #[inline]
    fn read(&self, domain: &D, cell: &[PCell<u64>], value: &mut [u8]) {
        load_value(domain, cell, value);
    }

    fn update(
        &self,
        domain: &D,
        cell: &[PCell<u64>],
        value: &[u8],
    ) -> Result<Committed, InPlaceError> {
        let offset = cell.as_ptr().addr() - self.pool.region().base().addr();
        debug_assert!(offset >= LINE_BYTES, "a cell in the pool's header");
        let mut retained = host_lock::lock(domain, &self.retained);
        if domain.commits(UPDATE_BEFORE_LOG) {
            store_value(domain, cell, value);
        }
        self.log_value(&mut retained, offset as u64, value)?;
        let _turn = (!domain.commits(TURN_GIVEN_UP_EARLY)).then_some(retained);
        store_value(domain, cell, value); // I2
        domain.flush(cell);
        Ok(Committed::after_fence(domain)) // I1
    }

    fn recover(&self, _: &D, _: &[PCell<u64>]) -> Result<bool, CellDamage> {
        Ok(false)
    }
}

pub(crate) const DECLARATION: Declaration<CellRun> = Declaration {
    name: "log-cell",
    sources: &["blocks/src/in_place/log_cell", "blocks/src/in_place/array"],
    mutants: super::mutants::LOG_CELL,
    runs: &[
        CellRun { name: "log-cell:16", value_bytes: 16 },
        CellRun { name: "log-cell:100", value_bytes: 100 },
    ],
    operations: 60,
    persist_points: (60, 2),
};
