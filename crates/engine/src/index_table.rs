//! Tables in persistent indexes: an index of the user's choice, and behind each of its entries a block.
//!
//! ```text
//!  index        key → offset in the pool of the block of its record
//!
//!  RecordBlock  0  4  bytes of the record
//!               4  4  CRC-32C of the key and the record
//!               8  …  the record, as a tree would have it (`value.rs`)
//! ```
//!
//! The catalog names the root of the index. The protocol of transactions is that of trees. What is different is that
//! an index has nothing to redo it with: what it is given, it has at once and for good.
//!
//! # Invariants
//!
//! * X1. *The log first.* An index is changed by a transaction only when the transaction's record is durable. So a
//!   power cut leaves nothing in an index that the log does not have (what E1 is for trees).
//! * X2. A block that an entry refers to is durable and never changes. Its checksum has the key in it, so that
//!   a block of another key is told from the one that should be there.
//! * X3. The catalog names only roots that are durable; and the log names a root durably until nothing of its index
//!   is used for anything else.
//! * X4. Whoever changes indexes shares a lock with others who do, from before the first block is allocated until the
//!   last one is reachable from the catalog; whoever looks for blocks that nobody reaches has it alone. It is taken
//!   before stripes.
//!
//! # Order
//!
//! * Put: the log durable up to the record (X1); the block, flushed; a fence, the index's if it has one there (X2);
//!   the entry, by the index; then the old block is retired.
//! * Make: the index, flushed and fenced; the catalog's entry (X3).
//! * Drop: the catalog's entry becomes a listing; when nobody reads the table, the listing ends, durably; then the
//!   blocks are retired (X3). A power cut before that leaves blocks that nobody reaches.
//!
//! Replay is blind, as for trees, but for what an index has already: that it is not written again. What a power cut
//! has leaked is found by walking over what is reachable, before the pool grows.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::{
    AnyIndex, IndexError, IndexKind, IndexMaker, IndexOptions, IndexRoot, MAX_KEY_BYTES,
};
use lapis_pmem::{
    BlockVisitor, Committed, Domain, Guard, Link, PCell, Pool, ReachableBlocks, persistent,
};
use lapis_tree::ShowOld;

use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::scan::Direction;

persistent! {
    /// The head of a record's block.
    struct RecordBlock: 8 {
        record_bytes: PCell<u32>,
        checksum: PCell<u32>,
    }
}

/// Records longer than this are written past the caches.
const STREAM_OVER_BYTES: usize = 4096;
/// Records are not longer: longer values are chunks in a tree.
const MOST_RECORD_BYTES: usize = 64 << 10;
/// The most that the nodes of an index take for a change, as far as that is to be kept free.
const NODES_PER_CHANGE: usize = 1536;

fn checksum_of(key: &[u8], record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), record)
}

/// An index of a table.
#[derive(Debug)]
pub(crate) struct IndexTable<D: Domain> {
    index: AnyIndex<D, [u8]>,
    root: Link<IndexRoot>,
    largest_record: usize,
}

impl<D: Domain> IndexTable<D> {
    /// An empty index, durable, which nothing refers to (X3).
    pub(crate) fn create(
        indexes: &IndexMaker<D, [u8]>,
        pool: &Arc<Pool<D>>,
        kind: IndexKind,
        options: &IndexOptions,
        largest_payload: usize,
    ) -> Result<Self, EngineError> {
        let root = pool.fence(indexes.create(kind, pool, options)?);
        // To the catalog it is a number, and durable by now.
        Self::open(indexes, pool, kind, root.release().bits(), largest_payload)
    }

    /// The index whose root is there.
    pub(crate) fn open(
        indexes: &IndexMaker<D, [u8]>,
        pool: &Arc<Pool<D>>,
        kind: IndexKind,
        root: u64,
        largest_payload: usize,
    ) -> Result<Self, EngineError> {
        let root = Link::from_bits(root);
        let index = indexes.open(kind, Arc::clone(pool), root)?;
        Ok(Self { index, root, largest_record: (largest_payload / 4).min(MOST_RECORD_BYTES) })
    }

    pub(crate) fn kind(&self) -> IndexKind {
        self.index.kind().0
    }

    /// Where the root is.
    pub(crate) fn root(&self) -> u64 {
        self.root.bits()
    }

    /// The longest record, key included.
    pub(crate) fn largest_record(&self) -> usize {
        self.largest_record
    }

    fn pool(&self) -> &Arc<Pool<D>> {
        self.index.pool()
    }

    /// Says that blocks are not to go while they are looked at.
    pub(crate) fn pin(&self) -> Guard<'_, D> {
        self.pool().pin()
    }

    /// The record in a block.
    fn read(&self, key: &[u8], link: u64) -> Result<&[u8], EngineError> {
        let damaged = |what: &str| EngineError::Damaged {
            what: format!("the record of {} {what}", key.escape_ascii()),
        };
        let (pool, link) = (self.pool(), Link::<RecordBlock>::from_bits(link));
        let head = pool.try_at(link).ok_or_else(|| damaged("is outside the pool"))?;
        let bytes = head.record_bytes.load(pool.domain()) as usize;
        let record = pool.try_tail(link, bytes);
        let record = record.ok_or_else(|| damaged("ends outside the pool"))?;
        match checksum_of(key, record) == head.checksum.load(pool.domain()) {
            true => Ok(record),
            false => Err(damaged("has a wrong checksum")),
        }
    }

    /// The record of a key, into `into`; whether there is one.
    pub(crate) fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, EngineError> {
        into.clear();
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Ok(false);
        }
        let pinned = self.pin();
        let Some(link) = self.index.get_pinned(key, &pinned) else { return Ok(false) };
        into.extend_from_slice(self.read(key, link)?);
        Ok(true)
    }

    /// Shows what a key has, before it is changed by who holds its stripe. What cannot be read is shown as a record that
    /// is none.
    fn show(&self, key: &[u8], pinned: &Guard<'_, D>, show: Option<ShowOld<'_>>) {
        let Some(show) = show else { return };
        let link = self.index.get_pinned(key, pinned);
        show(key, link.map(|link| self.read(key, link).unwrap_or_default()));
    }

    /// Gives a key a record, durably.
    pub(crate) fn put(
        &self,
        key: &[u8],
        record: &[u8],
        old: Option<ShowOld<'_>>,
    ) -> Result<(), EngineError> {
        let (pool, domain) = (self.pool(), self.pool().domain());
        let pinned = self.pin();
        self.show(key, &pinned, old);
        let mut block =
            pool.allocate_with_tail::<RecordBlock>(record.len()).map_err(IndexError::from)?;
        block.record_bytes.store(domain, record.len() as u32);
        block.checksum.store(domain, checksum_of(key, record));
        let block = if record.len() > STREAM_OVER_BYTES {
            block.write_tail_nontemporal(0, record);
            block.flush_head()
        } else {
            block.write_tail(0, record);
            block.flush()
        };
        let link = block.link().bits();
        let outcome = if self.index.kind().1.orders_prior_flushes {
            let outcome = self.index.put(key, link)?;
            // To an index the link is a number: it has stored it, and fenced before that.
            let _ = block.release();
            outcome
        } else {
            // X2: this index may publish before it fences.
            let block = pool.fence(block);
            let outcome = self.index.put(key, link)?;
            // As above, but for the fence.
            let _ = block.release();
            outcome
        };
        self.retire(outcome.previous, outcome.committed, &pinned);
        Ok(())
    }

    /// Removes a key, durably.
    pub(crate) fn remove(&self, key: &[u8], old: Option<ShowOld<'_>>) -> Result<(), EngineError> {
        let pinned = self.pin();
        self.show(key, &pinned, old);
        let outcome = self.index.remove(key)?;
        self.retire(outcome.previous, outcome.committed, &pinned);
        Ok(())
    }

    /// Whether the index has what a record of the log says: after a crash it has most of it.
    pub(crate) fn has(&self, key: &[u8], record: Option<&[u8]>) -> bool {
        let pinned = self.pin();
        match (self.index.get_pinned(key, &pinned), record) {
            (Some(link), Some(record)) => self.read(key, link).is_ok_and(|found| found == record),
            (found, None) => found.is_none(),
            (None, Some(_)) => false,
        }
    }

    fn retire(&self, link: Option<u64>, unlinked: Committed, pinned: &Guard<'_, D>) {
        let Some(link) = link.map(Link::<RecordBlock>::from_bits) else { return };
        if let Some(bytes) = block_bytes(self.pool(), link) {
            self.pool().retire(link, bytes, unlinked, pinned);
        }
    }

    /// Calls `visit` for the entries of a range, in order, until it breaks. What cannot be read is a record that is none.
    pub(crate) fn visit(
        &self,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) {
        let (from, direction) = match direction {
            Direction::Forward => (range.lower(), lapis_index::Direction::Forward),
            Direction::Backward => (range.upper(), lapis_index::Direction::Backward),
        };
        let from = match (from, direction) {
            // No key is empty.
            (Bound::Included([]) | Bound::Excluded([]), lapis_index::Direction::Backward) => return,
            (Bound::Included([]) | Bound::Excluded([]), _) => Bound::Unbounded,
            (from, _) => from,
        };
        let _pinned = self.pin();
        self.index.scan(from, direction, &mut |key, link| match range.contains(key) {
            true => visit(key, self.read(key, link).unwrap_or_default()),
            false => ControlFlow::Break(()),
        });
    }

    /// Calls `visit` with each key and its record, or what is wrong with it, in any order.
    pub(crate) fn visit_all(&self, mut visit: impl FnMut(&[u8], Result<&[u8], EngineError>)) {
        let _pinned = self.pin();
        self.index.for_each(&mut |key, link| {
            visit(key, self.read(key, link));
            ControlFlow::Continue(())
        });
    }

    /// What is wrong with the index itself.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.index.check()
    }

    /// Tells of every block.
    pub(crate) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.index.visit_blocks(visitor, &mut |visitor, link| {
            let link = Link::<RecordBlock>::from_bits(link);
            match block_bytes(visitor.pool(), link) {
                Some(bytes) => _ = visitor.visit(link, bytes),
                None => {
                    visitor.problem(format!("a record is at {:#x}, outside the pool", link.bits()))
                }
            }
        });
    }

    /// Every block. Nobody changes the index any more.
    pub(crate) fn reachable(&self) -> ReachableBlocks {
        self.pool().reachable(|visitor| self.visit_blocks(visitor))
    }

    /// Gives back the blocks of an index that nothing refers to durably any more (X3).
    pub(crate) fn retire_all(&self, reachable: &ReachableBlocks) {
        // It is the log that is durable.
        self.pool().retire_reachable(reachable, Committed::nothing_to_do(), &self.pin());
    }
}

/// Bytes of the block at `link`; none if it is outside the pool.
fn block_bytes<D: Domain>(pool: &Pool<D>, link: Link<RecordBlock>) -> Option<usize> {
    let head = pool.try_at(link)?;
    Some(size_of::<RecordBlock>() + head.record_bytes.load(pool.domain()) as usize)
}

/// Bytes of the pool that are to be free for a change.
pub(crate) fn room_for(key: &[u8], record: Option<&[u8]>) -> usize {
    // Removals make room, and must go through where there is none.
    record.map_or(0, |record| NODES_PER_CHANGE + 4 * key.len() + 2 * record.len())
}
