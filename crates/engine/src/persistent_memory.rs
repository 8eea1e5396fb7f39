//! The persistent memory of an open engine: what lies in it, and who changes indexes there (X4).

use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};

use lapis_buffer::BufferManager;
use lapis_index::IndexMaker;
use lapis_pmem::host_lock::{self, HostGuard};
use lapis_pmem::{BlockVisitor, Domain, EXTENT_BYTES, Pool, PoolDevice};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::engine::Shared;
use crate::error::EngineError;
use crate::pieces::Pieces;
use crate::storage::Storage;
use crate::tables::Table;

/// Kept free besides: a change may need the first block of several sizes.
const SLABS_BYTES: usize = 12 * EXTENT_BYTES;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PersistentMemory<D: Domain> {
    pub(crate) pool: Option<Arc<Pool<D>>>,
    pub(crate) indexes: &'static IndexMaker<D, [u8]>,
    log: Option<PoolDevice<D>>,
    changing: RwLock<()>,
    pub(crate) pieces: Arc<Pieces>,
    /// Bytes that those who change indexes may still need.
    promised: Mutex<usize>,
    /// A reference that is broken, so that lost blocks cannot be told from others: nobody looks for them again.
    broken: OnceLock<String>,
}

/// Nobody looks for lost blocks.
pub(crate) type Held<'m, D> = HostGuard<'m, D, RwLockReadGuard<'m, ()>>;

/// Somebody changes indexes, and has room for it.
pub(crate) struct Change<'m, D: Domain> {
    shared: &'m Shared<D>,
    bytes: usize,
    _held: Held<'m, D>,
}

impl<D: Domain> Change<'_, D> {
    /// Whether nobody else may still need room.
    pub(crate) fn is_alone(&self) -> bool {
        *host_lock::lock(&self.shared.domain, &self.shared.memory.promised) == self.bytes
    }

    /// So many of the bytes have been taken.
    pub(crate) fn has_taken(&mut self, bytes: usize) {
        *host_lock::lock(&self.shared.domain, &self.shared.memory.promised) -= bytes;
        self.bytes -= bytes;
    }
}

impl<D: Domain> Drop for Change<'_, D> {
    fn drop(&mut self) {
        self.has_taken(self.bytes);
    }
}

impl<D: Domain> PersistentMemory<D> {
    pub(crate) fn new(storage: &Storage<D>, log: Option<PoolDevice<D>>) -> Self {
        Self {
            pool: storage.pool.clone(),
            indexes: storage.indexes,
            log,
            changing: RwLock::default(),
            pieces: Arc::default(),
            promised: Mutex::default(),
            broken: OnceLock::new(),
        }
    }

    pub(crate) fn pool(&self) -> Result<&Arc<Pool<D>>, EngineError> {
        self.pool.as_ref().ok_or(EngineError::NoPersistentMemory)
    }

    /// Whether a crash has left blocks that nobody reaches, and that can be found.
    fn may_have_leaked(&self, pool: &Pool<D>) -> bool {
        self.broken.get().is_none() && pool.needs_reclaim()
    }

    /// Tells of every block of the engine, of whose tables these are in indexes, or may be.
    pub(crate) fn visit_blocks(
        &self,
        manager: &BufferManager<D>,
        tables: &[Arc<Table<D>>],
        visitor: &mut BlockVisitor<'_, D>,
    ) {
        if let Some(log) = &self.log {
            log.visit_blocks(visitor);
        }
        if let Some(tier) = manager.tier() {
            tier.visit_blocks(visitor);
        }
        for index in tables.iter().filter_map(|table| table.contents().as_index()) {
            index.visit_blocks(visitor);
        }
    }
}

impl<D: Domain> Shared<D> {
    /// Keeps others from looking for lost blocks (X4).
    pub(crate) fn hold_indexes(&self) -> Held<'_, D> {
        host_lock::read(&self.domain, &self.memory.changing)
    }

    /// Begins to change indexes, which may take so many bytes; none if it only removes. What a power cut has leaked
    /// is looked for before the pool grows, and before it is said to be full.
    pub(crate) fn change_indexes(&self, bytes: usize) -> Result<Change<'_, D>, EngineError> {
        let pool = self.memory.pool()?;
        loop {
            let held = self.hold_indexes();
            let mut promised = host_lock::lock(&self.domain, &self.memory.promised);
            let wanted = bytes.saturating_add(*promised + SLABS_BYTES);
            let may_leak = self.memory.may_have_leaked(pool);
            let has_room = match may_leak && bytes > 0 && !fits_without_growth(pool, wanted) {
                true => None,
                false => Some(pool.ensure_headroom(wanted)),
            };
            match has_room {
                Some(Ok(())) => {}
                _ if may_leak => {
                    drop((promised, held));
                    self.reclaim(pool)?;
                    continue;
                }
                // Removals make room, and go on where there is none.
                Some(Err(full)) if bytes > 0 => {
                    return Err(self.memory.broken.get().map_or(full.into(), not_reclaimed));
                }
                _ => {}
            }
            *promised += bytes;
            drop(promised);
            return Ok(Change { shared: self, bytes, _held: held });
        }
    }

    /// Does what reads or changes persistent memory. If that failed meanwhile, nobody is told what came of it, and
    /// nothing is written any more.
    #[inline]
    pub(crate) fn guarded<T>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        if self.memory.pool.is_none() {
            return work();
        }
        unless_memory_fails(&self.domain, work).inspect_err(|error| {
            if let EngineError::Memory(fault) = error {
                self.order.stop(&fault.to_string());
            }
        })
    }

    /// Finds what a crash has leaked, if nobody has yet. Until then blocks are taken from storage that was never
    /// used, so that what is live spreads over all of it.
    pub(crate) fn find_leaked(&self) -> Result<(), EngineError> {
        match self.memory.pool.as_ref().filter(|pool| self.memory.may_have_leaked(pool)) {
            Some(pool) => self.reclaim(pool),
            None => Ok(()),
        }
    }

    /// Finds the blocks that nobody reaches.
    fn reclaim(&self, pool: &Pool<D>) -> Result<(), EngineError> {
        let _alone = host_lock::write(&self.domain, &self.memory.changing);
        // Somebody else may have done it meanwhile.
        if self.memory.may_have_leaked(pool) {
            // Where zeroes are read, no block is reached.
            let reachable = self.guarded(|| Ok(self.reachable(pool)))?;
            if let [problem, ..] = reachable.problems() {
                _ = self.memory.broken.set(problem.to_string());
            }
            let found = pool.reclaim(&reachable);
            tracing::debug!(?found, "found free persistent memory again");
        }
        Ok(())
    }
}

/// The error of who finds no room, though there may be some among the blocks that a crash has left.
pub(crate) fn not_reclaimed(problem: impl Display) -> EngineError {
    let what = format!(
        "persistent memory is full, and what a crash has left unused there cannot be told from what is used: {problem}"
    );
    EngineError::Damaged { what }
}

/// Does something with persistent memory. If that failed meanwhile, nobody is told what came of it: what cannot be read
/// looks like zeroes, of which no index is made, so that `work` may panic.
#[inline]
pub(crate) fn unless_memory_fails<D: Domain, T>(
    domain: &D,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    domain.health()?;
    done.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn fits_without_growth<D: Domain>(pool: &Pool<D>, bytes: usize) -> bool {
    let usage = pool.usage();
    usage.storage_bytes - usage.touched_bytes >= bytes as u64
}
