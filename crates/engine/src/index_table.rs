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
//! * X5. Before a transaction's record is in the log, room is promised for all that its puts may take, and kept for what
//!   they may take in one piece ([`crate::pieces`]): a record that is there can be applied. What cannot be promised is
//!   refused. Removals take none. An index may grow out of chunks that were promised to others, for it does not know of
//!   its piece: then there are as many in the piece, and whoever finds no room is given all that is kept.
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
//! has leaked is found by walking over what is reachable, before the pool grows. So is the piece that was kept (X5): replay
//! keeps it again, if it can, before other blocks are made of it.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_index::{
    AnyIndex, IndexError, IndexKind, IndexMaker, IndexOptions, IndexRoot, MAX_KEY_BYTES, RoomNeeded,
};
use lapis_pmem::{
    BlockVisitor, Committed, Domain, EXTENT_BYTES, Guard, Link, PCell, Pool, ReachableBlocks,
    persistent,
};
use lapis_tree::ShowOld;

use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::pieces::Pieces;
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
/// The most that is promised at a time: more than there is, and so little that sums of it are numbers.
const MOST_PROMISED_BYTES: usize = usize::MAX / 16;
/// Room in the piece that is kept beyond what an index may take of it: so many chunks may others take of it when it is
/// given back, before the index comes to it.
const PIECE_MARGIN_BYTES: usize = 4 * EXTENT_BYTES;

fn checksum_of(key: &[u8], record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), record)
}

/// An index of a table.
#[derive(Debug)]
pub(crate) struct IndexTable<D: Domain> {
    index: AnyIndex<D, [u8]>,
    root: Link<IndexRoot>,
    largest_record: usize,
    pieces: Arc<Pieces>,
    /// Whether nobody has asked for a piece of an index that takes some: what is put is replayed.
    is_replayed: AtomicBool,
    /// Whether its blocks go: none is kept for it any more. Changed under the lock of the pieces.
    is_gone: AtomicBool,
}

impl<D: Domain> Drop for IndexTable<D> {
    fn drop(&mut self) {
        self.let_go_of_piece();
    }
}

impl<D: Domain> IndexTable<D> {
    /// An empty index, durable, which nothing refers to (X3).
    pub(crate) fn create(
        indexes: &IndexMaker<D, [u8]>,
        pool: &Arc<Pool<D>>,
        kind: IndexKind,
        options: &IndexOptions,
        pieces: &Arc<Pieces>,
        largest_payload: usize,
        identity: u64,
    ) -> Result<Self, EngineError> {
        // Keys come from outside. Nobody there knows which have the same hash if nobody knows the log's identity.
        let hash_seed = if options.hash_seed == 0 { identity } else { options.hash_seed };
        let options = IndexOptions { hash_seed, ..options.clone() };
        let root = pool.fence(indexes.create(kind, pool, &options)?);
        // To the catalog it is a number, and durable by now.
        Self::open(indexes, pool, kind, root.release().bits(), pieces, largest_payload)
    }

    /// The index whose root is there.
    pub(crate) fn open(
        indexes: &IndexMaker<D, [u8]>,
        pool: &Arc<Pool<D>>,
        kind: IndexKind,
        root: u64,
        pieces: &Arc<Pieces>,
        largest_payload: usize,
    ) -> Result<Self, EngineError> {
        let root = Link::from_bits(root);
        let index = indexes.open(kind, Arc::clone(pool), root)?;
        let largest_record = (largest_payload / 4).min(MOST_RECORD_BYTES);
        let is_replayed = AtomicBool::new(piece_bytes(index.room_for(1)) > 0);
        let (pieces, is_gone) = (Arc::clone(pieces), AtomicBool::new(false));
        Ok(Self { index, root, largest_record, pieces, is_replayed, is_gone })
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

    /// Bytes of the pool that are to be free for so many puts, beside what they put, and of the piece that is yet to be kept
    /// for them.
    pub(crate) fn room_for(&self, puts: usize) -> RoomNeeded {
        let room = self.index.room_for(puts);
        let wanted = piece_bytes(room);
        let is_kept = wanted == 0 || self.pieces.has(self.pool(), self.root(), wanted);
        let piece_bytes = if is_kept { 0 } else { wanted };
        RoomNeeded { bytes: room.bytes.min(MOST_PROMISED_BYTES), piece_bytes }
    }

    /// Puts off what the puts could do without ([`lapis_index::Index::put_off_growth`]).
    pub(crate) fn put_off_growth(&self) {
        self.index.put_off_growth();
    }

    /// Keeps what the index may take in one piece for so many puts (X5). The caller changes indexes (X4); `is_alone` says that
    /// nobody else does who may need what is kept for it already.
    pub(crate) fn keep_piece(
        &self,
        puts: usize,
        is_alone: impl FnOnce() -> bool,
    ) -> Result<(), EngineError> {
        let wanted = piece_bytes(self.index.room_for(puts));
        if wanted == 0 {
            return Ok(());
        }
        self.is_replayed.store(false, Ordering::Relaxed);
        let is_gone = || self.is_gone.load(Ordering::Relaxed);
        self.pieces.keep(self.pool(), self.root(), wanted, is_alone, is_gone)
    }

    fn let_go_of_piece(&self) {
        // Another index may have its root there by now.
        if !self.is_gone.load(Ordering::Relaxed) {
            let gone = || self.is_gone.store(true, Ordering::Relaxed);
            self.pieces.let_go(self.pool(), self.root(), gone);
        }
    }

    /// Gives a key a record, durably.
    pub(crate) fn put(
        &self,
        key: &[u8],
        record: &[u8],
        old: Option<ShowOld<'_>>,
    ) -> Result<(), EngineError> {
        let pinned = self.pin();
        self.show(key, &pinned, old);
        if self.is_replayed.load(Ordering::Relaxed) && !self.pool().needs_reclaim() {
            // Whoever committed this had it. What has gone on without it since does so now.
            _ = self.keep_piece(1, || true);
        }
        match self.put_block(key, record, &pinned) {
            // X5: this is what they are kept for.
            Err(EngineError::Index(IndexError::Alloc(_))) => {
                self.pieces.without(self.pool(), || self.put_block(key, record, &pinned))
            }
            done => done,
        }
    }

    /// Gives a key a record in a new block. Without room for it, or for the index, everything is as it was.
    fn put_block(
        &self,
        key: &[u8],
        record: &[u8],
        pinned: &Guard<'_, D>,
    ) -> Result<(), EngineError> {
        let (pool, domain) = (self.pool(), self.pool().domain());
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
        self.retire(outcome.previous, outcome.committed, pinned);
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
        self.visit_until(|key, record| {
            visit(key, record);
            ControlFlow::Continue(())
        });
    }

    /// The same, until it breaks.
    pub(crate) fn visit_until(
        &self,
        mut visit: impl FnMut(&[u8], Result<&[u8], EngineError>) -> ControlFlow<()>,
    ) {
        let _pinned = self.pin();
        self.index.for_each(&mut |key, link| visit(key, self.read(key, link)));
    }

    /// What is wrong with the index itself.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.index.check()
    }

    /// Tells of every block.
    pub(crate) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.pieces.visit(self.root(), visitor);
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

    /// Every block, for who gives them back. Nobody changes the index any more; whoever is about to, and has not seen yet that
    /// it may not, keeps no piece for it.
    pub(crate) fn reachable(&self) -> ReachableBlocks {
        self.let_go_of_piece();
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

/// Bytes of the piece that is to be kept for an index that may take so much.
fn piece_bytes(room: RoomNeeded) -> usize {
    match room.piece_bytes.min(MOST_PROMISED_BYTES) {
        0 => 0,
        bytes => (bytes + PIECE_MARGIN_BYTES).next_multiple_of(EXTENT_BYTES),
    }
}

/// Bytes of the pool that are to be free for what a put puts.
pub(crate) fn room_for_entry(key: &[u8], record: &[u8]) -> usize {
    4 * key.len() + 2 * record.len()
}

/// Bytes of the pool that are to be free for making an index for so many entries.
pub(crate) fn room_for_index(expected_entries: usize) -> usize {
    expected_entries.saturating_mul(64).min(MOST_PROMISED_BYTES)
}

#[cfg(test)]
mod tests {
    use lapis_pmem::{FlushMethod, Hardware, Region};

    use super::*;

    const LARGEST: usize = 256 << 10;

    /// One that does not grow.
    fn pool() -> Arc<Pool<Hardware>> {
        let region = Region::anonymous(8 << 20, 8 << 20).unwrap();
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        Arc::new(Pool::create(region, domain).unwrap())
    }

    fn index(
        pool: &Arc<Pool<Hardware>>,
        kind: IndexKind,
        pieces: &Arc<Pieces>,
    ) -> IndexTable<Hardware> {
        let (indexes, options) = (&lapis_index::INDEXES_HERE, IndexOptions::DEFAULT);
        IndexTable::create(indexes, pool, kind, &options, pieces, LARGEST, 1).unwrap()
    }

    #[test]
    fn who_comes_late_to_an_index_whose_blocks_go_keeps_no_piece_and_frees_none_again() {
        let (pool, pieces) = (pool(), Arc::default());
        let going = index(&pool, IndexKind::LevelHash, &pieces);
        going.keep_piece(1, || true).unwrap();
        let reachable = going.reachable();
        // More puts than it has room for: a larger one.
        going.keep_piece(5_000, || true).unwrap();
        going.retire_all(&reachable);
        drop(going);
        // What has been retired may still have readers.
        let audit = pool.audit(&pool.reachable(|_| ()));
        assert!(audit.is_clean(), "{audit:?}");
    }

    #[test]
    fn a_record_for_which_there_is_no_room_is_put_where_a_piece_was_kept_for_another_index() {
        let (pool, pieces) = (pool(), Arc::default());
        let growing = index(&pool, IndexKind::LevelHash, &pieces);
        let other = index(&pool, IndexKind::Wort, &pieces);
        growing.keep_piece(1, || true).unwrap();
        let mut taken = Vec::new();
        for bytes in [EXTENT_BYTES, 4096, 512, 64] {
            let more = || pool.allocate_with_tail::<PCell<u64>>(bytes - 8).ok();
            taken.extend(std::iter::from_fn(more));
        }
        other.put(b"key", &[7; 3000], None).unwrap();
        let mut found = Vec::new();
        assert!(other.get(b"key", &mut found).unwrap());
        assert_eq!(found, [7; 3000]);
    }
}
