//! A course in which much is taken back: by savepoints, by dropping tables, and by all that replaces what there is. What
//! is taken back must be as if it had never been, for who goes on, and for the devices. The store itself begins as what is
//! restored from a backup, and its backups are restored into others.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_device::Modelled;
use lapis_engine::{Engine, EngineError, KeyRange, Table, Transaction};

use super::KINDS;
use super::live::{LiveStore, contents, contents_of, of_backup};
use super::operation::{RollBack, StoreState, TABLES, Write, extra_table, restored};
use super::site::{Site, Tiers};
use crate::subject::text;

/// Rounds of the background after which there must be nothing left for it to do.
const MOST_ROUNDS: usize = 1000;

/// What has happened.
#[derive(Debug, Default)]
pub(super) struct TakenBack {
    rolled_back: u64,
    refused: u64,
    settled: u64,
    restored: u64,
}

impl TakenBack {
    pub(super) fn events(&self) -> [(&'static str, u64); 4] {
        [
            ("transactions that go back to savepoints", self.rolled_back),
            ("transactions whose table is dropped", self.refused),
            ("times that nothing unwanted is left", self.settled),
            ("backups that are restored", self.restored),
        ]
    }
}

/// Restores what the store begins with.
pub(super) fn restore_first(site: &Site, engine: &Engine<Modelled>) -> Result<(), String> {
    let origin = site.aside()?.create()?;
    for ((name, entries), kind) in restored().iter().zip(KINDS) {
        let table = Tiers::SSD.create_table(&origin, name, kind).map_err(text)?;
        fill(&origin, &table, entries).map_err(text)?;
    }
    let mut backup = Vec::new();
    origin.backup(&mut backup).map_err(text)?;
    engine.restore(&backup[..]).map(|_| ()).map_err(text)
}

/// Whether some of what is restored first is there, and not all.
pub(super) fn is_cut_short(engine: &Engine<Modelled>) -> bool {
    !engine.tables().is_empty() && TABLES.iter().any(|name| engine.table(name).is_err())
}

/// Puts entries into a table, in one transaction.
pub(super) fn fill(
    engine: &Engine<Modelled>,
    table: &Arc<Table<Modelled>>,
    entries: &BTreeMap<Vec<u8>, (usize, u8)>,
) -> Result<(), EngineError> {
    let mut transaction = engine.begin()?;
    for (key, (bytes, of)) in entries {
        transaction.put(table, key, &vec![*of; *bytes])?;
    }
    transaction.commit(Durability::Immediate).map(|_| ())
}

/// Does what there is to do in the background, until there is nothing.
fn maintain_to_the_end(engine: &Engine<Modelled>) -> Result<(), EngineError> {
    for _ in 0..MOST_ROUNDS {
        if engine.maintain()? {
            continue;
        }
        // What is to go waits until what took its place is durable.
        engine.sync()?;
        if !engine.maintain()? {
            return Ok(());
        }
    }
    Err(wrong("the background does not come to an end"))
}

fn wrong(what: &str) -> EngineError {
    EngineError::Damaged { what: what.to_owned() }
}

/// Keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What a transaction sees of the tables that are written to.
fn seen(
    engine: &Engine<Modelled>,
    transaction: &Transaction<Modelled>,
) -> Result<Entries, EngineError> {
    let mut seen = Vec::new();
    for name in TABLES {
        for entry in transaction.scan(&engine.table(name)?, KeyRange::all())? {
            seen.push(entry?);
        }
    }
    Ok(seen)
}

impl LiveStore {
    /// A transaction that goes back to the second of two savepoints, and on, and back to the first; and commits what it
    /// writes outside of them.
    pub(super) fn roll_back(
        &mut self,
        engine: &Engine<Modelled>,
        RollBack { kept, undone, last }: &RollBack,
    ) -> Result<(), EngineError> {
        let mut transaction = engine.begin()?;
        self.write(engine, &mut transaction, kept)?;
        let (first, at_first) = (transaction.savepoint(), seen(engine, &transaction)?);
        self.write(engine, &mut transaction, undone)?;
        let (second, at_second) = (transaction.savepoint(), seen(engine, &transaction)?);
        for (savepoint, at_savepoint) in [(&second, at_second), (&first, at_first)] {
            self.write(engine, &mut transaction, last)?;
            self.write(engine, &mut transaction, undone)?;
            transaction.roll_back_to(savepoint)?;
            if seen(engine, &transaction)? != at_savepoint {
                return Err(wrong("what was taken back to a savepoint is not what it was there"));
            }
        }
        if transaction.roll_back_to(&second).is_ok() {
            return Err(wrong("a savepoint is there that was taken back"));
        }
        self.write(engine, &mut transaction, last)?;
        self.taken_back.rolled_back += 1;
        transaction.commit(Durability::Immediate).map(|_| ())
    }

    /// Commits while a snapshot is there, which the background must leave what it reads.
    pub(super) fn commit_beside_reader(
        &self,
        engine: &Engine<Modelled>,
        writes: &[Write],
    ) -> Result<(), EngineError> {
        let (tables, snapshot) = (engine.tables(), engine.snapshot()?);
        let read = || contents_of(&tables, &snapshot).map_err(|what| wrong(&what));
        let before = read()?;
        self.transact(writes, Some(Durability::Immediate))?;
        maintain_to_the_end(engine)?;
        match read()? == before {
            true => Ok(()),
            false => Err(wrong("a snapshot has changed")),
        }
    }

    /// Drops a table that a transaction has written to, which is refused then with all that it has written.
    pub(super) fn drop_beside(
        &mut self,
        engine: &Engine<Modelled>,
        number: u8,
        writes: &[Write],
    ) -> Result<(), EngineError> {
        let name = extra_table(number);
        let Ok(table) = engine.table(&name) else { return Ok(()) };
        let mut transaction = engine.begin()?;
        transaction.put(&table, b"second", &[2; 1500])?;
        self.write(engine, &mut transaction, writes)?;
        engine.drop_table(&name)?;
        self.taken_back.refused += 1;
        match transaction.commit(Durability::Immediate) {
            Err(EngineError::Dropped { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(wrong("a transaction has written to a table that was dropped")),
        }
    }

    /// Does all that there is to do in the background, and closes the engine.
    pub(super) fn settle(&mut self, engine: &Engine<Modelled>) -> Result<(), EngineError> {
        maintain_to_the_end(engine)?;
        self.taken_back.settled += 1;
        engine.close()
    }

    /// Once it is open again, it would find what is listed as unwanted and was forgotten.
    pub(super) fn check_is_settled(&self) -> Result<(), String> {
        match self.engine()?.maintain().map_err(text)? {
            true => Err("what nobody wants was left when there was nothing to do".to_owned()),
            false => Ok(()),
        }
    }

    /// Restores a backup into another store, where the same must be then, after it was opened again, too.
    pub(super) fn restore(
        &mut self,
        engine: &Engine<Modelled>,
        write: &Write,
    ) -> Result<(), EngineError> {
        let backup = self.back_up(engine, write)?;
        let site = self.site.aside().map_err(|what| wrong(&what))?;
        let restored = site.create().map_err(|what| wrong(&what))?;
        restored.restore(&backup[..]).map_err(of_backup)?;
        self.taken_back.restored += 1;
        let wrongs = |engine: &Engine<Modelled>, expected: &StoreState| {
            let found = contents(engine)?;
            let differs =
                (found != *expected).then(|| "a backup is restored as another".to_owned());
            Ok::<_, String>(engine.check().into_iter().chain(differs).next())
        };
        let outcome = (|| {
            let expected = contents(engine)?;
            if let Some(what) = wrongs(&restored, &expected)? {
                return Ok(Some(what));
            }
            drop(restored);
            let reopened = site.open()?.ok_or("a restored store is gone")?;
            wrongs(&reopened, &expected)
        })();
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(what)) | Err(what) => Err(wrong(&what)),
        }
    }
}
