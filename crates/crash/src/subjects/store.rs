//! The store: transactions over trees, with pages on a modelled SSD and in modelled persistent memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lapis_blocks::block_log::{BlockLogOptions, Durability};
use lapis_buffer::{BufferOptions, SpaceOptions};
use lapis_device::Modelled;
use lapis_engine::{
    BackupError, Clock, Engine, EngineError, EngineOptions, IndexKind, IndexOptions, KeyRange,
    LeafLayout, PersistentMemoryOptions, Placement, Snapshot, Table, TableStructure, TimeToLive,
    verify_backup,
};
use lapis_pmem::{AuditReport, BlockDevice, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const TABLES: [&str; 2] = ["left", "right"];
/// What they are in, if they are in indexes: one that orders what was flushed before, and one that does not.
const KINDS: [IndexKind; 2] = [IndexKind::Wort, IndexKind::FastFair];
/// The same of further tables, of which one has no order.
const EXTRA_KINDS: [IndexKind; 3] = [IndexKind::WbTree, IndexKind::PClht, IndexKind::FpTree];
const KEYS: u8 = 60;
/// A ring of 128 KiB, which comes round, and its headers.
const LOG_BLOCKS: u64 = 2 + 32;
/// The same, before it has grown.
const FIRST_LOG_BLOCKS: u64 = 2 + 16;
/// Blocks that a disk has which is often full: the journal of pages, the reserve, and not much more.
const FULL_DISK_BLOCKS: u64 = 120;
/// There, so many operations fill it, as many make room, and so on.
const FILLING: usize = 20;
/// The time of explorations, which stands still, so that all recoveries have the same.
static NOW_MS: AtomicU64 = AtomicU64::new(1000);
/// Of an entry that has expired when it is put.
pub(crate) const EXPIRED: TimeToLive = TimeToLive::For(Duration::ZERO);
/// Longer values are written, and read, in pieces of so many bytes.
const PIECE_BYTES: usize = 5000;

/// What an engine that is checked lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiers {
    pub(crate) placement: Placement,
    /// The log is in persistent memory.
    pub(crate) log_in_pool: bool,
    /// Tables are in persistent indexes.
    pub(crate) index_tables: bool,
}

impl Tiers {
    /// Pages and log on SSDs.
    pub(crate) const SSD: Self =
        Self { placement: Placement::Ssd, log_in_pool: false, index_tables: false };

    /// Log, and pages, in persistent memory.
    pub(crate) const fn in_pool(placement: Placement) -> Self {
        Self { placement, log_in_pool: true, index_tables: false }
    }

    /// The log and tables in persistent memory, what is left of pages on an SSD.
    pub(crate) const NVM_DIRECT: Self =
        Self { placement: Placement::Ssd, log_in_pool: true, index_tables: true };

    pub(crate) fn pool_bytes(self) -> usize {
        match (self.log_in_pool, self.index_tables) {
            (_, true) => 4 << 20,
            (true, false) => 2 << 20,
            (false, false) => 0,
        }
    }

    /// Makes a table: in an index of this kind, or in a tree with leaves that are hashed unless it is the first.
    pub(crate) fn create_table(
        self,
        engine: &Engine<Modelled>,
        name: &str,
        kind: IndexKind,
    ) -> Result<Arc<Table<Modelled>>, EngineError> {
        let leaves = if name == TABLES[0] { LeafLayout::Sorted } else { LeafLayout::Hashed };
        let structure = match self.index_tables {
            true => TableStructure::Index(kind, &IndexOptions::DEFAULT),
            false => TableStructure::Tree(leaves),
        };
        engine.create_table_with(name, structure, None)
    }

    pub(crate) fn device_blocks(self) -> Vec<u64> {
        if self.log_in_pool { vec![1] } else { vec![1, FIRST_LOG_BLOCKS] }
    }

    /// Pages of 4 KiB in as few frames as do, and a short log.
    fn options(self) -> EngineOptions {
        let mut options = EngineOptions { placement: self.placement, ..EngineOptions::new(0xE4) };
        options.buffer = BufferOptions {
            frames: 16,
            mini_frames: 8,
            most_changed_frames: 8,
            swizzling: true,
            space: SpaceOptions { page_bytes: 4096, batch_pages: 8 },
        };
        let (segment_bytes, batch_bytes) = (32 << 10, 32 << 10);
        let most_bytes = if self.log_in_pool { 0 } else { 128 << 10 };
        options.log = BlockLogOptions { identity: 0xE4, segment_bytes, batch_bytes, most_bytes };
        options.memory = PersistentMemoryOptions { log_blocks: LOG_BLOCKS, frames: 12, lanes: 2 };
        options.stripes = 16;
        options.clock = Clock::Set(&NOW_MS);
        options
    }
}

/// Where an engine is to be found.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    machine: Modelled,
    storage: lapis_engine::Storage<Modelled>,
    options: EngineOptions,
}

impl Site {
    pub(crate) fn new(storage: Storage, tiers: Tiers) -> Result<Self, String> {
        let Storage { devices, machine, pool } = storage;
        let mut devices = devices.into_iter().map(|it| Arc::new(it) as Arc<dyn BlockDevice>);
        let pages = Some(devices.next().ok_or("there is no SSD")?);
        let storage =
            lapis_engine::Storage { pages, log: devices.next(), pool: pool.map(Arc::new) };
        Ok(Self { machine, storage, options: tiers.options() })
    }

    pub(crate) fn create(&self) -> Result<Engine<Modelled>, String> {
        Engine::create(self.machine.clone(), self.storage.clone(), &self.options).map_err(text)
    }

    /// None if it was never created.
    pub(crate) fn open(&self) -> Result<Option<Engine<Modelled>>, String> {
        match Engine::open(self.machine.clone(), self.storage.clone(), &self.options) {
            Ok(engine) => Ok(Some(engine)),
            Err(EngineError::NotCreated) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What becomes of a key: a value of so many bytes, made from the number; or nothing.
type Write = (usize, u8, Option<(usize, u8)>);

/// An operation on a store.
#[derive(Clone, Debug)]
pub enum StoreOperation {
    /// A transaction.
    Commit(Vec<Write>),
    /// A transaction that is given up.
    Abort(Vec<Write>),
    /// Makes a further table, with an entry.
    CreateTable(u8),
    /// Drops it.
    DropTable(u8),
    /// What a thread in the background does.
    Maintain,
    /// Writes every page and cuts the log.
    Checkpoint,
    /// Closes the engine and opens it.
    Reopen,
    /// Moves pages to the front and gives the end of the device back.
    Compact,
    /// Loads a table, or drops it if there is one.
    LoadOrDrop(u8),
    /// A transaction that need not be durable, and a backup, which makes it so.
    BackUp(Write),
    /// A value that is written piece by piece.
    Stream(Write),
    /// Takes away what has expired.
    RemoveExpired,
}

impl StoreOperation {
    /// Whether a full disk may refuse it.
    fn takes_room(&self) -> bool {
        match self {
            Self::Commit(writes) | Self::Abort(writes) => {
                writes.iter().any(|(_, _, value)| value.is_some())
            }
            Self::CreateTable(_) | Self::LoadOrDrop(_) => true,
            _ => false,
        }
    }
}

/// The contents of a store: tables by name, keys to length and number.
pub type StoreState = BTreeMap<String, BTreeMap<Vec<u8>, (usize, u8)>>;

/// The store, to check.
#[derive(Debug)]
pub struct StoreSubject {
    name: &'static str,
    tiers: Tiers,
    course: Course,
}

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Transactions.
    Transactions,
    /// The disk is filled again and again, and after a crash it has no room but what the store has.
    FullDisk,
    /// Loads, backups, compaction and values in pieces come between, and some removals are entries that expire.
    Bulk,
}

impl StoreSubject {
    /// With pages and log on SSDs.
    pub fn on_ssd(name: &'static str) -> Self {
        Self { name, tiers: Tiers::SSD, course: Course::Transactions }
    }

    /// With the log, and pages if the placement says so, in persistent memory.
    pub fn in_pool(name: &'static str, placement: Placement) -> Self {
        Self { name, tiers: Tiers::in_pool(placement), course: Course::Transactions }
    }

    /// With the log and tables in persistent memory.
    pub fn nvm_direct(name: &'static str) -> Self {
        Self { name, tiers: Tiers::NVM_DIRECT, course: Course::Transactions }
    }

    /// The same on a disk that is filled again and again, and after a crash has no room but what the store has.
    pub fn on_full_disk(self) -> Self {
        Self { course: Course::FullDisk, ..self }
    }

    /// The same with loads, backups and compaction.
    pub fn in_bulk(self) -> Self {
        Self { course: Course::Bulk, ..self }
    }

    /// An open store, as nothing has happened to it.
    fn live(&self, engine: Engine<Modelled>, site: Site) -> LiveStore {
        let Self { tiers, course, .. } = *self;
        let (engine, before) = (Some(engine), Vec::new());
        let (refused, was_refused, expired, streamed) = (0, false, 0, 0);
        LiveStore { engine, site, tiers, course, before, refused, was_refused, expired, streamed }
    }
}

/// An open store.
#[derive(Debug)]
pub struct LiveStore {
    engine: Option<Engine<Modelled>>,
    site: Site,
    tiers: Tiers,
    course: Course,
    /// What has happened before it was opened again.
    before: Vec<(&'static str, u64)>,
    /// Operations for which the disk had no room.
    refused: u64,
    was_refused: bool,
    /// Entries that were taken away because they had expired.
    expired: u64,
    /// Values that were written piece by piece.
    streamed: u64,
}

fn key(number: u8) -> Vec<u8> {
    match number % 3 {
        0 => vec![b'k'; 1 + usize::from(number)],
        1 => vec![0, number],
        _ => format!("key number {number}").into_bytes(),
    }
}

fn write(random: &mut SmallRng) -> Write {
    let (table, key) = (random.random_range(0..TABLES.len()), random.random_range(0..KEYS));
    let value = match random.random_range(0..12) {
        0..=3 => None,
        // In chunks.
        4 => Some((random.random_range(1200..3000), random.random())),
        5..=8 => Some((random.random_range(300..800), random.random())),
        _ => Some((random.random_range(0..100), random.random())),
    };
    (table, key, value)
}

fn writes(random: &mut SmallRng) -> Vec<Write> {
    let count = match random.random_range(0..12) {
        // More than a record of the log holds.
        0 => 40,
        1..=3 => random.random_range(2..8),
        _ => 1,
    };
    let fills = |(table, key, _): Write| (table, key, Some((700, key)));
    let writes = (0..count).map(|_| write(random));
    if count == 40 { writes.map(fills).collect() } else { writes.collect() }
}

/// More than is put into the log together.
fn stream(random: &mut SmallRng) -> Write {
    let (table, key) = (random.random_range(0..TABLES.len()), random.random_range(0..KEYS));
    (table, key, Some((random.random_range(17_000..30_000), random.random())))
}

/// The same writes, all of which take room; or none of which does.
fn filling(mut writes: Vec<Write>, fills: bool) -> Vec<Write> {
    for (_, key, value) in &mut writes {
        *value = fills.then(|| value.unwrap_or((900, *key)));
    }
    writes
}

fn extra_table(number: u8) -> String {
    format!("extra {number}")
}

fn loaded_table(number: u8) -> String {
    format!("loaded {number}")
}

/// What is loaded into it: some leaves, and some long values.
fn loaded(number: u8) -> BTreeMap<Vec<u8>, (usize, u8)> {
    let value = |at: usize| if at.is_multiple_of(12) { (1500, number + 1) } else { (150, 7) };
    (0..20 * (1 + usize::from(number))).map(|at| (vec![at as u8; 30], value(at))).collect()
}

impl Subject for StoreSubject {
    type Operation = StoreOperation;
    type State = StoreState;
    type Live = LiveStore;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        self.tiers.pool_bytes()
    }

    fn device_blocks(&self) -> Vec<u64> {
        self.tiers.device_blocks()
    }

    fn most_blocks(&self, after_crash: bool) -> Vec<u64> {
        let of_pages = if after_crash { 0 } else { FULL_DISK_BLOCKS };
        if self.course == Course::FullDisk { vec![of_pages] } else { Vec::new() }
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<StoreOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|at| match random.random_range(0..40) {
                0 => StoreOperation::CreateTable(random.random_range(0..3)),
                1 => StoreOperation::DropTable(random.random_range(0..3)),
                2 => StoreOperation::Abort(writes(&mut random)),
                3..=6 => StoreOperation::Maintain,
                7 | 8 => StoreOperation::Checkpoint,
                9 => StoreOperation::Reopen,
                10 if self.course != Course::Transactions => StoreOperation::Compact,
                11..=15 if self.course == Course::Bulk => {
                    StoreOperation::LoadOrDrop(random.random_range(0..3))
                }
                16..=18 if self.course == Course::Bulk => {
                    StoreOperation::BackUp(write(&mut random))
                }
                19 | 20 if self.course == Course::Bulk => {
                    StoreOperation::Stream(stream(&mut random))
                }
                21 | 22 if self.course == Course::Bulk => StoreOperation::RemoveExpired,
                _ if self.course == Course::FullDisk => {
                    let fills = (at / FILLING).is_multiple_of(2);
                    StoreOperation::Commit(filling(writes(&mut random), fills))
                }
                _ => StoreOperation::Commit(writes(&mut random)),
            })
            .collect()
    }

    fn probes(
        &self,
        _: &StoreState,
        interrupted: Option<&StoreOperation>,
        seed: u64,
    ) -> Vec<StoreOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut probes: Vec<_> = interrupted.cloned().into_iter().collect();
        probes.push(StoreOperation::Commit((0..4).map(|_| write(&mut random)).collect()));
        probes.push(match random.random_range(0..4) {
            0 => StoreOperation::CreateTable(random.random_range(0..3)),
            1 => StoreOperation::Checkpoint,
            2 => StoreOperation::Reopen,
            _ => StoreOperation::Maintain,
        });
        probes.push(StoreOperation::Commit(vec![write(&mut random)]));
        if self.course == Course::FullDisk {
            let removed = (0..4).map(|_| write(&mut random)).collect();
            probes.push(StoreOperation::Commit(filling(removed, false)));
        }
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveStore, String> {
        let site = Site::new(storage, self.tiers)?;
        let engine = site.create()?;
        for (name, kind) in TABLES.into_iter().zip(KINDS) {
            self.tiers.create_table(&engine, name, kind).map_err(text)?;
        }
        Ok(self.live(engine, site))
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveStore>, String> {
        let site = Site::new(storage, self.tiers)?;
        let Some(engine) = site.open()? else { return Ok(None) };
        // Creation ends with the last of the tables.
        let whole = TABLES.iter().all(|name| engine.table(name).is_ok());
        Ok(whole.then(|| self.live(engine, site)))
    }

    fn initial(&self) -> StoreState {
        TABLES.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect()
    }

    fn apply(&self, state: &mut StoreState, operation: &StoreOperation) {
        let mut write = |(table, number, value): &Write| {
            let table = state.entry(TABLES[*table].to_owned()).or_default();
            match value {
                Some(value) => table.insert(key(*number), canonical(*value)),
                None => table.remove(&key(*number)),
            };
        };
        match operation {
            StoreOperation::Commit(writes) => writes.iter().for_each(write),
            StoreOperation::BackUp(one) | StoreOperation::Stream(one) => write(one),
            StoreOperation::LoadOrDrop(number) => {
                let name = loaded_table(*number);
                if state.remove(&name).is_none() {
                    state.insert(name, loaded(*number));
                }
            }
            StoreOperation::CreateTable(number) => {
                let table = state.entry(extra_table(*number)).or_default();
                table.entry(b"first".to_vec()).or_insert((1, 1));
            }
            StoreOperation::DropTable(number) => {
                state.remove(&extra_table(*number));
            }
            StoreOperation::Abort(_)
            | StoreOperation::Maintain
            | StoreOperation::Checkpoint
            | StoreOperation::Reopen
            | StoreOperation::RemoveExpired
            | StoreOperation::Compact => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        let full_disk = self.course == Course::FullDisk;
        let promises = full_disk && file.contains("buffer/src/space/promise.rs");
        promises || file.contains("engine/src")
    }
}

fn canonical((bytes, number): (usize, u8)) -> (usize, u8) {
    if bytes == 0 { (0, 0) } else { (bytes, number) }
}

impl LiveStore {
    fn engine(&self) -> Result<&Engine<Modelled>, String> {
        self.engine.as_ref().ok_or_else(|| "the engine could not be opened again".to_owned())
    }

    fn transact(&self, writes: &[Write], commit: Option<Durability>) -> Result<(), EngineError> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let tables = TABLES.map(|name| engine.table(name));
        let mut transaction = engine.begin()?;
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
        commit.map_or(Ok(()), |durability| transaction.commit(durability).map(|_| ()))
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
                let name = extra_table(*number);
                let kind = EXTRA_KINDS[usize::from(*number)];
                let made = || self.tiers.create_table(&engine, &name, kind);
                let table = engine.table(&name).or_else(|_| made())?;
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
                self.transact(std::slice::from_ref(write), Some(Durability::Eventual))?;
                let mut stream = Vec::new();
                let backup = engine.backup(&mut stream);
                let whole = backup.and_then(|_| verify_backup(&stream[..]));
                whole.map(|_| ()).map_err(|error| match error {
                    BackupError::Engine(error) => error,
                    error => EngineError::Damaged { what: error.to_string() },
                })
            }
        }
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
pub(crate) fn contents(engine: &Engine<Modelled>) -> Result<StoreState, String> {
    let (mut state, snapshot) = (StoreState::new(), engine.snapshot().map_err(text)?);
    for table in engine.tables() {
        let mut contents = BTreeMap::new();
        let entries: Result<Vec<_>, _> = match table.is_ordered() {
            true => snapshot.scan(&table, KeyRange::all()).map_err(text)?.collect(),
            // Only a further table has no order.
            false => {
                let first = snapshot.get(&table, b"first").map_err(text)?;
                Ok(first.map(|value| (b"first".to_vec(), value)).into_iter().collect())
            }
        };
        for (key, bytes) in entries.map_err(text)? {
            let number = bytes.first().copied().unwrap_or(0);
            let in_pieces = bytes.len() > PIECE_BYTES;
            if bytes.iter().any(|&byte| byte != number)
                || in_pieces && !is_same_in_pieces(&snapshot, &table, &key, &bytes)?
            {
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
        if matches!(operation, StoreOperation::Reopen) {
            self.before = self.events();
            self.engine = None;
            self.engine = self.site.open()?;
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
        if self.site.options.placement == Placement::ThreeTier {
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
