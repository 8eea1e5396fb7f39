//! A store that is open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lapis_blocks::block_log::Durability;
use lapis_device::Modelled;
use lapis_engine::{
    BackupError, Engine, EngineError, IndexKind, KeyRange, LeafLayout, Snapshot, Table, TimeToLive,
    Transaction, verify_backup,
};
use lapis_pmem::{AuditReport, Pool};

use super::Course;
use super::operation::{
    StoreOperation, StoreState, TABLES, Write, extra_table, key, loaded, loaded_table,
};
use super::site::{Site, Tiers};
use super::taken_back::{TakenBack, fill};
use crate::subject::{Live, text};

/// The same of further tables, of which one has no order.
const EXTRA_KINDS: [IndexKind; 3] = [IndexKind::WbTree, IndexKind::PClht, IndexKind::FpTree];
/// Of an entry that has expired when it is put.
pub(crate) const EXPIRED: TimeToLive = TimeToLive::For(Duration::ZERO);
/// Longer values are written, and read, in pieces of so many bytes.
const PIECE_BYTES: usize = 5000;

/// An open store.
#[derive(Debug)]
pub struct LiveStore {
    pub(super) engine: Option<Engine<Modelled>>,
    pub(super) site: Site,
    pub(super) tiers: Tiers,
    pub(super) course: Course,
    /// What has happened before it was opened again.
    pub(super) before: Vec<(&'static str, u64)>,
    /// Operations for which the disk had no room.
    pub(super) refused: u64,
    pub(super) was_refused: bool,
    /// Entries that were taken away because they had expired.
    pub(super) expired: u64,
    /// Values that were written piece by piece.
    pub(super) streamed: u64,
    /// What a course counts in which much is taken back.
    pub(super) taken_back: TakenBack,
}

impl LiveStore {
    pub(super) fn engine(&self) -> Result<&Engine<Modelled>, String> {
        self.engine.as_ref().ok_or_else(|| "the engine could not be opened again".to_owned())
    }

    pub(super) fn transact(
        &self,
        writes: &[Write],
        commit: Option<Durability>,
    ) -> Result<(), EngineError> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let mut transaction = engine.begin()?;
        self.write(engine, &mut transaction, writes)?;
        commit.map_or(Ok(()), |durability| transaction.commit(durability).map(|_| ()))
    }

    pub(super) fn write(
        &self,
        engine: &Engine<Modelled>,
        transaction: &mut Transaction<Modelled>,
        writes: &[Write],
    ) -> Result<(), EngineError> {
        let tables = TABLES.map(|name| engine.table(name));
        for (table, number, made_of) in writes {
            let Ok(table) = &tables[*table] else { continue };
            match *made_of {
                Some((bytes, number_of_value)) => {
                    transaction.put(table, &key(*number), &vec![number_of_value; bytes])?;
                }
                None if self.course == Course::Bulk && number % 2 == 1 => {
                    let value = vec![1; if number % 4 == 1 { 1500 } else { 50 }];
                    transaction.put_with(table, &key(*number), &value, EXPIRED)?;
                }
                None => _ = transaction.remove(table, &key(*number))?,
            }
        }
        Ok(())
    }

    /// A further table, which is made if there is none.
    pub(super) fn extra_table(
        &self,
        engine: &Engine<Modelled>,
        number: u8,
    ) -> Result<Arc<Table<Modelled>>, EngineError> {
        let name = extra_table(number);
        let kind = EXTRA_KINDS[usize::from(number)];
        engine.table(&name).or_else(|_| self.tiers.create_table(engine, &name, kind))
    }

    /// Writes a value piece by piece, and gives up another half-way.
    fn stream(&self, (table, number, made_of): &Write) -> Result<(), EngineError> {
        let (Some(engine), Some((bytes, of))) = (&self.engine, *made_of) else { return Ok(()) };
        let table = engine.table(TABLES[*table])?;
        let value = vec![of; bytes];
        let begin = || engine.value_writer(&table, &key(*number), TimeToLive::Forever);
        let (mut given_up, mut writer) = (begin()?, begin()?);
        for piece in value.chunks(PIECE_BYTES) {
            given_up.append(piece)?;
            writer.append(piece)?;
        }
        drop(given_up);
        writer.finish(Durability::Immediate).map(|_| ())
    }

    fn attempt(&mut self, operation: &StoreOperation) -> Result<(), EngineError> {
        let Some(engine) = self.engine.clone() else { return Ok(()) };
        match operation {
            StoreOperation::Commit(writes) => self.transact(writes, Some(Durability::Immediate)),
            StoreOperation::Abort(writes) => self.transact(writes, None),
            StoreOperation::CreateTable(number) => {
                let table = self.extra_table(&engine, *number)?;
                if engine.get(&table, b"first")?.is_none() {
                    engine.put(&table, b"first", &[1], Durability::Immediate)?;
                }
                Ok(())
            }
            StoreOperation::DropTable(number) => match engine.drop_table(&extra_table(*number)) {
                Err(EngineError::NoSuchTable { .. }) => Ok(()),
                outcome => outcome,
            },
            StoreOperation::Maintain => engine.maintain().map(|_| ()),
            StoreOperation::Checkpoint => engine.checkpoint(),
            StoreOperation::Reopen => engine.close(),
            StoreOperation::Compact => engine.compact().map(|_| ()),
            StoreOperation::LoadOrDrop(number) => {
                let name = loaded_table(*number);
                match engine.drop_table(&name) {
                    Err(EngineError::NoSuchTable { .. }) => {
                        let leaves = [LeafLayout::Sorted, LeafLayout::Hashed];
                        let leaves = leaves[usize::from(*number) % 2];
                        let mut load = engine.begin_load(&name, leaves)?;
                        for (key, (bytes, of)) in loaded(*number) {
                            load.push(&key, &vec![of; bytes])?;
                        }
                        load.finish().map(|_| ())
                    }
                    outcome => outcome,
                }
            }
            StoreOperation::Stream(write) => {
                self.streamed += 1;
                self.stream(write)
            }
            StoreOperation::RemoveExpired => {
                self.expired += engine.remove_expired()?;
                Ok(())
            }
            StoreOperation::BackUp(write) => {
                let backup = self.back_up(&engine, write)?;
                verify_backup(&backup[..]).map(|_| ()).map_err(of_backup)
            }
            StoreOperation::RollBack(what) => self.roll_back(&engine, what),
            StoreOperation::CommitBesideReader(writes) => {
                self.commit_beside_reader(&engine, writes)
            }
            StoreOperation::DropBeside(number, writes) => {
                self.drop_beside(&engine, *number, writes)
            }
            StoreOperation::Fill(number, loaded_into) => {
                let table = self.extra_table(&engine, *number)?;
                fill(&engine, &table, &loaded(*loaded_into))
            }
            StoreOperation::Settle => self.settle(&engine),
            StoreOperation::Restore(write) => self.restore(&engine, write),
        }
    }

    /// A transaction that need not be durable, and a backup, which makes it so.
    pub(super) fn back_up(
        &self,
        engine: &Engine<Modelled>,
        write: &Write,
    ) -> Result<Vec<u8>, EngineError> {
        self.transact(std::slice::from_ref(write), Some(Durability::Eventual))?;
        let mut backup = Vec::new();
        engine.backup(&mut backup).map_err(of_backup)?;
        Ok(backup)
    }
}

/// What the engine refused; or what is wrong with a backup.
pub(super) fn of_backup(error: BackupError) -> EngineError {
    match error {
        BackupError::Engine(error) => error,
        error => EngineError::Damaged { what: error.to_string() },
    }
}

/// Whether a value is the same when it is read in pieces.
fn is_same_in_pieces(
    snapshot: &Snapshot<Modelled>,
    table: &Arc<Table<Modelled>>,
    key: &[u8],
    value: &[u8],
) -> Result<bool, String> {
    let reader = snapshot.value_reader(table, key).map_err(text)?;
    let Some(mut reader) = reader else { return Ok(false) };
    let (mut rest, mut piece) = (value, [0; PIECE_BYTES]);
    loop {
        match reader.read(&mut piece).map_err(text)? {
            0 => return Ok(rest.is_empty()),
            bytes => match rest.strip_prefix(&piece[..bytes]) {
                Some(left) => rest = left,
                None => return Ok(false),
            },
        }
    }
}

/// What is in all tables of an engine.
pub(super) fn contents(engine: &Engine<Modelled>) -> Result<StoreState, String> {
    contents_of(&engine.tables(), &engine.snapshot().map_err(text)?)
}

/// What is in tables, in the state that a snapshot has of them.
pub(super) fn contents_of(
    tables: &[Arc<Table<Modelled>>],
    snapshot: &Snapshot<Modelled>,
) -> Result<StoreState, String> {
    let mut state = StoreState::new();
    for table in tables {
        let mut contents = BTreeMap::new();
        let entries: Result<Vec<_>, _> = match table.is_ordered() {
            true => snapshot.scan(table, KeyRange::all()).map_err(text)?.collect(),
            // Only a further table has no order.
            false => {
                let first = snapshot.get(table, b"first").map_err(text)?;
                Ok(first.map(|value| (b"first".to_vec(), value)).into_iter().collect())
            }
        };
        for (key, bytes) in entries.map_err(text)? {
            let number = bytes.first().copied().unwrap_or(0);
            let in_pieces = bytes.len() > PIECE_BYTES;
            // All of them, so that it is done many at a time.
            let differs = bytes.iter().fold(0, |differs, byte| differs | byte ^ number) != 0;
            if differs || in_pieces && !is_same_in_pieces(snapshot, table, &key, &bytes)? {
                return Err(format!("a torn value for {}", key.escape_ascii()));
            }
            contents.insert(key, (bytes.len(), number));
        }
        // Making a further table is two steps, each atomic; the first alone is a crash between.
        if !contents.is_empty() || !table.name().starts_with("extra") {
            state.insert(table.name().to_owned(), contents);
        }
    }
    Ok(state)
}

impl Live<StoreOperation, StoreState> for LiveStore {
    fn perform(&mut self, operation: &StoreOperation) -> Result<(), String> {
        let may_be_refused = self.course == Course::FullDisk && operation.takes_room();
        self.was_refused = match self.attempt(operation) {
            Err(error) if may_be_refused && error.is_no_room() => true,
            outcome => outcome.map(|()| false).map_err(text)?,
        };
        self.refused += u64::from(self.was_refused);
        if matches!(operation, StoreOperation::Reopen | StoreOperation::Settle) {
            self.before = self.events();
            self.engine = None;
            self.engine = self.site.open()?;
        }
        if matches!(operation, StoreOperation::Settle) {
            self.check_is_settled()?;
        }
        Ok(())
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn observe(&self) -> Result<StoreState, String> {
        contents(self.engine()?)
    }

    fn check(&self) -> Vec<String> {
        match self.engine() {
            Ok(engine) => engine.check(),
            Err(what) => vec![what],
        }
    }

    fn events(&self) -> Vec<(&'static str, u64)> {
        let Some(engine) = &self.engine else { return self.before.clone() };
        let lapis_engine::Statistics { buffer, trees, log, checkpoints, .. } = engine.statistics();
        let (tier, mut events) = (buffer.tier, Vec::new());
        let rounds = engine.log().end().number() / engine.log().most_capacity_bytes();
        events.extend([("checkpoints", checkpoints), ("syncs of the log", log.syncs)]);
        if !self.tiers.log_in_pool {
            events.push(("growths of the log", log.growths));
        }
        if !self.tiers.index_tables {
            events.extend([
                ("splits", trees.splits),
                ("merges", trees.merges),
                ("splits of hashed leaves", trees.hashed_splits),
                ("merges of hashed leaves", trees.hashed_merges),
                ("evictions", buffer.evictions),
                ("batches of pages", buffer.batches),
            ]);
        }
        if self.course != Course::Transactions {
            events.push(("pages that compaction moves", trees.moves));
        }
        if self.site.options.placement.has_persistent_memory() {
            events.extend([
                ("admissions to persistent memory", tier.admissions),
                ("denials by persistent memory", tier.denials),
                ("loads from persistent memory", tier.loads),
                ("evictions from persistent memory", tier.evictions),
                ("pages from persistent memory to the SSD", tier.pages_to_ssd),
            ]);
        }
        if let Some(migration) = tier.migration {
            events.extend([
                ("pages read in persistent memory", migration.dram_reads.otherwise),
                ("pages brought to DRAM to be read", migration.dram_reads.so),
                ("pages changed in persistent memory", tier.writes_in_place),
                ("pages brought to DRAM to be changed", migration.dram_writes.so),
                ("pages from the SSD to persistent memory", tier.loads_from_ssd),
                ("pages from the SSD past persistent memory", migration.memory_reads.otherwise),
                ("pages from DRAM past persistent memory", migration.memory_writes.otherwise),
            ]);
            if migration.chances.tuned_each.is_some() {
                events.push(("rounds of tuning", migration.rounds));
            }
        }
        if self.site.options.placement.moves_lines() {
            events.push(("lines loaded", tier.lines_loaded));
            events.push(("lines written", tier.lines_written));
            events.push(("mini pages", tier.mini_loads));
            events.push(("promotions of mini pages", tier.promotions));
        }
        for (event, before) in &self.before {
            let counted = events.iter_mut().find(|(name, _)| name == event);
            if let Some((_, count)) = counted {
                *count += before;
            }
        }
        if self.course == Course::FullDisk {
            events.push(("operations refused for want of room", self.refused));
        }
        if self.course == Course::Bulk {
            events.push(("expired entries that are taken away", self.expired));
            events.push(("values that are written in pieces", self.streamed));
        }
        if self.course == Course::TakenBack {
            events.extend(self.taken_back.events());
        }
        // The log's positions go on when it is opened again.
        events.push(("rounds of the log", rounds));
        events
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        self.engine.as_ref().map_or_else(AuditReport::default, Engine::reclaim_and_audit)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        self.site.storage.pool.as_deref()
    }
}
