//! The store: transactions that read and write, snapshots, and the work in the background. And histories of two workers
//! for E4 of the engine: one has changed a tree and its record is not durable, the other reads what it wrote
//! (`lapis crash store:reading --workers 2 --deviations 1`). Of random histories few show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_device::Modelled;
use lapis_engine::{Durability, Engine, EngineError, KeyRange, Placement, Table, Transaction};
use lapis_pmem::{AuditReport, Observed};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan, Stop};
use crate::storage::Storage;
use crate::subject::text;
use crate::subjects::store::{EXPIRED, KINDS, Site, Tiers};

const TABLES: [&str; 2] = ["left", "right"];
const KEYS: u8 = 4;
/// Entries of the first table, behind its keys, that a transaction in parts writes besides: more than a record of the log
/// holds, so that what it writes to the two tables is in different parts.
const BETWEEN_TABLES: u8 = 30;

/// A store that several workers use.
#[derive(Debug)]
pub struct ConcurrentStore {
    name: &'static str,
    tiers: Tiers,
    /// Half of the transactions are in parts.
    in_parts: bool,
    /// This one history, whatever the seed.
    planned: Option<Plan<StoreAction>>,
}

impl ConcurrentStore {
    /// With pages and log on SSDs.
    pub fn on_ssd(name: &'static str) -> Self {
        Self::new(name, Tiers::SSD)
    }

    /// With the log and tables in persistent memory.
    pub fn nvm_direct(name: &'static str) -> Self {
        Self::new(name, Tiers::NVM_DIRECT)
    }

    /// With the log, and pages if the placement says so, in persistent memory.
    pub fn in_pool(name: &'static str, placement: Placement) -> Self {
        Self::new(name, Tiers::in_pool(placement))
    }

    fn new(name: &'static str, tiers: Tiers) -> Self {
        Self { name, tiers, in_parts: false, planned: None }
    }

    /// The name of those with transactions in parts.
    pub(crate) const IN_PARTS: &str = "store:in-parts";

    /// With transactions of more than a record of the log holds, and pages and log on SSDs.
    pub fn in_parts() -> Self {
        Self { in_parts: true, ..Self::on_ssd(Self::IN_PARTS) }
    }

    /// The histories that are made for one error each, with pages and log on SSDs.
    pub(crate) fn histories() -> [Self; 3] {
        let place = (0, 0);
        let empty = StoreAction::PutIfEmpty((1, 0), (1, 1));
        let reads = [
            ("store:reading", StoreAction::Get(place)),
            ("store:reading-all", StoreAction::ReadAll),
            // It finds what is there, and so writes nothing.
            ("store:reading-in-transaction", empty),
        ];
        reads.map(|(name, read)| {
            let commit = |value| StoreAction::Commit(vec![(place, Some((8, value)))]);
            let (before, workers) = (vec![commit(1)], vec![vec![commit(2)], vec![read]]);
            Self { planned: Some(Plan { before, workers }), ..Self::on_ssd(name) }
        })
    }
}

/// A key of a table.
type Place = (usize, u8);
/// Length and the value of all bytes.
type Value = (usize, u8);

/// An operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAction {
    /// Reads a key.
    Get(Place),
    /// Changes keys in one transaction; none removes.
    Commit(Vec<(Place, Option<Value>)>),
    /// The same in parts, for what it writes besides, which nobody looks at.
    CommitInParts(Vec<(Place, Option<Value>)>),
    /// In one transaction, exchanges what two keys have, and tells it.
    Exchange(Place, Place),
    /// In one transaction, gives a key a value if the other table is as empty as it looks, and tells what is there.
    PutIfEmpty(Place, Value),
    /// Reads everything of one state.
    ReadAll,
}

/// What was read; nothing for one that only writes.
pub type StoreAnswer = Vec<Option<Value>>;

/// What is in all tables.
pub type StoreContents = BTreeMap<Place, Value>;

fn all(state: &StoreContents, table: usize) -> StoreAnswer {
    (0..KEYS).map(|key| state.get(&(table, key)).copied()).collect()
}

fn set(state: &mut StoreContents, place: Place, value: Option<Value>) {
    match value {
        Some(value) => state.insert(place, value),
        None => state.remove(&place),
    };
}

impl Specification for ConcurrentStore {
    type State = StoreContents;
    type Operation = StoreAction;
    type Returned = StoreAnswer;

    fn step(&self, state: &StoreContents, action: &StoreAction) -> (StoreContents, StoreAnswer) {
        let mut after = state.clone();
        let answer = match action {
            StoreAction::Get(place) => vec![state.get(place).copied()],
            StoreAction::ReadAll => (0..TABLES.len()).flat_map(|table| all(state, table)).collect(),
            StoreAction::Exchange(a, b) => {
                let found = [a, b].map(|place| state.get(place).copied());
                set(&mut after, *a, found[1]);
                set(&mut after, *b, found[0]);
                found.to_vec()
            }
            StoreAction::PutIfEmpty(place, value) => {
                let other = all(state, 1 - place.0);
                if other.iter().all(Option::is_none) {
                    after.insert(*place, *value);
                }
                other
            }
            StoreAction::Commit(writes) | StoreAction::CommitInParts(writes) => {
                writes.iter().for_each(|(place, value)| set(&mut after, *place, *value));
                Vec::new()
            }
        };
        (after, answer)
    }
}

fn key(number: u8) -> Vec<u8> {
    format!("key number {number}").into_bytes()
}

/// Behind all keys.
fn between(number: u8) -> Vec<u8> {
    format!("of no interest {number}").into_bytes()
}

fn value_of(bytes: &[u8]) -> Result<Value, String> {
    let value = bytes.first().copied().unwrap_or(0);
    match bytes.iter().all(|&byte| byte == value) {
        true => Ok((bytes.len(), value)),
        false => Err("a torn value".to_owned()),
    }
}

fn place(random: &mut SmallRng) -> Place {
    (random.random_range(0..TABLES.len()), random.random_range(0..KEYS))
}

fn value(random: &mut SmallRng, value: u8) -> Value {
    let bytes = match random.random_range(0..8) {
        // In chunks.
        0 => 1500,
        1..=3 => 700 + usize::from(value),
        _ => 1 + usize::from(value),
    };
    (bytes, value)
}

fn writes(random: &mut SmallRng, number: u8) -> Vec<(Place, Option<Value>)> {
    let count = random.random_range(1..4);
    (0..count)
        .map(|_| {
            let keeps = random.random_range(0..4) > 0;
            (place(random), keeps.then(|| value(random, number)))
        })
        .collect()
}

/// Writes to both tables.
fn writes_to_both(random: &mut SmallRng, number: u8) -> Vec<(Place, Option<Value>)> {
    let mut writes = writes(random, number);
    let both = (0..TABLES.len()).map(|table| (table, random.random_range(0..KEYS)));
    let both: Vec<_> = both.collect();
    writes.extend(both.into_iter().map(|place| (place, Some(value(random, number)))));
    writes
}

/// A value as it was read. One that is torn is what nobody wrote.
fn read_of(found: Option<Vec<u8>>) -> Option<Value> {
    found.map(|bytes| value_of(&bytes).unwrap_or((usize::MAX, 0)))
}

fn tables(engine: &Engine<Modelled>) -> Result<[Arc<Table<Modelled>>; 2], String> {
    let [left, right] = TABLES.map(|name| engine.table(name).map_err(text));
    Ok([left?, right?])
}

impl ConcurrentSubject for ConcurrentStore {
    type Operation = StoreAction;
    type Returned = StoreAnswer;
    type State = StoreContents;
    type Live = Engine<Modelled>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        self.tiers.pool_bytes()
    }

    fn device_blocks(&self) -> Vec<u64> {
        self.tiers.device_blocks()
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<StoreAction> {
        if let Some(plan) = &self.planned {
            return plan.clone();
        }
        let mut random = SmallRng::seed_from_u64(seed);
        let before = (0..random.random_range(0..8))
            .map(|value| StoreAction::Commit(writes(&mut random, value)))
            .collect();
        let mut number = 100;
        Plan::sharing(before, workers, operations, |_| {
            number += 1;
            if self.in_parts && random.random() {
                return StoreAction::CommitInParts(writes_to_both(&mut random, number));
            }
            match random.random_range(0..10) {
                0 | 1 => StoreAction::Get(place(&mut random)),
                2 => StoreAction::ReadAll,
                3 | 4 => StoreAction::Exchange(place(&mut random), place(&mut random)),
                5 | 6 => {
                    let value = value(&mut random, number);
                    StoreAction::PutIfEmpty(place(&mut random), value)
                }
                _ => StoreAction::Commit(writes(&mut random, number)),
            }
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        let engine = Site::new(storage, self.tiers)?.create()?;
        for (name, kind) in TABLES.into_iter().zip(KINDS) {
            self.tiers.create_table(&engine, name, kind).map_err(text)?;
        }
        Ok(engine)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        Site::new(storage, self.tiers)?.open()?.ok_or_else(|| "there is no engine".to_owned())
    }

    fn perform(&self, engine: &Self::Live, action: &StoreAction) -> Result<StoreAnswer, String> {
        let tables = tables(engine)?;
        let now = Durability::Immediate;
        match action {
            StoreAction::Get((table, number)) => {
                let found = engine.get(&tables[*table], &key(*number)).map_err(text)?;
                Ok(vec![found.map(|value| value_of(&value)).transpose()?])
            }
            StoreAction::ReadAll => {
                let (snapshot, mut found) = (engine.snapshot().map_err(text)?, Vec::new());
                for table in &tables {
                    let mut values = BTreeMap::new();
                    for entry in snapshot.scan(table, KeyRange::all()).map_err(text)? {
                        let (key, value) = entry.map_err(text)?;
                        values.insert(key, value_of(&value)?);
                    }
                    found.extend((0..KEYS).map(|number| values.get(&key(number)).copied()));
                }
                Ok(found)
            }
            StoreAction::Exchange(a, b) => {
                let body = |transaction: &mut Transaction<Modelled>| {
                    let places = [a, b];
                    let read = |place: &Place| {
                        transaction.get(&tables[place.0], &key(place.1)).map(read_of)
                    };
                    let found: Vec<Option<Value>> =
                        places.map(read).into_iter().collect::<Result<_, _>>()?;
                    for (place, new) in [(a, found[1]), (b, found[0])] {
                        write(transaction, &tables, *place, new)?;
                    }
                    Ok(found)
                };
                engine.retry(body, now).map_err(text)
            }
            StoreAction::PutIfEmpty(place, value) => {
                let body = |transaction: &mut Transaction<Modelled>| {
                    let mut found = vec![None; usize::from(KEYS)];
                    for entry in transaction.scan(&tables[1 - place.0], KeyRange::all())? {
                        let (found_key, bytes) = entry?;
                        for (number, found) in (0..).zip(&mut found) {
                            if key(number) == found_key {
                                *found = read_of(Some(bytes.clone()));
                            }
                        }
                    }
                    if found.iter().all(Option::is_none) {
                        write(transaction, &tables, *place, Some(*value))?;
                    }
                    Ok(found)
                };
                engine.retry(body, now).map_err(text)
            }
            StoreAction::Commit(writes) | StoreAction::CommitInParts(writes) => {
                let is_in_parts = matches!(action, StoreAction::CommitInParts(_));
                let body = |transaction: &mut Transaction<Modelled>| {
                    for number in 0..if is_in_parts { BETWEEN_TABLES } else { 0 } {
                        transaction.put(&tables[0], &between(number), &[number; 700])?;
                    }
                    let mut each = writes.iter();
                    each.try_for_each(|(place, value)| write(transaction, &tables, *place, *value))
                };
                engine.retry(body, now).map_err(text)?;
                Ok(Vec::new())
            }
        }
    }

    fn observe(&self, engine: &Self::Live) -> Result<StoreContents, String> {
        let (tables, mut contents) = (tables(engine)?, StoreContents::new());
        for (index, table) in tables.iter().enumerate() {
            for number in 0..KEYS {
                if let Some(value) = engine.get(table, &key(number)).map_err(text)? {
                    contents.insert((index, number), value_of(&value)?);
                }
            }
        }
        Ok(contents)
    }

    fn problems(&self, engine: &Self::Live) -> Vec<String> {
        engine.check()
    }

    fn audit(&self, engine: &Self::Live) -> AuditReport {
        engine.reclaim_and_audit()
    }

    fn judge(
        &self,
        initial: &StoreContents,
        calls: &[Call<StoreAction, StoreAnswer>],
        found: &StoreContents,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn background_workers(&self) -> usize {
        1
    }

    fn work_in_background(
        &self,
        engine: &Self::Live,
        _worker: usize,
        stop: &Stop,
    ) -> Result<(), String> {
        while !stop.is_asked_for() {
            engine.maintain().map_err(text)?;
            engine.remove_expired().map_err(text)?;
            engine.checkpoint().map_err(text)?;
            engine.domain().pause();
        }
        Ok(())
    }

    fn changes(&self, action: &StoreAction) -> bool {
        !matches!(action, StoreAction::Get(_) | StoreAction::ReadAll)
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("engine/src")
    }
}

fn write(
    transaction: &mut Transaction<Modelled>,
    tables: &[Arc<Table<Modelled>>; 2],
    place: Place,
    value: Option<Value>,
) -> Result<(), EngineError> {
    let (table, key) = (&tables[place.0], key(place.1));
    match value {
        Some((bytes, byte)) => transaction.put(table, &key, &vec![byte; bytes]),
        // As good as removed, and taken away later.
        None if place.1 % 2 == 1 => transaction.put_with(table, &key, b"gone", EXPIRED),
        None => transaction.remove(table, &key).map(|_| ()),
    }
}
