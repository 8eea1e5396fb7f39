//! Copies of a store, and moving what is in it.

use std::io::{Read, Write};

use lapis_engine::{BackupReport, CompactionReport, EngineError, LeafLayout};
use lapis_pmem::Hardware;

use crate::config::Config;
use crate::directory;
use crate::error::Error;
use crate::kept::Kept;
use crate::store::{Inner, Store};
use crate::table::{Table, check_key};

impl Store {
    /// Writes one durable state of all tables, that of the moment of this call, while others go on: a stream with
    /// checksums, whose end says that it is whole ([`crate::verify_backup`]). Flushing and syncing `into` is
    /// the caller's.
    ///
    /// # Errors
    /// [`Error::Backup`]; what was written is then no backup.
    pub fn backup(&self, mut into: impl Write) -> Result<BackupReport, Error> {
        self.backup_into(&mut into)
    }

    fn backup_into(&self, into: &mut dyn Write) -> Result<BackupReport, Error> {
        Ok(self.inner.engine.backup(into)?)
    }

    /// Makes the store that `config` describes out of a backup. There is none before the backup has been read to its
    /// end; then it is durable. A table in a persistent index becomes one on pages where there is no persistent
    /// memory.
    ///
    /// # Errors
    /// [`Error::StoreExists`], [`Error::Backup`]; there is then no store, or the one that was there.
    pub fn restore(config: Config, mut from: impl Read) -> Result<(Self, BackupReport), Error> {
        Self::restore_from(config, &mut from)
    }

    fn restore_from(config: Config, from: &mut dyn Read) -> Result<(Self, BackupReport), Error> {
        let mut report = None;
        let made = directory::make(&config, |engine| {
            report = Some(engine.restore(from)?);
            Ok(())
        })?;
        Ok((Self { inner: Inner::over(made, &config) }, report.unwrap_or_default()))
    }

    /// Moves pages from the end of the file to free places before them, and gives the end back to the file
    /// system. Others read and write meanwhile; tables are neither made nor dropped.
    ///
    /// # Errors
    /// [`Error`]; what has moved stays where it is.
    pub fn compact(&self) -> Result<CompactionReport, Error> {
        Ok(self.inner.engine.compact()?)
    }

    /// Makes a table of entries whose keys ascend, much faster than puts would: the log has each once, and nothing is
    /// searched for. Durable on return; nobody sees the table before, and after an error or a crash there is none.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::Engine`] if keys do not ascend, and others.
    pub fn load_table<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Table, Error> {
        let mut load = self.begin_load(name, LeafLayout::default())?;
        let mut entries = entries.into_iter();
        entries.try_for_each(|(key, value)| load.push(key.as_ref(), value.as_ref()))?;
        load.finish()
    }

    /// The same, entry by entry, with leaves of this kind ([`TableOptions::leaves`](crate::TableOptions::leaves)).
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory()?;
    /// let mut load = store.begin_load("squares", lapis::LeafLayout::Sorted)?;
    /// for number in 0..1000_u32 {
    ///     load.push(&number.to_be_bytes(), &(number * number).to_be_bytes())?;
    /// }
    /// let squares = load.finish()?;
    /// assert_eq!(squares.get(&7_u32.to_be_bytes())?.unwrap(), 49_u32.to_be_bytes());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`], and others.
    pub fn begin_load(&self, name: &str, leaves: LeafLayout) -> Result<TableLoad<'_>, Error> {
        let load = Kept::new(self.inner.engine.begin_load(name, leaves)?);
        Ok(TableLoad { store: self, load: Some(load) })
    }
}

/// A table in the making ([`Store::begin_load`]). There is none before [`TableLoad::finish`], nor if this is dropped.
#[derive(Debug)]
pub struct TableLoad<'s> {
    store: &'s Store,
    /// None when an entry was refused that the engine would have taken.
    load: Option<Kept<lapis_engine::TableLoad<'s, Hardware>>>,
}

impl TableLoad<'_> {
    /// The next entry, whose key comes behind that of the one before.
    ///
    /// # Errors
    /// [`Error::Engine`] if it does not, [`Error::EmptyKey`], and others. The load cannot go on: it refuses all that follows.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let load = self.load.as_mut().ok_or(EngineError::LoadFailed)?;
        if let Err(refused) = check_key(key) {
            self.load = None;
            return Err(refused);
        }
        Ok(load.push(key, value)?)
    }

    /// Makes the table. Durable on return.
    ///
    /// # Errors
    /// [`Error::TableExists`] if there is one of its name by now, and others: where an entry was refused before, say. There
    /// is then no table.
    pub fn finish(self) -> Result<Table, Error> {
        let load = self.load.ok_or(EngineError::LoadFailed)?;
        Ok(Table::new(&self.store.inner, load.into_inner().finish()?))
    }
}
