//! `lapis get`: a value by its key.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lapis::Table;
use serde_json::{Map, Value};

use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{StoreArguments, TableArguments};

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Print the value of a key, byte for byte
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis get --dir /tmp/store bash
  lapis get --dir /tmp/store picture.png --output picture.png
  lapis get --dir /tmp/store bash --json

Exit code 1 if there is no such key. A value is never in memory whole, but for --json without
--output. With --json a value that is not UTF-8 is in `value_base64`.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: TableArguments,
    /// The key
    key: OsString,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `lapis get`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let key = arguments.key.as_bytes();
    let store = arguments.store.open_to_read()?;
    let table = arguments.table.open(&store)?;
    if !output.is_json() || arguments.output.is_some() {
        return copy(&table, key, arguments.output.as_deref(), output);
    }
    let value = table.get(key)?;
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    object.insert("found".into(), Value::from(value.is_some()));
    if let Some(value) = &value {
        json_bytes::insert(&mut object, "value", value);
    }
    output.json(&object)?;
    if value.is_none() {
        return Err(not_there(table.name(), key));
    }
    Ok(Verdict::Good)
}

/// Copies the value to a file or to standard output, piece by piece.
fn copy(
    table: &Table,
    key: &[u8],
    into: Option<&Path>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let mut object = Map::new();
    object.insert("table".into(), Value::from(table.name()));
    json_bytes::insert(&mut object, "key", key);
    let Some(mut reader) = table.reader(key)? else {
        object.insert("found".into(), Value::from(false));
        output.json(&object)?;
        return Err(not_there(table.name(), key));
    };
    let file =
        |path: &Path| File::create(path).map_err(|error| Failure::file("write", path, &error));
    let mut file = into.map(file).transpose()?.zip(into);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = reader.read(&mut piece).map_err(Failure::of_value)?;
        let piece = &piece[..count];
        match &mut file {
            _ if count == 0 => break,
            None => output.bytes(piece)?,
            Some((file, path)) => {
                file.write_all(piece).map_err(|error| Failure::file("write", path, &error))?;
            }
        }
    }
    object.insert("found".into(), Value::from(true));
    object.insert("bytes".into(), Value::from(reader.len()));
    object.extend(into.map(|path| ("output".into(), Value::from(path.display().to_string()))));
    output.json(&object)?;
    Ok(Verdict::Good)
}

/// The sentence for a key that is not there.
pub fn not_there(table: &str, key: &[u8]) -> Failure {
    Failure::NotThere(format!(
        "there is no key `{}` in the table `{table}`; `lapis scan --keys-only` lists the keys",
        json_bytes::shown(key)
    ))
}
