//! `lapis delete`: removes a key.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::{Map, Value};

use crate::commands::get::not_there;
use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{StoreArguments, TableArguments};

/// Remove a key and its value; durable when the command ends, with --pmem if that is persistent memory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  lapis delete --dir /tmp/store bash

Exit code 1 if there was no such key.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: TableArguments,
    /// The key
    key: OsString,
}

/// Runs `lapis delete`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let key = arguments.key.as_bytes();
    let store = arguments.store.open()?;
    let table = arguments.table.open(&store)?;
    let deleted = table.delete(key)?;
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    object.insert("deleted".into(), Value::from(deleted));
    output.json(&object)?;
    if deleted {
        return Ok(Verdict::Good);
    }
    Err(not_there(table.name(), key))
}
