//! `lapis export`: writes a table as text that `lapis import` takes back exactly.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use lapis::{SalvagedTable, Table};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Verdict};
use crate::formats::{Format, RecordWriter, WriteError};
use crate::json_bytes;
use crate::output::{Output, closed, grouped};
use crate::store_arguments::{StoreArguments, TableArguments};

/// Write a table as tab-separated values, CSV or JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis export --dir /tmp/store > all.tsv
  lapis export --dir /tmp/store --output all.jsonl
  lapis export --dir /tmp/store --format csv | head

With --salvage the store is not opened: every page is looked at, whatever else is damaged. What cannot be
read is listed on standard error (in the report with --json), and the exit code is 1 then. Tables whose names are
lost are called ?tree-N or ?number-N, as the list says.

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
        (name, Source::Damaged { directory: &arguments.store.dir, lost: Vec::new() })
    } else {
        let table = arguments.table.open(&arguments.store.open_to_read()?)?;
        (table.name().to_owned(), Source::Table(table))
    };
    let Some(path) = &arguments.output else {
        let sink = StandardOutput(output);
        write_all(&mut source, &name, format, sink, |error| closed(&error))?;
        return source.verdict();
    };
    let records = write_file(&mut source, &name, format, path)?;
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
    Damaged { directory: &'a Path, lost: Vec<String> },
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
        for lost in self.lost() {
            eprintln!("lapis: lost: {lost}");
        }
        Ok(if self.lost().is_empty() { Verdict::Good } else { Verdict::Bad })
    }

    /// Tells of every record of the table, until one is refused.
    fn for_each(&mut self, name: &str, tell: TellRecord<'_>) -> Result<(), Failure> {
        let (directory, all_lost) = match self {
            Self::Table(table) => {
                for entry in table.iter()? {
                    let (key, value) = entry?;
                    tell(&key, &value)?;
                }
                return Ok(());
            }
            Self::Damaged { directory, lost } => (directory, lost),
        };
        let (mut others, mut refused) = (BTreeMap::<String, u64>::new(), None);
        let report = lapis::salvage(directory, &mut |table, key, value| {
            let table = name_of(table);
            if table != name {
                *others.entry(table).or_default() += 1;
                return ControlFlow::Continue(());
            }
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
        refused.map_or(Ok(()), Err)
    }
}

/// What a table is called, or what stands for the name that is lost.
fn name_of(table: &SalvagedTable) -> String {
    match table {
        SalvagedTable::Named(name) => name.clone(),
        SalvagedTable::Nameless(tree) => format!("?tree-{tree}"),
        SalvagedTable::Numbered(number) => format!("?number-{number}"),
    }
}

/// Writes a file beside `path` and then gives it that name. What is there and no ordinary file, a
/// pipe or a device, is written to directly.
fn write_file(
    source: &mut Source<'_>,
    name: &str,
    format: Format,
    path: &Path,
) -> Result<u64, Failure> {
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let file = File::options().write(true).open(path).map_err(failed)?;
        let written = write_all(source, name, format, BufWriter::new(file), failed);
        return written.map(|(records, _)| records);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let partial: NamedTempFile = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(failed)?;
    let (records, sink) = write_all(source, name, format, BufWriter::new(partial), failed)?;
    let partial = sink.into_inner().map_err(|error| failed(error.into_error()))?;
    partial.as_file().sync_all().map_err(failed)?;
    partial.persist(path).map_err(|error| failed(error.error))?;
    Ok(records)
}

fn write_all<W: Write>(
    source: &mut Source<'_>,
    name: &str,
    format: Format,
    sink: W,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<(u64, W), Failure> {
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
    let sink = writer.finish().map_err(failed)?;
    Ok((records, sink))
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
