//! The store: tables of every kind of index, transactions and snapshots.

use std::collections::BTreeMap;

use lapis::{IndexKind, Store, StoreOptions, TableOptions};
use lapis_device::Modelled;
use lapis_pmem::AuditReport;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::concurrent::history::Call;
use crate::concurrent::judge_whole;
use crate::concurrent::linearizability::Specification;
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subject::text;

const TABLES: [(&str, IndexKind); 3] =
    [("ordered", IndexKind::Wort), ("tree", IndexKind::FastFair), ("hashed", IndexKind::PClht)];
const KEYS: u8 = 5;

/// A store that several workers use.
#[derive(Debug)]
pub struct ConcurrentStore;

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
    /// Reads two keys of one state.
    ReadBoth(Place, Place),
}

/// What was read; nothing for a transaction.
pub type StoreAnswer = Vec<Option<Value>>;

/// What is in all tables.
pub type StoreContents = BTreeMap<Place, Value>;

impl Specification for ConcurrentStore {
    type State = StoreContents;
    type Operation = StoreAction;
    type Returned = StoreAnswer;

    fn step(&self, state: &StoreContents, action: &StoreAction) -> (StoreContents, StoreAnswer) {
        let mut after = state.clone();
        let answer = match action {
            StoreAction::Get(place) => vec![state.get(place).copied()],
            StoreAction::ReadBoth(a, b) => vec![state.get(a).copied(), state.get(b).copied()],
            StoreAction::Commit(writes) => {
                for (place, value) in writes {
                    match value {
                        Some(value) => after.insert(*place, *value),
                        None => after.remove(place),
                    };
                }
                Vec::new()
            }
        };
        (after, answer)
    }
}

fn key(number: u8) -> Vec<u8> {
    format!("key number {number}").into_bytes()
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

fn writes(random: &mut SmallRng, value: u8) -> Vec<(Place, Option<Value>)> {
    let count = random.random_range(1..4);
    (0..count)
        .map(|_| {
            let keeps = random.random_range(0..4) > 0;
            let bytes = if random.random_range(0..8) == 0 { 4500 } else { 1 + usize::from(value) };
            (place(random), keeps.then_some((bytes, value)))
        })
        .collect()
}

impl ConcurrentSubject for ConcurrentStore {
    type Operation = StoreAction;
    type Returned = StoreAnswer;
    type State = StoreContents;
    type Live = Store<Modelled>;

    fn name(&self) -> &'static str {
        "store"
    }

    fn pool_bytes(&self) -> usize {
        6 << 20
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<StoreAction> {
        let mut random = SmallRng::seed_from_u64(seed);
        let before = (0..random.random_range(0..8))
            .map(|value| StoreAction::Commit(writes(&mut random, value)))
            .collect();
        let mut value = 100;
        Plan::sharing(before, workers, operations, |_| {
            value += 1;
            match random.random_range(0..6) {
                0 | 1 => StoreAction::Get(place(&mut random)),
                2 => StoreAction::ReadBoth(place(&mut random), place(&mut random)),
                _ => StoreAction::Commit(writes(&mut random, value)),
            }
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        let options = StoreOptions { log_segment_bytes: 8192 };
        let store = Store::create_on(storage.into_pool(), &options).map_err(text)?;
        for (name, index) in TABLES {
            store.create_table(name, &TableOptions::with_index(index)).map_err(text)?;
        }
        Ok(store)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        Store::open_on(storage.into_pool()).map_err(text)
    }

    fn perform(&self, store: &Self::Live, action: &StoreAction) -> Result<StoreAnswer, String> {
        let table = |place: &Place| store.table(TABLES[place.0].0).map_err(text);
        match action {
            StoreAction::Get(place) => {
                let found = table(place)?.get(&key(place.1)).map_err(text)?;
                Ok(vec![found.map(|value| value_of(&value)).transpose()?])
            }
            StoreAction::ReadBoth(a, b) => {
                let snapshot = store.snapshot();
                let read = |place: &Place| {
                    let found = snapshot.get(&table(place)?, &key(place.1)).map_err(text)?;
                    found.map(|value| value_of(&value)).transpose()
                };
                Ok(vec![read(a)?, read(b)?])
            }
            StoreAction::Commit(writes) => {
                let mut transaction = store.transaction().map_err(text)?;
                for (place, value) in writes {
                    let (table, key) = (table(place)?, key(place.1));
                    match *value {
                        Some((bytes, byte)) => {
                            transaction.put(&table, &key, &vec![byte; bytes]).map_err(text)?;
                        }
                        None => {
                            transaction.delete(&table, &key).map_err(text)?;
                        }
                    }
                }
                transaction.commit().map_err(text)?;
                Ok(Vec::new())
            }
        }
    }

    fn observe(&self, store: &Self::Live) -> Result<StoreContents, String> {
        let mut contents = StoreContents::new();
        for (index, (name, _)) in TABLES.iter().enumerate() {
            let table = store.table(name).map_err(text)?;
            for number in 0..KEYS {
                if let Some(value) = table.get(&key(number)).map_err(text)? {
                    contents.insert((index, number), value_of(&value)?);
                }
            }
        }
        Ok(contents)
    }

    fn problems(&self, store: &Self::Live) -> Vec<String> {
        store.check().problems
    }

    fn audit(&self, store: &Self::Live) -> AuditReport {
        if store.pool().needs_reclaim() {
            store.reclaim();
        }
        store.audit()
    }

    fn judge(
        &self,
        initial: &StoreContents,
        calls: &[Call<StoreAction, StoreAnswer>],
        found: &StoreContents,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }

    fn changes(&self, action: &StoreAction) -> bool {
        matches!(action, StoreAction::Commit(_))
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("lapis/src")
    }
}
