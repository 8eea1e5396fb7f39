//! `lapis put`: stores a value.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lapis::{MAX_VALUE_BYTES, TimeToLive};
use serde_json::{Map, Value};

use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{NewTableArguments, StoreArguments};
use crate::time_argument;

/// Store a value under a key; durable when the command ends
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis put --dir /tmp/store bash \"GNU Bourne Again SHell\"
  lapis put --dir /tmp/store picture.png --file picture.png
  date | lapis put --dir /tmp/store now -
  lapis put --dir /tmp/store --ttl 30m session-17 ada

The store and the table are created if they are not there. The value `-` is read from standard
input; values that are not text come from a file or from there.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: NewTableArguments,
    /// The key: 1 to 1,970 bytes
    key: OsString,
    /// The value, or - for standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    value: Option<OsString>,
    /// A file that holds the value (- for standard input)
    #[arg(long, value_name = "F")]
    file: Option<PathBuf>,
    /// How long the entry lives: as in 90s, 5m, 2h, 30d [default: as the table says, or for ever]
    #[arg(long, value_name = "TIME", value_parser = time_argument::parse)]
    ttl: Option<Duration>,
}

/// Runs `lapis put`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let value = match (&arguments.value, &arguments.file) {
        (Some(value), _) if value == "-" => read_standard_input()?,
        (Some(value), _) => value.as_bytes().to_vec(),
        (None, Some(file)) if file == Path::new("-") => read_standard_input()?,
        (None, Some(file)) => read_file(file)?,
        (None, None) => return Err(Failure::refused("give a value or --file")),
    };
    let key = arguments.key.as_bytes();
    if key.is_empty() {
        return Err(lapis::Error::EmptyKey.into());
    }
    let store = arguments.store.open_or_create(true)?;
    let table = arguments.table.open(&store)?;
    let time_to_live = arguments.ttl.map_or(TimeToLive::OfTable, TimeToLive::For);
    table.put_with(key, &value, time_to_live)?;
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    object.insert("bytes".into(), Value::from(value.len()));
    output.json(&object)?;
    Ok(Verdict::Good)
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure::file("read", path, &error);
    let file = File::open(path).map_err(failed)?;
    read_value(file).map_err(failed)
}

fn read_standard_input() -> Result<Vec<u8>, Failure> {
    read_value(io::stdin())
        .map_err(|error| Failure::file("read", Path::new("standard input"), &error))
}

/// Reads to the end, but no more than shows that a value is too long.
fn read_value(input: impl Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    input.take(MAX_VALUE_BYTES as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}
