//! `lapis import`: loads a text file of records, in batches, and resumes where it was stopped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use lapis::{Store, Table};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::formats::{Format, Layout, Position, ReadError, Record, RecordReader};
use crate::import_progress::{FileIdentity, Journal, Progress, Reading};
use crate::output::{Output, grouped, human_bytes};
use crate::progress;
use crate::store_arguments::{NewTableArguments, StoreArguments};

/// A batch ends early at this many bytes of keys and values, whatever `--batch` says.
const BATCH_BYTES: usize = 256 * 1024;

/// Load a file of records: tab-separated, CSV or JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis import --dir /tmp/store packages.tsv
  lapis import --dir /tmp/store people.csv --key-field email --table people
  lapis import --dir /tmp/store events.jsonl --key-field id --value-field body
  zcat big.tsv.gz | lapis import --dir /tmp/store - --format tsv

How a line becomes a record:
  tsv    key TAB value; the value is the rest of the line, tabs kept
  csv    RFC 4180; the key is the first field, or --key-column N, or the column that the first line
         calls --key-field; a single other field is the value, several stay one CSV record
  jsonl  an object per line; the key is the field `key` or --key-field, the value is the whole line
         or --value-field; what `lapis export` wrote is taken back exactly (FIELD_base64 is base64)

A batch is one transaction: all of it is stored or nothing. How far the import has come is stored in
the same transaction, so that after a crash the same command goes on where it stopped, and once it
is finished the same command does nothing (--again: import it again). A file counts as the same if
its path, length, time of change and first 64 KiB are. Standard input and pipes have no such memory.

With --acknowledge a line `acknowledged N` appears on standard output, even with --json, after each
batch: the first N records of the file are durable at that moment.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    table: NewTableArguments,
    /// The file, or - for standard input
    file: PathBuf,
    /// How the file is written [default: by its extension]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The column of the key, counted from 1 (tsv, csv)
    #[arg(long, value_name = "N", conflicts_with = "key_field", value_parser = clap::value_parser!(u32).range(1..))]
    key_column: Option<u32>,
    /// The field of the key (jsonl), or the name of its column in the first line (csv)
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,
    /// The field of the value (jsonl) [default: the whole line]
    #[arg(long, value_name = "NAME")]
    value_field: Option<String>,
    /// The first line is no record but the names of the columns (csv, tsv)
    #[arg(long)]
    header: bool,
    /// Records per transaction
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Import a file again that has been imported
    #[arg(long)]
    again: bool,
    /// Print `acknowledged N` when the first N records are durable
    #[arg(long)]
    acknowledge: bool,
}

#[derive(Serialize)]
struct Report {
    file: String,
    table: String,
    format: &'static str,
    records: u64,
    bytes: u64,
    seconds: f64,
    records_per_s: f64,
    resumed_from: u64,
    already_imported: bool,
    total_records: u64,
}

/// Runs `lapis import`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let from_pipe = is_pipe(&arguments.file);
    let format = format_of(arguments, from_pipe)?;
    check_layout(arguments, format)?;
    // Everything about the file is settled before a store is made for it.
    let identity = if from_pipe { None } else { Some(FileIdentity::of(&arguments.file)?) };
    let store = arguments.store.open_or_create(true)?;
    let table = arguments.table.open(&store)?;
    let reading = Reading {
        format: format.name().to_owned(),
        key_column: arguments.key_column.map(|column| column as usize),
        key_field: arguments.key_field.clone(),
        value_field: arguments.value_field.clone(),
        header: arguments.header,
    };
    let (journal, progress) = match identity {
        None => (None, None),
        Some(file) => {
            let journal = Journal::open(&store, table.name(), &file.path)?;
            let progress = match journal.load()? {
                Some(found) if found.continues(&file, &reading) && !arguments.again => found,
                _ => Progress::start(file, reading),
            };
            (Some(journal), Some(progress))
        }
    };
    let resumed_from = progress.as_ref().map_or(0, |progress| progress.records);
    let already_imported = progress.as_ref().is_some_and(|progress| progress.finished);
    let mut import = Import { arguments, store, table, journal, progress, records: resumed_from };
    let bytes = if already_imported { 0 } else { import.run(format, output)? };
    let seconds = started.elapsed().as_secs_f64();
    let records = import.records - resumed_from;
    let report = Report {
        file: arguments.file.display().to_string(),
        table: import.table.name().to_owned(),
        format: format.name(),
        records,
        bytes,
        seconds,
        records_per_s: if seconds > 0.0 { records as f64 / seconds } else { 0.0 },
        resumed_from,
        already_imported,
        total_records: import.records,
    };
    say(&report, output)?;
    output.json(&report)?;
    Ok(Verdict::Good)
}

fn say(report: &Report, output: &mut Output) -> Result<(), Failure> {
    let Report { file, table, .. } = report;
    if report.already_imported {
        return output.line(format_args!(
            "{file} is in the table `{table}` already, {} records; nothing to do (--again imports it again)",
            grouped(report.total_records)
        ));
    }
    if report.resumed_from > 0 {
        output.line(format_args!(
            "resumed after {} records that an earlier import had stored",
            grouped(report.resumed_from)
        ))?;
    }
    output.line(format_args!(
        "imported {} records ({}) from {file} into the table `{table}` in {:.2} s, {} records/s",
        grouped(report.records),
        human_bytes(report.bytes),
        report.seconds,
        grouped(report.records_per_s as u64)
    ))
}

/// Whether the input can be read once only: standard input, a pipe, a device.
fn is_pipe(path: &Path) -> bool {
    let special = || path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir());
    path == Path::new("-") || special()
}

fn format_of(arguments: &Arguments, from_pipe: bool) -> Result<Format, Failure> {
    if let Some(format) = arguments.format {
        return Ok(format);
    }
    Format::of_path(&arguments.file).ok_or_else(|| {
        Failure::refused(if from_pipe {
            "give --format tsv, csv or jsonl for what comes through a pipe".to_owned()
        } else {
            format!(
                "cannot tell the format of {} by its name; give --format tsv, csv or jsonl",
                arguments.file.display()
            )
        })
    })
}

fn check_layout(arguments: &Arguments, format: Format) -> Result<(), Failure> {
    let wrong = match format {
        Format::Jsonl if arguments.key_column.is_some() => {
            "--key-column is for tsv and csv; use --key-field"
        }
        Format::Jsonl if arguments.header => "--header is for tsv and csv; leave it out",
        Format::Tsv if arguments.key_field.is_some() => {
            "--key-field is for csv and jsonl; use --key-column"
        }
        Format::Tsv | Format::Csv if arguments.value_field.is_some() => {
            "--value-field is for jsonl; leave it out"
        }
        _ => return Ok(()),
    };
    Err(Failure::refused(wrong))
}

/// An import under way.
struct Import<'a> {
    arguments: &'a Arguments,
    store: Store,
    table: Table,
    journal: Option<Journal>,
    progress: Option<Progress>,
    /// Records of the file that are durable.
    records: u64,
}

impl Import<'_> {
    /// Imports what is left of the file. Returns the bytes read.
    fn run(&mut self, format: Format, output: &mut Output) -> Result<u64, Failure> {
        let start = self.progress.as_ref().map_or_else(Position::default, Progress::position);
        let input = open(&self.arguments.file, start)?;
        let found = self.progress.as_ref().and_then(|progress| progress.found_key_column);
        let layout = Layout {
            key_column: found.or(self.arguments.key_column.map(|column| column as usize)),
            key_field: self.arguments.key_field.clone(),
            value_field: self.arguments.value_field.clone(),
            header: self.arguments.header,
            longest_key_bytes: Some(self.table.largest_key_bytes()),
        };
        let bar = match &self.progress {
            Some(progress) => progress::bytes(progress.file.length_bytes()),
            None => ProgressBar::hidden(),
        };
        let mut reader =
            RecordReader::new(format, &layout, input, start).map_err(|error| self.wrong(error))?;
        if let Some(progress) = &mut self.progress {
            progress.found_key_column = reader.key_column();
        }
        loop {
            let (batch, ended) = self.read_batch(&mut reader)?;
            if batch.is_empty() && !ended {
                continue;
            }
            self.store(&batch, reader.position(), ended)?;
            bar.set_position(reader.position().byte_offset);
            if self.arguments.acknowledge && !batch.is_empty() {
                output.bytes(format!("acknowledged {}\n", self.records).as_bytes())?;
                output.flush()?;
            }
            if ended {
                bar.finish_and_clear();
                return Ok(reader.position().byte_offset - start.byte_offset);
            }
        }
    }

    /// The next batch, and whether the file ends with it.
    fn read_batch(&self, reader: &mut RecordReader) -> Result<(Vec<Record>, bool), Failure> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.arguments.batch as usize && bytes < BATCH_BYTES {
            match reader.next().map_err(|error| self.wrong(error))? {
                None => return Ok((batch, true)),
                Some((record, _)) => {
                    bytes += record.key.len() + record.value.len();
                    batch.push(record);
                }
            }
        }
        Ok((batch, false))
    }

    /// Stores a batch and how far it brings the import, in one transaction.
    fn store(&mut self, batch: &[Record], end: Position, ended: bool) -> Result<(), Failure> {
        let mut transaction = self.store.transaction()?;
        for record in batch {
            transaction.put(&self.table, &record.key, &record.value)?;
        }
        let records = self.records + batch.len() as u64;
        if let (Some(journal), Some(progress)) = (&self.journal, &mut self.progress) {
            progress.byte_offset = end.byte_offset;
            progress.lines = end.lines;
            progress.records = records;
            progress.finished = ended;
            journal.save(&mut transaction, progress)?;
        }
        transaction.commit()?;
        self.records = records;
        Ok(())
    }

    /// The sentence for a record that cannot be read.
    fn wrong(&self, error: ReadError) -> Failure {
        let file = self.arguments.file.display();
        match error {
            ReadError::Bad { line, what } => Failure::refused(format!(
                "{file}:{line}: {what}; correct it and import again (its batch is not stored, \
                 the {} records before are)",
                grouped(self.records)
            )),
            ReadError::Io(error) => Failure::file("read", &self.arguments.file, &error),
        }
    }
}

fn open(path: &Path, start: Position) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(1 << 18, io::stdin())));
    }
    let failed = |error: io::Error| Failure::file("read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    if start.byte_offset > 0 {
        file.seek(SeekFrom::Start(start.byte_offset)).map_err(failed)?;
    }
    Ok(Box::new(BufReader::with_capacity(1 << 18, file)))
}
