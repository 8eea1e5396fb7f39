//! Copies of a store, and moving what is in it.

use std::io::{Read, Write};

use lapis_engine::{BackupReport, CompactionReport, EngineError, LeafLayout};

use crate::config::Config;
use crate::directory;
use crate::error::Error;
use crate::store::{Inner, Store};
use crate::table::Table;

/// What a load may end with.
enum Loading<E> {
    Entry(E),
    Engine(EngineError),
}

impl<E> From<EngineError> for Loading<E> {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Store {
    /// Writes one durable state of all tables, that of the moment of this call, while others go on: a stream with
    /// checksums, whose end says that it is whole ([`crate::verify_backup`]). Flushing and syncing `into` is
    /// the caller's.
    ///
    /// # Errors
    /// [`Error::Backup`]; what was written is then no backup.
    pub fn backup(&self, into: impl Write) -> Result<BackupReport, Error> {
        Ok(self.inner.engine.backup(into)?)
    }

    /// Makes the store that `config` describes out of a backup. There is none before the backup has been read to its
    /// end; then it is durable. A table in a persistent index becomes one on pages where there is no persistent
    /// memory.
    ///
    /// # Errors
    /// [`Error::StoreExists`], [`Error::Backup`]; there is then no store, or the one that was there.
    pub fn restore(config: Config, from: impl Read) -> Result<(Self, BackupReport), Error> {
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
        let entries = entries.into_iter().map(Ok::<_, Error>);
        self.try_load_table(name, LeafLayout::default(), entries)
    }

    /// The same, with leaves of this kind ([`TableOptions::leaves`](crate::TableOptions::leaves)), and of entries that may fail
    /// to come, as those of a file do: with the first one that does, the load ends, and there is no table.
    ///
    /// # Errors
    /// That of the entry; all others of [`Store::load_table`].
    pub fn try_load_table<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        name: &str,
        leaves: LeafLayout,
        entries: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<Table, E> {
        Self::check_name(name)?;
        let entries = entries.into_iter().map(|entry| entry.map_err(Loading::Entry));
        match self.inner.engine.try_load_table(name, leaves, entries) {
            Ok(table) => Ok(Table::new(&self.inner, table)),
            Err(Loading::Entry(error)) => Err(error),
            Err(Loading::Engine(error)) => Err(Error::from(error).into()),
        }
    }
}
