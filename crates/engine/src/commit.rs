//! Committing: stripes, the turn, the record, the trees.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use lapis_blocks::block_log::{BlockLogError, Durability, Lsn};
use lapis_index::RoomNeeded;
use lapis_pmem::{Domain, host_lock};
use lapis_tree::ShowOld;

use crate::engine::Shared;
use crate::error::EngineError;
use crate::index_table::{IndexTable, room_for_entry};
use crate::log::kind;
use crate::mutants;
use crate::persistent_memory::Change;
use crate::reads::{ReadSet, WrittenKeys};
use crate::record;
use crate::stripes::hash_of;
use crate::tables::{CATALOG, Table, TableId, chunks_key};
use crate::write_set::WriteSet;

/// After so many writes to trees it is looked again whether the log has room for what trees log.
const WRITES_BETWEEN_LOOKS: usize = 16;
/// What is logged again goes into records of this part of the largest: where a segment of the log ends, less of it is left.
const PIECES: usize = 8;
/// How often a checkpoint makes room for one record before it is given up.
const MOST_CHECKPOINTS: usize = 4;

/// What a thread keeps of the memory of a record, for its next one.
const SPARE_BYTES: usize = 1 << 20;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A write, in order of table and key.
#[derive(Debug)]
pub(crate) struct Write<'w, D: Domain> {
    pub(crate) table: &'w Arc<Table<D>>,
    pub(crate) key: &'w [u8],
    pub(crate) value: Option<&'w [u8]>,
}

impl<D: Domain> Clone for Write<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for Write<'_, D> {}

impl<D: Domain> Write<'_, D> {
    fn id(&self) -> TableId {
        self.table.id()
    }

    pub(crate) fn is_to_index(&self) -> bool {
        self.table.index_kind().is_some()
    }

    fn hash(&self) -> u64 {
        hash_of(self.id(), self.key)
    }

    fn bytes(&self) -> u64 {
        record::entry_bytes(self.key, self.value.map(<[u8]>::len))
    }
}

/// The writes of a set, in order.
pub(crate) fn writes_of<D: Domain>(set: &WriteSet<D>) -> Vec<Write<'_, D>> {
    let mut writes = Vec::with_capacity(set.len());
    for table in set.tables() {
        let keys = table.keys.iter();
        writes.extend(keys.map(|(key, value)| Write { table: &table.table, key, value }));
    }
    writes
}

/// The indexes that writes, in order of table, are to, and for each how many puts there are and how many bytes of persistent
/// memory is to be free for what they put.
fn puts_to_indexes<'w, D: Domain>(
    writes: &'w [Write<'_, D>],
) -> impl Iterator<Item = (&'w IndexTable<D>, usize, usize)> {
    writes.chunk_by(|one, next| one.id() == next.id()).filter_map(|same| {
        let index = same[0].table.contents().as_index()?;
        let puts = same.iter().filter_map(|write| Some(room_for_entry(write.key, write.value?)));
        let (count, bytes) = puts
            .fold((0, 0_usize), |(count, bytes), of_one| (count + 1, bytes.saturating_add(of_one)));
        Some((index, count, bytes))
    })
}

/// What the writes to indexes may take of persistent memory; none if there are none.
fn room_in_pool<D: Domain>(writes: &[Write<'_, D>]) -> Option<RoomNeeded> {
    let rooms = puts_to_indexes(writes).map(|(index, puts, bytes)| match puts {
        // Removals make room, and must go through where there is none.
        0 => RoomNeeded::default(),
        puts => index.room_for(puts).and(RoomNeeded { bytes, piece_bytes: 0 }),
    });
    rooms.reduce(RoomNeeded::and)
}

/// Writes as they go to the log: a record that commits, and the parts before it.
struct Encoded {
    parts: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl<D: Domain> Shared<D> {
    /// In records of so many bytes, if no write is longer.
    fn encode(&self, writes: &[Write<'_, D>], largest: usize) -> Encoded {
        let bytes: u64 = writes.iter().map(Write::bytes).sum();
        let one = bytes as usize + record::HEADER_BYTES;
        let token = if one <= largest { 0 } else { self.next_token() };
        let mut parts = Vec::new();
        // A thread that ends has none any more.
        let mut last = SPARE.try_with(Cell::take).unwrap_or_default();
        last.reserve(one.min(largest));
        record::begin(&mut last, token);
        for write in writes {
            let has_writes = last.len() > record::HEADER_BYTES;
            if has_writes && last.len() + write.bytes() as usize > largest {
                let next = Vec::with_capacity(largest);
                parts.push(std::mem::replace(&mut last, next));
                record::begin(&mut last, token);
            }
            record::push(&mut last, write.id(), write.key, write.value);
        }
        Encoded { parts, last }
    }

    /// Commits writes, which are in order of table and key, and of which each key is one; what was read and since
    /// when, if anything was. Returns the transaction's LSN.
    pub(crate) fn commit(
        &self,
        writes: &[Write<'_, D>],
        reads: Option<(&ReadSet, u64)>,
        durability: Durability,
    ) -> Result<u64, EngineError> {
        self.commit_with_log_kept(None, writes, reads, durability)
    }

    /// The same, by who has the log kept from `own` on.
    pub(crate) fn commit_with_log_kept(
        &self,
        own: Option<u64>,
        writes: &[Write<'_, D>],
        reads: Option<(&ReadSet, u64)>,
        durability: Durability,
    ) -> Result<u64, EngineError> {
        // Who does not wait is not asked how long it took.
        let begun = (durability == Durability::Immediate).then(Instant::now);
        let stripes = self.stripes.of(writes.iter().map(Write::hash));
        let bytes: u64 = writes.iter().map(Write::bytes).sum();
        for _ in 0..MOST_CHECKPOINTS {
            let again = if writes.len() > WRITES_BETWEEN_LOOKS { bytes } else { 0 };
            let room = self.keep_room_to_log_again(again);
            self.keep_redo_short()?;
            self.make_room(bytes, own)?;
            // For what the trees may take, and the indexes (X4).
            let _room = self.promise_room_for(writes)?;
            let _change = self.promise_room_in_pool(writes)?;
            let held = self.stripes.hold(&self.domain, &stripes);
            let committed = match self.guarded(|| self.replaced_long_values(writes))? {
                none if none.is_empty() => self.commit_held(writes, reads, &stripes, durability),
                replaced => {
                    let listings: Vec<_> = replaced.iter().copied().map(chunks_key).collect();
                    let listings = listings.iter().map(|key| Write {
                        table: &self.catalog,
                        key,
                        value: Some(&[]),
                    });
                    let all: Vec<_> = listings.chain(writes.iter().copied()).collect();
                    let committed = self.commit_held(&all, reads, &stripes, durability);
                    if let Ok(lsn) = committed {
                        let replaced = replaced.into_iter().map(|number| (lsn, number));
                        host_lock::lock(&self.domain, &self.unwanted).extend(replaced);
                    }
                    committed
                }
            };
            drop((held, room));
            let lsn = match committed {
                Ok(lsn) => lsn,
                Err(EngineError::Log(BlockLogError::Full { .. })) => {
                    self.checkpoint()?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.domain.commits(mutants::ACKNOWLEDGED_BEFORE_SYNC) {
                let waited = self.log.block_log().commit(Lsn::from_number(lsn), durability);
                waited.map_err(|error| self.order.stop(&error.to_string()))?;
            }
            self.count_commit(writes);
            begun.into_iter().for_each(|begun| self.counters.commits.count(begun.elapsed()));
            return Ok(lsn);
        }
        Err(EngineError::TransactionTooLong { bytes, most: self.log.free_bytes() })
    }

    /// Begins to change indexes, if there are writes to any, with room for all that they may take (X4, X5).
    fn promise_room_in_pool(
        &self,
        writes: &[Write<'_, D>],
    ) -> Result<Option<Change<'_, D>>, EngineError> {
        let Some(mut room) = room_in_pool(writes) else { return Ok(None) };
        let mut change = self.change_indexes(room.in_all()).or_else(|error| {
            if !error.is_no_room() {
                return Err(error);
            }
            puts_to_indexes(writes).for_each(|(index, ..)| index.put_off_growth());
            match room_in_pool(writes) {
                Some(less) if less.in_all() < room.in_all() => {
                    room = less;
                    self.change_indexes(less.in_all())
                }
                _ => Err(error),
            }
        })?;
        for (index, puts, _) in puts_to_indexes(writes).filter(|&(_, puts, _)| puts > 0) {
            index.keep_piece(puts, || change.is_alone())?;
        }
        // What is kept is not free.
        change.has_taken(room.piece_bytes);
        Ok(Some(change))
    }

    fn count_commit(&self, writes: &[Write<'_, D>]) {
        self.counters.leaf_accesses.add(writes.len() as u64);
        let users = writes.iter().filter(|write| write.id() != CATALOG);
        let bytes = users.map(|write| write.key.len() + write.value.map_or(0, <[u8]>::len));
        self.counters.written_bytes.add(bytes.sum::<usize>() as u64);
    }

    /// Orders writes and changes the trees. The stripes are held.
    fn commit_held(
        &self,
        writes: &[Write<'_, D>],
        reads: Option<(&ReadSet, u64)>,
        stripes: &[usize],
        durability: Durability,
    ) -> Result<u64, EngineError> {
        let (lsn, keep) = self.append(writes, reads)?;
        if durability != Durability::Eventual {
            self.stripes.note(&self.domain, stripes, lsn);
        }
        // X1
        if writes.iter().any(Write::is_to_index) && !self.domain.commits(mutants::INDEX_BEFORE_LOG)
        {
            let durable = self.log.wait_for(lsn);
            durable.map_err(|error| self.order.stop(&error.to_string()))?;
        }
        self.guarded(|| self.apply(writes, lsn, keep)).map_err(|error| match error {
            EngineError::Memory(_) => error,
            error => {
                self.order.stop(&format!("a committed transaction could not be applied: {error}"))
            }
        })?;
        self.order.has_applied(lsn);
        Ok(lsn)
    }

    /// Puts the writes into the log, validated. Returns the LSN, and whether what they replace is to be kept.
    fn append(
        &self,
        writes: &[Write<'_, D>],
        reads: Option<(&ReadSet, u64)>,
    ) -> Result<(u64, bool), EngineError> {
        let encoded = self.encode(writes, self.log.block_log().largest_payload_bytes());
        let own = reads.map(|(_, since)| since);
        let written = || {
            let mut written = WrittenKeys::default();
            for write in writes {
                written.add(write.id(), write.key, write.hash());
            }
            Arc::new(written)
        };
        // Outside of the turn, if it is likely to be wanted.
        let prepared = self.order.has_transactions(own).then(written);
        let first = self.append_parts(&encoded)?;
        let appended = (|| {
            let turn = self.order.turn()?;
            for write in writes {
                if !self.domain.commits(mutants::DROPPED_TABLE_WRITTEN) {
                    write.table.check_not_dropped()?;
                }
            }
            if let Some((reads, since)) = reads
                && !self.domain.commits(mutants::READS_NOT_VALIDATED)
            {
                turn.validate(reads, since)?;
            }
            let keep = turn.has_readers(own);
            let lsn = self.log.block_log().append(kind::COMMIT, &[&encoded.last])?.number();
            let is_wanted = turn.has_transactions(own);
            let written = is_wanted.then(|| prepared.unwrap_or_else(written));
            turn.take(lsn, written, first);
            Ok((lsn, keep))
        })();
        if let Some(first) = first {
            self.order.let_go_of_log(first);
        }
        if encoded.last.capacity() <= SPARE_BYTES {
            _ = SPARE.try_with(|spare| spare.set(encoded.last));
        }
        appended
    }

    /// Appends the parts before the last, if there are any; returns from where on the log is kept for them.
    fn append_parts(&self, encoded: &Encoded) -> Result<Option<u64>, EngineError> {
        if encoded.parts.is_empty() {
            return Ok(None);
        }
        let first = self.order.keep_log();
        for part in &encoded.parts {
            if let Err(error) = self.log.block_log().append(kind::PART, &[part]) {
                self.order.let_go_of_log(first);
                return Err(error.into());
            }
        }
        if self.domain.commits(mutants::PARTS_NOT_KEPT) {
            self.order.let_go_of_log(first);
            return Ok(None);
        }
        Ok(Some(first))
    }

    /// Changes the trees.
    fn apply(&self, writes: &[Write<'_, D>], lsn: u64, keep: bool) -> Result<(), EngineError> {
        let mut rest = writes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WRITES_BETWEEN_LOOKS));
            for same in now.chunk_by(|a, b| a.id() == b.id()) {
                self.apply_to_table(same, lsn, keep)?;
            }
            rest = later;
            let has_room = || self.log.free_bytes() >= self.room_for_structure();
            let goes_on = rest.is_empty() || has_room() || self.grow_log()? && has_room();
            if !goes_on {
                self.log_again(rest, lsn)?;
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    fn apply_to_table(
        &self,
        writes: &[Write<'_, D>],
        lsn: u64,
        keep: bool,
    ) -> Result<(), EngineError> {
        let Some(first) = writes.first() else { return Ok(()) };
        let (contents, versions) = (first.table.contents(), first.table.versions());
        let keep = keep && !self.domain.commits(mutants::VERSIONS_NOT_KEPT);
        let mut kept = Vec::new();
        let mut keep_old = |key: &[u8], old: Option<&[u8]>| {
            versions.keep(&self.domain, key, lsn, old);
            kept.push(Box::from(key));
        };
        for run in writes.chunk_by(|one, next| one.value.is_some() && next.value.is_some()) {
            let old: Option<ShowOld<'_>> = if keep { Some(&mut keep_old) } else { None };
            match run {
                [write] => contents.write(write.key, write.value, lsn, old)?,
                puts => {
                    let records = puts.iter().filter_map(|put| Some((put.key, put.value?, lsn)));
                    contents.put_all(records, old)?;
                }
            }
        }
        if !kept.is_empty() {
            self.versions.push(&self.domain, lsn, versions, kept);
        }
        Ok(())
    }

    /// Puts what a committed transaction has not yet written to trees into the log again, so that it can be cut
    /// behind the transaction's record: nobody else writes these keys meanwhile.
    fn log_again(&self, rest: &[Write<'_, D>], lsn: u64) -> Result<(), EngineError> {
        let pieces = if self.domain.commits(mutants::NO_ROOM_TO_LOG_AGAIN) { 1 } else { PIECES };
        let largest = self.log.block_log().largest_payload_bytes() / pieces;
        let encoded = self.encode(rest, largest);
        let first = self.append_parts(&encoded)?;
        let turn = self.order.turn();
        let again = turn.and_then(|turn| {
            let again = self.log.block_log().append(kind::COMMIT, &[&encoded.last])?.number();
            turn.take_again(lsn, again, first);
            Ok(())
        });
        if let Some(first) = first {
            self.order.let_go_of_log(first);
        }
        again
    }
}
