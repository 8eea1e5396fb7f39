//! `lapis put`: stores a value.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lapis::TimeToLive;
use serde_json::{Map, Value};

use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{NewTableArguments, StoreArguments};
use crate::time_argument;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Store a value under a key; durable when the command ends, with --pmem if that is persistent memory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis put --dir /tmp/store bash \"GNU Bourne Again SHell\"
  lapis put --dir /tmp/store picture.png --file picture.png
  date | lapis put --dir /tmp/store now -
  lapis put --dir /tmp/store --ttl 30m session-17 ada

The store and the table are created if they are not there. The value `-` is read from standard
input; values that are not text come from a file or from there. A value may have up to 1 GiB and
is never in memory whole.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: NewTableArguments,
    /// The key: 1 to 1,970 bytes, and several times as many in a table in a persistent index (--index)
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
    let (name, mut from): (&Path, Box<dyn Read>) = match (&arguments.value, &arguments.file) {
        (Some(value), _) if value != "-" => (Path::new("the value"), Box::new(value.as_bytes())),
        (None, Some(path)) if path != Path::new("-") => {
            let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
            // A directory opens, and is found out by reading.
            let mut file = BufReader::with_capacity(PIECE_BYTES, file);
            file.fill_buf().map_err(|error| Failure::file("read", path, &error))?;
            (path, Box::new(file))
        }
        (None, None) => return Err(Failure::refused("give a value or --file")),
        _ => (Path::new("standard input"), Box::new(io::stdin().lock())),
    };
    let key = arguments.key.as_bytes();
    if key.is_empty() {
        return Err(lapis::Error::EmptyKey.into());
    }
    let store = arguments.store.open_or_create(true)?;
    let table = arguments.table.open(&store)?;
    let time_to_live = arguments.ttl.map_or(TimeToLive::OfTable, TimeToLive::For);
    let mut writer = table.writer_with(key, time_to_live)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::file("read", name, &error)),
        };
        writer.write_all(&piece[..count]).map_err(Failure::of_value)?;
    }
    let bytes = writer.len();
    writer.finish()?;
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    object.insert("bytes".into(), Value::from(bytes));
    output.json(&object)?;
    Ok(Verdict::Good)
}
