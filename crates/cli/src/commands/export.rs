//! `lapis export`: writes a table as text that `lapis import` takes back exactly.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use lapis::{SalvagedTable, Store, Table};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::formats::{Format, RecordWriter, WriteError};
use crate::json_bytes;
use crate::output::{Output, closed, grouped, unless_closed};
use crate::store_arguments::{StoreArguments, TableArguments, is_internal};
use crate::{complain, whole_file};

/// Write a table as tab-separated values, CSV or JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis export --dir /tmp/store > all.tsv
  lapis export --dir /tmp/store --output all.jsonl
  lapis export --dir /tmp/store --format csv | head

With --salvage the store is not opened: every page is looked at, whatever else is damaged. What
cannot be read is listed on standard error (in the report with --json), and the exit code is 1
then. Tables whose names are lost are called ?tree-N or ?number-N, as the list says.

`lapis import` of the result gives the same table. csv and jsonl carry any bytes (jsonl in base64
where they are not UTF-8); tsv carries no tab in a key and no line feed. A file appears when it is
complete, never in part. --json prints a report and so needs --output.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: TableArguments,
    /// How to write the records [default: by the extension of --output, else tsv]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write what can be read of a damaged store
    #[arg(long)]
    salvage: bool,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    table: String,
    format: &'static str,
    output: String,
    records: u64,
    /// What cannot be read, with --salvage.
    lost: Vec<String>,
    seconds: f64,
}

/// Runs `lapis export`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let format = arguments
        .format
        .or_else(|| Format::of_path(arguments.output.as_deref()?))
        .unwrap_or(Format::Tsv);
    if output.is_json() && arguments.output.is_none() {
        return Err(Failure::refused(
            "--json prints a report; say with --output where the records go",
        ));
    }
    let (name, mut source) = if arguments.salvage {
        let name = arguments.table.table.clone();
        (name, Source::Damaged { store: &arguments.store, lost: Vec::new() })
    } else {
        let table = arguments.table.open(&arguments.store.open_to_read()?)?;
        (table.name().to_owned(), Source::Table(table))
    };
    let Some(path) = &arguments.output else {
        let sink = StandardOutput(output);
        let written = write_all(&mut source, &name, format, sink, |error| closed(&error));
        unless_closed(written.map(drop))?;
        return source.verdict();
    };
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let records =
        whole_file::write(path, |sink| write_all(&mut source, &name, format, sink, failed))?;
    output.line(format_args!(
        "exported {} records of the table `{name}` to {}",
        grouped(records),
        path.display()
    ))?;
    let lost = source.lost().to_vec();
    output.json(&Report {
        table: name,
        format: format.name(),
        output: path.display().to_string(),
        records,
        lost,
        seconds: started.elapsed().as_secs_f64(),
    })?;
    source.verdict()
}

/// What is done with a record: its key and its value.
type TellRecord<'t> = &'t mut dyn FnMut(&[u8], &[u8]) -> Result<(), Failure>;

/// Where the records come from.
enum Source<'a> {
    Table(Table),
    Damaged { store: &'a StoreArguments, lost: Vec<String> },
}

impl Source<'_> {
    fn lost(&self) -> &[String] {
        match self {
            Self::Table(_) => &[],
            Self::Damaged { lost, .. } => lost,
        }
    }

    /// Lists what cannot be read.
    fn verdict(&self) -> Result<Verdict, Failure> {
        self.lost().iter().for_each(|lost| complain(format_args!("lost: {lost}")));
        Ok(if self.lost().is_empty() { Verdict::Good } else { Verdict::Bad })
    }

    /// Tells of every record of the table, until one is refused.
    fn for_each(&mut self, name: &str, tell: TellRecord<'_>) -> Result<(), Failure> {
        let (store, all_lost) = match self {
            Self::Table(table) => {
                for entry in table.iter()? {
                    let (key, value) = entry?;
                    tell(&key, &value)?;
                }
                return Ok(());
            }
            Self::Damaged { store, lost } => (store, lost),
        };
        let (mut others, mut is_met, mut refused) = (BTreeMap::<String, u64>::new(), false, None);
        let report = lapis::salvage(&store.dir, &mut |table, key, value| {
            let table = name_of(table);
            if table != name {
                *others.entry(table).or_default() += 1;
                return ControlFlow::Continue(());
            }
            is_met = true;
            match tell(key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    refused = Some(failure);
                    ControlFlow::Break(())
                }
            }
        })?;
        all_lost.extend(report.lost.iter().map(ToString::to_string));
        for (other, entries) in others.iter().filter(|(other, _)| other.starts_with('?')) {
            all_lost.push(format!("the name of the table {other}, which has {entries} entries"));
        }
        let mut of_tables = report.lost.iter().filter_map(|lost| lost.table.as_ref());
        is_met |= of_tables.any(|table| name_of(table) == name);
        if !is_met && !is_there_empty(store, name) {
            self.verdict()?;
            return Err(not_met(name, others.keys()));
        }
        refused.map_or(Ok(()), Err)
    }
}

/// Whether a table of which nothing was met is there. Nothing is written by looking.
fn is_there_empty(store: &StoreArguments, name: &str) -> bool {
    let opened = Store::open(store.config().read_only(true));
    opened.and_then(|store| store.table(name)).is_ok()
}

/// The sentence for a table of which nothing was met.
fn not_met<'a>(name: &str, others: impl Iterator<Item = &'a String>) -> Failure {
    let others: Vec<_> = others.filter(|other| !is_internal(other)).cloned().collect();
    Failure::refused(if others.is_empty() {
        format!("nothing of a table `{name}` was met, nor of any other")
    } else {
        format!("nothing of a table `{name}` was met; there is something of {}", others.join(", "))
    })
}

/// What a table is called, or what stands for the name that is lost.
fn name_of(table: &SalvagedTable) -> String {
    match table {
        SalvagedTable::Named(name) => name.clone(),
        SalvagedTable::Nameless(tree) => format!("?tree-{tree}"),
        SalvagedTable::Numbered(number) => format!("?number-{number}"),
    }
}

fn write_all<W: Write>(
    source: &mut Source<'_>,
    name: &str,
    format: Format,
    sink: W,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut writer = RecordWriter::new(format, sink);
    source.for_each(name, &mut |key, value| {
        writer.write(key, value).map_err(|error| match error {
            WriteError::NotExpressible { what } => Failure::refused(format!(
                "the record `{}` cannot be written as {}: {what}; use --format jsonl",
                json_bytes::shown(key),
                format.name()
            )),
            WriteError::Io(error) => failed(error),
        })
    })?;
    let records = writer.records();
    writer.finish().map_err(failed)?;
    Ok(records)
}

/// Standard output as a destination of bytes.
struct StandardOutput<'a>(&'a mut Output);

impl Write for StandardOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.bytes(bytes).map_err(as_io)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(as_io)
    }
}

fn as_io(failure: Failure) -> io::Error {
    match failure {
        Failure::OutputClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::other(other.sentence().unwrap_or_default()),
    }
}
