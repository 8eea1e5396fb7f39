//! `lapis export`: writes a table as text that `lapis import` takes back exactly.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use lapis::Table;
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
    let store = arguments.store.open()?;
    let table = arguments.table.open(&store)?;
    let Some(path) = &arguments.output else {
        write_all(&table, format, StandardOutput(output), |error| closed(&error))?;
        return Ok(Verdict::Good);
    };
    let records = write_file(&table, format, path)?;
    output.line(format_args!(
        "exported {} records of the table `{}` to {}",
        grouped(records),
        table.name(),
        path.display()
    ))?;
    output.json(&Report {
        table: table.name().to_owned(),
        format: format.name(),
        output: path.display().to_string(),
        records,
        seconds: started.elapsed().as_secs_f64(),
    })?;
    Ok(Verdict::Good)
}

/// Writes a file beside `path` and then gives it that name. What is there and no ordinary file, a
/// pipe or a device, is written to directly.
fn write_file(table: &Table, format: Format, path: &Path) -> Result<u64, Failure> {
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let file = File::options().write(true).open(path).map_err(failed)?;
        let written = write_all(table, format, BufWriter::new(file), failed);
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
    let (records, sink) = write_all(table, format, BufWriter::new(partial), failed)?;
    let partial = sink.into_inner().map_err(|error| failed(error.into_error()))?;
    partial.as_file().sync_all().map_err(failed)?;
    partial.persist(path).map_err(|error| failed(error.error))?;
    Ok(records)
}

fn write_all<W: Write>(
    table: &Table,
    format: Format,
    sink: W,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<(u64, W), Failure> {
    let mut writer = RecordWriter::new(format, sink);
    for entry in table.iter()? {
        let (key, value) = entry?;
        writer.write(&key, &value).map_err(|error| match error {
            WriteError::NotExpressible { what } => Failure::refused(format!(
                "the record `{}` cannot be written as {}: {what}; use --format jsonl",
                json_bytes::shown(&key),
                format.name()
            )),
            WriteError::Io(error) => failed(error),
        })?;
    }
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
