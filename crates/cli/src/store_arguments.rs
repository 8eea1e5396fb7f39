//! The arguments that name a store and a table, and opening them.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lapis::{Config, IndexKind, Store, Table, TableOptions};

use crate::failure::Failure;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// What the medium gives at memory speed; on an ordinary file: a process crash, not a power cut
    #[default]
    Medium,
    /// A power cut, whatever it costs; on an ordinary file: a write to the disk per persist
    PowerFail,
}

/// The store.
#[derive(Clone, Debug, Args)]
pub struct StoreArguments {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// What an acknowledged write survives
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub durability: Durability,
}

impl StoreArguments {
    /// Opens the store, which must be there.
    pub fn open(&self) -> Result<Store, Failure> {
        self.open_or_create(false)
    }

    /// Opens the store; creates it if asked to.
    pub fn open_or_create(&self, create: bool) -> Result<Store, Failure> {
        Ok(self.try_open(create)?)
    }

    /// The same, for those who look at the error.
    pub fn try_open(&self, create: bool) -> Result<Store, lapis::Error> {
        let durability = match self.durability {
            Durability::Medium => lapis::Durability::Medium,
            Durability::PowerFail => lapis::Durability::PowerFail,
        };
        Store::open(Config::new(&self.dir).durability(durability).create(create))
    }
}

/// The table of a command that reads.
#[derive(Clone, Debug, Args)]
pub struct TableArguments {
    /// The table
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub table: String,
}

impl TableArguments {
    /// Opens the table, which must be there.
    pub fn open(&self, store: &Store) -> Result<Table, Failure> {
        store.table(&self.table).map_err(|error| match error {
            lapis::Error::NoSuchTable { .. } => {
                let names: Vec<_> = store
                    .tables()
                    .into_iter()
                    .map(|table| table.name)
                    .filter(|name| !is_internal(name))
                    .collect();
                Failure::refused(if names.is_empty() {
                    format!(
                        "the store has no table `{}`, nor any other; put or import something first",
                        self.table
                    )
                } else {
                    format!("the store has no table `{}`; it has {}", self.table, names.join(", "))
                })
            }
            error => error.into(),
        })
    }
}

/// The table of a command that writes and creates it if it is not there.
#[derive(Clone, Debug, Args)]
pub struct NewTableArguments {
    /// The table; created if it is not there
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub table: String,
    /// The index of a table that has to be created [default: wort]
    #[arg(long, value_name = "KIND", value_parser = index_kinds())]
    pub index: Option<IndexKind>,
}

impl NewTableArguments {
    /// Opens the table; creates it if it is not there.
    pub fn open(&self, store: &Store) -> Result<Table, Failure> {
        if is_internal(&self.table) {
            return Err(Failure::refused(format!(
                "`{}` is not a name for a table: those that start with a dot are Lapis' own",
                self.table
            )));
        }
        let options = self.index.map_or_else(TableOptions::default, TableOptions::with_index);
        let table = store.table_or_create(&self.table, &options)?;
        match self.index {
            Some(asked) if asked != table.index_kind() => Err(Failure::refused(format!(
                "the table `{}` exists and is held by {}; leave --index out or name another table",
                self.table,
                table.index_kind()
            ))),
            _ => Ok(table),
        }
    }
}

/// Whether a table is Lapis' own.
pub fn is_internal(table: &str) -> bool {
    table.starts_with('.')
}

/// Parses the name of an index structure.
pub fn index_kinds() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(IndexKind::ALL.map(IndexKind::name))
        .map(|name| IndexKind::from_name(&name).unwrap_or(IndexKind::Wort))
}
