//! `lapis scan`: entries in key order.

use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use lapis::{Error, Table};
use serde_json::{Map, Value};

use crate::failure::{Failure, Verdict};
use crate::json_bytes;
use crate::output::Output;
use crate::store_arguments::{StoreArguments, TableArguments};

/// Print entries in key order, one `key TAB value` line each
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis scan --dir /tmp/store --prefix python3- --keys-only
  lapis scan --dir /tmp/store --from b --to c --limit 10
  lapis scan --dir /tmp/store --reverse --limit 1

Keys compare byte by byte. Values are printed as they are, line feeds included; use --json or
`lapis export --format jsonl` where that matters.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: TableArguments,
    /// Only keys that start with P
    #[arg(long, value_name = "P", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Only keys from A on, A included
    #[arg(long, value_name = "A")]
    from: Option<OsString>,
    /// Only keys before B, B not included
    #[arg(long, value_name = "B")]
    to: Option<OsString>,
    /// From the greatest key down
    #[arg(long)]
    reverse: bool,
    /// At most N entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
}

/// Runs `lapis scan`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let store = arguments.store.open_to_read()?;
    let table = arguments.table.open(&store)?;
    if let (Some(from), Some(to)) = (&arguments.from, &arguments.to)
        && from.as_bytes() > to.as_bytes()
    {
        return Err(Failure::refused("--from lies after --to; swap them"));
    }
    let entries = entries(arguments, &table)?;
    if output.is_json() {
        // Written as it is read: a scan may be larger than memory.
        output
            .bytes(format!("{{\"table\":{},\"entries\":[", Value::from(table.name())).as_bytes())?;
    }
    let mut count = 0;
    let ended = print(entries, arguments, &mut count, output);
    let end = if output.is_json() {
        // An entry that cannot be read ends the object, too: it says why.
        let failure = ended.as_ref().err();
        let why = failure.and_then(|failure| Some((failure.sentence()?, failure.exit_code())));
        let why = why.map_or_else(String::new, |(sentence, code)| {
            format!(",\n\"error\":{},\"code\":{code}", Value::from(sentence))
        });
        output.bytes(format!("],\n\"count\":{count}{why}}}\n").as_bytes())
    } else {
        Ok(())
    };
    ended.and(end).map(|()| Verdict::Good)
}

/// Prints the entries and counts them.
fn print(
    entries: impl Iterator<Item = Entry>,
    arguments: &Arguments,
    count: &mut u64,
    output: &mut Output,
) -> Result<(), Failure> {
    let limit = arguments.limit.unwrap_or(u64::MAX);
    for entry in entries {
        if *count == limit {
            break;
        }
        let (key, value) = entry?;
        if output.is_json() {
            let mut object = Map::new();
            json_bytes::insert(&mut object, "key", &key);
            if !arguments.keys_only {
                json_bytes::insert(&mut object, "value", &value);
            }
            output.bytes(if *count == 0 { b"\n" } else { b",\n" })?;
            output.bytes(Value::Object(object).to_string().as_bytes())?;
        } else {
            output.bytes(&key)?;
            if !arguments.keys_only {
                output.bytes(b"\t")?;
                output.bytes(&value)?;
            }
            output.bytes(b"\n")?;
        }
        *count += 1;
    }
    Ok(())
}

/// A key and its value.
type Entry = Result<(Vec<u8>, Vec<u8>), Error>;

fn entries(
    arguments: &Arguments,
    table: &Table,
) -> Result<Box<dyn Iterator<Item = Entry>>, Failure> {
    let bytes = |text: &Option<OsString>| text.clone().map(OsStringExt::into_vec);
    let entries = if let Some(prefix) = &arguments.prefix {
        table.prefix(prefix.as_bytes())?
    } else {
        let from = bytes(&arguments.from).map_or(Bound::Unbounded, Bound::Included);
        let to = bytes(&arguments.to).map_or(Bound::Unbounded, Bound::Excluded);
        table.range((from, to))?
    };
    Ok(if arguments.reverse { Box::new(entries.rev()) } else { Box::new(entries) })
}
