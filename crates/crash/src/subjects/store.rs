//! The store: transactions over tables of every kind of index.

use std::collections::BTreeMap;

use lapis::{IndexKind, Store, StoreOptions, TableOptions};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const TABLES: [(&str, IndexKind); 3] =
    [("ordered", IndexKind::Wort), ("tree", IndexKind::FastFair), ("hashed", IndexKind::PClht)];

/// What becomes of a key: a value of so many bytes, made from the number; or nothing.
type Write = (usize, Vec<u8>, Option<(usize, u8)>);

/// An operation on a store.
#[derive(Clone, Debug)]
pub enum StoreOperation {
    /// A transaction.
    Commit(Vec<Write>),
    /// Makes a further table.
    CreateTable(u8),
    /// Drops it.
    DropTable(u8),
}

/// The contents of a store: tables by name, keys to length and number.
pub type StoreState = BTreeMap<String, BTreeMap<Vec<u8>, (usize, u8)>>;

/// The store, to check.
#[derive(Debug, Default)]
pub struct StoreSubject;

/// An open store.
#[derive(Debug)]
pub struct LiveStore {
    store: Store<Modelled>,
}

fn key(number: u8) -> Vec<u8> {
    match number % 3 {
        0 => vec![b'k'; 1 + usize::from(number / 3)],
        1 => vec![0, number],
        _ => format!("key number {number}").into_bytes(),
    }
}

fn value((bytes, number): (usize, u8)) -> Vec<u8> {
    vec![number; bytes]
}

fn write(random: &mut SmallRng) -> Write {
    let table = random.random_range(0..TABLES.len());
    let key = key(random.random_range(0..36));
    let value = match random.random_range(0..10) {
        0..=3 => None,
        // Over the limit of values in line: a block of its own before the record.
        4 => Some((random.random_range(4097..5000), random.random())),
        _ => Some((random.random_range(0..100), random.random())),
    };
    (table, key, value)
}

fn extra_table(number: u8) -> String {
    format!("extra {number}")
}

impl Subject for StoreSubject {
    type Operation = StoreOperation;
    type State = StoreState;
    type Live = LiveStore;

    fn name(&self) -> &'static str {
        "store"
    }

    fn pool_bytes(&self) -> usize {
        16 << 20
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<StoreOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|_| match random.random_range(0..30) {
                0 => StoreOperation::CreateTable(random.random_range(0..3)),
                1 => StoreOperation::DropTable(random.random_range(0..3)),
                2..=20 => StoreOperation::Commit(vec![write(&mut random)]),
                _ => {
                    let writes = random.random_range(2..6);
                    StoreOperation::Commit((0..writes).map(|_| write(&mut random)).collect())
                }
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
        probes.push(StoreOperation::Commit(vec![write(&mut random), write(&mut random)]));
        if random.random_range(0..4) == 0 {
            probes.push(StoreOperation::CreateTable(random.random_range(0..3)));
        }
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveStore, String> {
        let options = StoreOptions { log_segment_bytes: 8192 };
        let store = Store::create_on(storage.into_pool(), &options).map_err(text)?;
        for (name, index) in TABLES {
            store.create_table(name, &TableOptions::with_index(index)).map_err(text)?;
        }
        Ok(LiveStore { store })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveStore>, String> {
        match Store::open_on(storage.into_pool()) {
            Ok(store) => {
                // Creation ends with the last of the tables.
                let whole = TABLES.iter().all(|(name, _)| store.table(name).is_ok());
                Ok(whole.then_some(LiveStore { store }))
            }
            Err(lapis::Error::NotAStore) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn initial(&self) -> StoreState {
        TABLES.iter().map(|(name, _)| ((*name).to_owned(), BTreeMap::new())).collect()
    }

    fn apply(&self, state: &mut StoreState, operation: &StoreOperation) {
        match operation {
            StoreOperation::Commit(writes) => {
                for (table, key, value) in writes {
                    let table = state.entry(TABLES[*table].0.to_owned()).or_default();
                    match value {
                        Some(value) => table.insert(key.clone(), canonical(*value)),
                        None => table.remove(key),
                    };
                }
            }
            StoreOperation::CreateTable(number) => {
                let table = state.entry(extra_table(*number)).or_default();
                table.entry(b"first".to_vec()).or_insert((1, 1));
            }
            StoreOperation::DropTable(number) => {
                state.remove(&extra_table(*number));
            }
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("lapis/src")
    }
}

fn canonical((bytes, number): (usize, u8)) -> (usize, u8) {
    if bytes == 0 { (0, 0) } else { (bytes, number) }
}

impl Live<StoreOperation, StoreState> for LiveStore {
    fn perform(&mut self, operation: &StoreOperation) -> Result<(), String> {
        match operation {
            StoreOperation::Commit(writes) => {
                let tables: Vec<_> = TABLES
                    .iter()
                    .map(|(name, _)| self.store.table(name))
                    .collect::<Result<_, _>>()
                    .map_err(text)?;
                let mut transaction = self.store.transaction().map_err(text)?;
                for (table, key, made_of) in writes {
                    match made_of {
                        Some(made_of) => {
                            transaction
                                .put(&tables[*table], key, &value(*made_of))
                                .map_err(text)?;
                        }
                        None => {
                            transaction.delete(&tables[*table], key).map_err(text)?;
                        }
                    }
                }
                transaction.commit().map_err(text)
            }
            StoreOperation::CreateTable(number) => {
                let name = extra_table(*number);
                let table =
                    self.store.table_or_create(&name, &TableOptions::default()).map_err(text)?;
                if table.get(b"first").map_err(text)?.is_none() {
                    table.put(b"first", &[1]).map_err(text)?;
                }
                Ok(())
            }
            StoreOperation::DropTable(number) => {
                match self.store.drop_table(&extra_table(*number)) {
                    Ok(()) | Err(lapis::Error::NoSuchTable { .. }) => Ok(()),
                    Err(error) => Err(error.to_string()),
                }
            }
        }
    }

    fn observe(&self) -> Result<StoreState, String> {
        let mut state = StoreState::new();
        for info in self.store.tables() {
            let table = self.store.table(&info.name).map_err(text)?;
            let mut contents = BTreeMap::new();
            for entry in table.iter().map_err(text)? {
                let (key, bytes) = entry.map_err(text)?;
                let number = bytes.first().copied().unwrap_or(0);
                if bytes.iter().any(|&byte| byte != number) {
                    return Err(format!("a torn value for {}", key.escape_ascii()));
                }
                contents.insert(key, (bytes.len(), number));
            }
            // Making a further table is two steps, each atomic; the first alone is a crash between.
            if contents.is_empty() && info.name.starts_with("extra") {
                continue;
            }
            state.insert(info.name, contents);
        }
        Ok(state)
    }

    fn check(&self) -> Vec<String> {
        self.store.check().problems
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        if self.store.pool().needs_reclaim() {
            self.store.reclaim();
        }
        self.store.audit()
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.store.pool())
    }
}
