//! `lapis import`: loads a text file of records, in batches, and resumes where it was stopped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use lapis::{Durability, Store, Table, Transaction};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::formats::{
    Format, KeyColumns, KeyPart, Layout, Position, ReadError, Record, RecordReader,
    begins_with_a_record, guess, is_enough,
};
use crate::import_progress::{FileIdentity, Journal, Progress, Reading};
use crate::json_bytes::shown;
use crate::output::{Output, grouped, human_bytes, unless_closed};
use crate::progress;
use crate::store_arguments::{NewTableArguments, StoreArguments};

/// A batch ends early at this many bytes of keys and values, whatever `--batch` says.
const BATCH_BYTES: usize = 256 * 1024;

/// The most bytes of a file's beginning that its layout is guessed from.
const BEGINNING_BYTES: usize = 256 * 1024;

/// Load a file of records: tab-separated, CSV or JSON lines
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis import --dir /tmp/store packages.tsv
  lapis import --dir /tmp/store people.csv --key email --table people
  lapis import --dir /tmp/store trace.csv --key time_us,lbn --on-duplicate error
  lapis import --dir /tmp/store events.jsonl --key id --value-field body
  LC_ALL=C sort people.tsv | lapis import --dir /tmp/store - --format tsv --sorted
  zcat big.tsv.gz | lapis import --dir /tmp/store - --format tsv

How a line becomes a record:
  tsv    the key is the first field, the value is the rest of the line, tabs kept
  csv    RFC 4180; the key is the first field; a single other field is the value, several stay one
         CSV record
  jsonl  an object per line; the key is the field `key`, the value is the whole line or
         --value-field; what `lapis export` wrote is taken back exactly (FIELD_base64 is base64)

--key names other columns or fields; several are one key, with colons between them. A first line
without numbers above columns of numbers is taken for the names of the columns (--header=no: it is
a record). Of two columns it is a record, unless --header=yes says otherwise. Keys that are there
already, from this file or before, are replaced and counted, unless --on-duplicate says otherwise.

A batch is one transaction: all of it is stored or nothing. How far the import has come is stored in
the same transaction, so that after a crash the same command goes on where it stopped, and once it
is finished the same command does nothing (--again: import it again). A file counts as the same if
its path, length, time of change and first 64 KiB are. Standard input and pipes have no such memory.

With --sorted, records whose keys ascend become a new table (or an empty one's) leaf by leaf: each
is written once, and nothing is searched for. It is there whole or not at all, so there is nothing
to resume.

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
    /// The columns or fields of the key, by number or name, separated by commas
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    key: Vec<KeyPart>,
    /// The field of the value (jsonl) [default: the whole line]
    #[arg(long, value_name = "NAME")]
    value_field: Option<String>,
    /// Whether the first line is no record but the names of the columns (csv, tsv)
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    header: Header,
    /// What separates fields (csv)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    delimiter: Delimiter,
    /// What becomes of a record whose key is there already
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_duplicate: OnDuplicate,
    /// Records per transaction
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// The keys ascend: make a new table of them at once, in about half the time. There is all of it at the end, or nothing
    #[arg(long, conflicts_with_all = ["index", "table_ttl", "acknowledge", "on_duplicate", "batch"])]
    sorted: bool,
    /// Import a file again that has been imported
    #[arg(long)]
    again: bool,
    /// Print `acknowledged N` when the first N records are durable
    #[arg(long)]
    acknowledge: bool,
}

/// Whether the first line has names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Header {
    /// As it looks
    #[default]
    Auto,
    /// It has
    Yes,
    /// It has not
    No,
}

/// What separates the fields of CSV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Delimiter {
    #[default]
    Comma,
    Semicolon,
    Tab,
    Pipe,
    Space,
}

impl Delimiter {
    fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
            Self::Pipe => b'|',
            Self::Space => b' ',
        }
    }
}

/// What becomes of a record whose key is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OnDuplicate {
    /// The import ends; the records before are stored
    Error,
    /// The record that is there stays
    Keep,
    /// It is replaced
    #[default]
    Replace,
}

#[derive(Serialize)]
struct Report {
    file: String,
    table: String,
    format: &'static str,
    /// Columns or fields of the key.
    key: Vec<String>,
    /// Whether the first line was taken for the names of the columns.
    header: bool,
    records: u64,
    /// Records whose key was there already: replaced, or left out.
    duplicates: u64,
    warnings: Vec<String>,
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
        key: arguments.key.clone(),
        value_field: arguments.value_field.clone(),
        header: arguments.header != Header::No,
        delimiter: arguments.delimiter.byte(),
    };
    let (journal, progress) = match identity {
        None => (None, None),
        Some(file) => {
            let journal = Journal::open(&store, table.name(), &file.path)?;
            let progress = match journal.load()? {
                Some(found)
                    if found.continues(&file, &reading)
                        && !arguments.again
                        // A table that is made at once has all records, from the first on.
                        && (found.finished || !arguments.sorted) =>
                {
                    found
                }
                _ => Progress::start(file, reading),
            };
            (Some(journal), Some(progress))
        }
    };
    let resumed_from = progress.as_ref().map_or(0, |progress| progress.records);
    let already_imported = progress.as_ref().is_some_and(|progress| progress.finished);
    let mut import = Import {
        arguments,
        store,
        table,
        journal,
        progress,
        records: resumed_from,
        duplicates: 0,
        header: false,
        key: KeyColumns::default(),
        warnings: Vec::new(),
    };
    let run = if already_imported { Ok(0) } else { import.run(format, output) };
    // Whatever has ended it: it is said how many records are stored.
    import.store.sync()?;
    let bytes = run?;
    let seconds = started.elapsed().as_secs_f64();
    let records = import.records - resumed_from;
    let report = Report {
        file: arguments.file.display().to_string(),
        table: import.table.name().to_owned(),
        format: format.name(),
        key: import.key.names,
        header: import.header,
        records,
        duplicates: import.duplicates,
        warnings: import.warnings,
        bytes,
        seconds,
        records_per_s: if seconds > 0.0 { records as f64 / seconds } else { 0.0 },
        resumed_from,
        already_imported,
        total_records: import.records,
    };
    say(&report, arguments.on_duplicate, output)?;
    output.json(&report)?;
    Ok(Verdict::Good)
}

fn say(report: &Report, on_duplicate: OnDuplicate, output: &mut Output) -> Result<(), Failure> {
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
    ))?;
    output.line(format_args!(
        "the key is {}{}",
        report.key.join(", "),
        if report.header { "; the first line was taken for names" } else { "" }
    ))?;
    if report.duplicates > 0 {
        output.line(format_args!(
            "WARNING: {} of these records had keys that were there already, and {}",
            grouped(report.duplicates),
            match on_duplicate {
                OnDuplicate::Keep => "were left out",
                _ => "replaced what they had; is the key another column? (--key)",
            }
        ))?;
    }
    report.warnings.iter().try_for_each(|warning| output.line(format_args!("WARNING: {warning}")))
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
        Format::Jsonl if arguments.header == Header::Yes => {
            "--header is for tsv and csv; leave it out"
        }
        Format::Jsonl | Format::Tsv if arguments.delimiter != Delimiter::Comma => {
            "--delimiter is for csv; add --format csv"
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
    /// Records of the file that are stored.
    records: u64,
    /// Records whose key was there.
    duplicates: u64,
    header: bool,
    key: KeyColumns,
    warnings: Vec<String>,
}

impl Import<'_> {
    /// Imports what is left of the file. Returns the bytes read.
    fn run(&mut self, format: Format, output: &mut Output) -> Result<u64, Failure> {
        let start = self.progress.as_ref().map_or_else(Position::default, Progress::position);
        let mut input = open(&self.arguments.file, start)?;
        let found = self.progress.as_ref().and_then(|progress| progress.found_key.clone());
        if found.is_none() && format != Format::Jsonl {
            let failed = |error| Failure::file("read", &self.arguments.file, &error);
            let delimiter = match format {
                Format::Csv => self.arguments.delimiter.byte(),
                _ => b'\t',
            };
            let named = self.arguments.key.iter().any(|part| matches!(part, KeyPart::Name(_)));
            let is_asked = named || self.arguments.header != Header::Auto;
            // Who waits for the first record to be acknowledged sends no second one before.
            let does = |beginning: &[u8]| {
                let is_settled = || is_asked || begins_with_a_record(beginning, delimiter);
                is_enough(beginning) || self.arguments.acknowledge && is_settled()
            };
            let beginning = read_until(&mut input, does).map_err(failed)?;
            let guess = guess(&beginning, delimiter);
            input = Box::new(Cursor::new(beginning).chain(input));
            self.header = match self.arguments.header {
                Header::Auto => named || guess.has_header,
                asked => asked == Header::Yes,
            };
            self.warnings = guess.warnings;
            if guess.may_be_header && !is_asked {
                self.warnings.push(
                    "the first line may be names, and was taken for a record (--header=yes: leave it out)"
                        .to_owned(),
                );
            }
        }
        let layout = Layout {
            key: self.arguments.key.clone(),
            found,
            value_field: self.arguments.value_field.clone(),
            header: self.header,
            delimiter: self.arguments.delimiter.byte(),
            longest_key_bytes: Some(self.table.largest_key_bytes()),
        };
        let bar = match &self.progress {
            Some(progress) => progress::bytes(progress.file.length_bytes()),
            None => ProgressBar::hidden(),
        };
        let mut reader =
            RecordReader::new(format, &layout, input, start).map_err(|error| self.wrong(error))?;
        self.key = reader.key();
        if let Some(progress) = self.progress.as_mut().filter(|_| format != Format::Jsonl) {
            progress.found_key = Some(self.key.clone());
        }
        if self.arguments.sorted {
            self.load(&mut reader, &bar)?;
            bar.finish_and_clear();
            return Ok(reader.position().byte_offset - start.byte_offset);
        }
        loop {
            let (batch, ended) = self.read_batch(&mut reader)?;
            if batch.is_empty() && !ended {
                continue;
            }
            self.store(&batch, reader.position(), ended)?;
            bar.set_position(reader.position().byte_offset);
            if self.arguments.acknowledge && !batch.is_empty() {
                let line = format!("acknowledged {}\n", self.records);
                // Nobody has to hear of it for the rest of the file to be imported.
                unless_closed(output.bytes(line.as_bytes()).and_then(|()| output.flush()))?;
            }
            if ended {
                bar.finish_and_clear();
                return Ok(reader.position().byte_offset - start.byte_offset);
            }
        }
    }

    /// Makes a table of all records, in place of one that is empty.
    fn load(&mut self, reader: &mut RecordReader, bar: &ProgressBar) -> Result<(), Failure> {
        let (name, table) = (self.table.name().to_owned(), &self.table);
        let is_plain = table.index_kind().is_none() && table.time_to_live().is_none();
        if !is_plain || !table.is_empty()? {
            return Err(Failure::refused(format!(
                "the table `{name}` {}; leave --sorted out or name a new table",
                if is_plain { "has entries" } else { "is in an index or its entries expire" }
            )));
        }
        let leaves = table.leaves().unwrap_or_default();
        self.store.drop_table(&name)?;
        let (mut last, mut records) = (Vec::new(), 0);
        let mut load = self.store.begin_load(&name, leaves)?;
        while let Some((record, line)) = reader.next().map_err(|error| self.wrong(error))? {
            if record.key <= last {
                return Err(Failure::refused(format!(
                    "{}:{line}: the key `{}` does not come behind `{}`; nothing is stored: leave --sorted out",
                    self.arguments.file.display(),
                    shown(&record.key),
                    shown(&last)
                )));
            }
            load.push(&record.key, &record.value)?;
            last = record.key;
            records += 1;
            bar.set_position(reader.position().byte_offset);
        }
        self.table = load.finish()?;
        self.records = records;
        let mut transaction = self.store.transaction()?;
        self.save(&mut transaction, records, reader.position(), true)?;
        transaction.commit()?;
        Ok(())
    }

    /// Notes how far the import has come.
    fn save(
        &mut self,
        transaction: &mut Transaction,
        records: u64,
        end: Position,
        ended: bool,
    ) -> Result<(), Failure> {
        if let (Some(journal), Some(progress)) = (&self.journal, &mut self.progress) {
            progress.byte_offset = end.byte_offset;
            progress.lines = end.lines;
            progress.records = records;
            progress.finished = ended;
            journal.save(transaction, progress)?;
        }
        Ok(())
    }

    /// The next batch, and whether the file ends with it.
    fn read_batch(&self, reader: &mut RecordReader) -> Result<(Vec<(Record, u64)>, bool), Failure> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.arguments.batch as usize && bytes < BATCH_BYTES {
            match reader.next().map_err(|error| self.wrong(error))? {
                None => return Ok((batch, true)),
                Some((record, line)) => {
                    bytes += record.key.len() + record.value.len();
                    batch.push((record, line));
                }
            }
        }
        Ok((batch, false))
    }

    /// Stores a batch and how far it brings the import, in one transaction.
    fn store(
        &mut self,
        batch: &[(Record, u64)],
        end: Position,
        ended: bool,
    ) -> Result<(), Failure> {
        let mut transaction = self.store.transaction()?;
        let mut duplicates = 0;
        for (record, line) in batch {
            if transaction.get(&self.table, &record.key)?.is_some() {
                duplicates += 1;
                match self.arguments.on_duplicate {
                    OnDuplicate::Replace => {}
                    OnDuplicate::Keep => continue,
                    OnDuplicate::Error => return Err(self.duplicate(record, *line)),
                }
            }
            transaction.put(&self.table, &record.key, &record.value)?;
        }
        let records = self.records + batch.len() as u64;
        self.save(&mut transaction, records, end, ended)?;
        let durability = match self.arguments.acknowledge {
            true => Durability::Immediate,
            // It is at the end that the command says that all are.
            false => Durability::Eventual,
        };
        transaction.commit_with(durability)?;
        self.records = records;
        self.duplicates += duplicates;
        Ok(())
    }

    fn duplicate(&self, record: &Record, line: u64) -> Failure {
        Failure::refused(format!(
            "{}:{line}: the key `{}` is there already; its batch is not stored, the {} records before are \
             (--on-duplicate keep or replace goes on)",
            self.arguments.file.display(),
            shown(&record.key),
            grouped(self.records)
        ))
    }

    /// The sentence for a record that cannot be read.
    fn wrong(&self, error: ReadError) -> Failure {
        let file = self.arguments.file.display();
        match error {
            ReadError::Bad { line, what } if self.arguments.sorted => Failure::refused(format!(
                "{file}:{line}: {what}; correct it and import again (nothing is stored)"
            )),
            ReadError::Bad { line, what } => Failure::refused(format!(
                "{file}:{line}: {what}; correct it and import again (its batch is not stored, \
                 the {} records before are)",
                grouped(self.records)
            )),
            ReadError::Io(error) => Failure::file("read", &self.arguments.file, &error),
        }
    }
}

/// Reads the beginning of a file until it does, whatever pieces it comes in.
fn read_until(input: &mut dyn BufRead, does: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    while beginning.len() < BEGINNING_BYTES {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = &piece[..piece.len().min(BEGINNING_BYTES - beginning.len())];
        if piece.is_empty() {
            break;
        }
        let (taken, ends_a_line) = (piece.len(), piece.contains(&b'\n'));
        beginning.extend_from_slice(piece);
        input.consume(taken);
        if ends_a_line && does(&beginning) {
            break;
        }
    }
    Ok(beginning)
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
