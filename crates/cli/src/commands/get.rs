//! `lapis get`: a value by its key.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::{Map, Value};

use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{StoreArguments, TableArguments};

/// Print the value of a key, byte for byte
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis get --dir /tmp/store bash
  lapis get --dir /tmp/store picture.png > picture.png
  lapis get --dir /tmp/store bash --json

Exit code 1 if there is no such key. With --json a value that is not UTF-8 is in `value_base64`.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: TableArguments,
    /// The key
    key: OsString,
}

/// Runs `lapis get`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let key = arguments.key.as_bytes();
    let store = arguments.store.open_to_read()?;
    let table = arguments.table.open(&store)?;
    let value = table.get(key)?;
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    object.insert("found".into(), Value::from(value.is_some()));
    if let Some(value) = &value {
        json_bytes::insert(&mut object, "value", value);
    }
    output.json(&object)?;
    match value {
        Some(_) if output.is_json() => Ok(Verdict::Good),
        Some(value) => output.bytes(&value).map(|()| Verdict::Good),
        None => {
            output.flush()?;
            Err(not_there(table.name(), key))
        }
    }
}

/// The sentence for a key that is not there.
pub fn not_there(table: &str, key: &[u8]) -> Failure {
    Failure::NotThere(format!(
        "there is no key `{}` in the table `{table}`; `lapis scan --keys-only` lists the keys",
        json_bytes::shown(key)
    ))
}
