//! The text formats that records are imported from and exported to.
//!
//! | format  | a record | key | value |
//! |---------|----------|-----|-------|
//! | `tsv`   | a line   | the first field, or those of `--key` | the rest of the line, tabs and carriage returns kept |
//! | `csv`   | an RFC 4180 record | the first field, or those of `--key` | the other field; if there are several, they are written as one CSV record |
//! | `jsonl` | a line with a JSON object | the field `key`, or those of `--key` | the field `--value-field`, or the whole line |
//!
//! The parts of a key of several fields have a colon between them. Blank lines are skipped. A `jsonl` object with no fields but `key` and `value` (either may be
//! base64 under the names `key_base64`, `value_base64`) is what `lapis export` writes: without
//! `--value-field` its value is that field and not the line.

mod csv_records;
mod guess;
mod json_lines;
mod key_columns;
mod lines;
mod tsv_records;
mod writer;

use std::io::{self, BufRead};
use std::path::Path;

use clap::ValueEnum;
use lapis::MAX_VALUE_BYTES;

pub use guess::{begins_with_a_record, guess, is_enough};
pub use key_columns::{KEY_SEPARATOR, KeyColumns, KeyPart};
pub use writer::{RecordWriter, WriteError};

/// A text format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Key, tab, value; a record per line.
    Tsv,
    /// Comma-separated values as in RFC 4180.
    Csv,
    /// A JSON object per line.
    Jsonl,
}

impl Format {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// The format that a file's name stands for.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" => Some(Self::Tsv),
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        }
    }
}

/// Which parts of a record are key and value.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The columns or fields of the key; none for the first (`tsv`, `csv`) or `key` (`jsonl`).
    pub key: Vec<KeyPart>,
    /// The same as an earlier reading of the file's beginning found it.
    pub found: Option<KeyColumns>,
    /// The field of the value (`jsonl`).
    pub value_field: Option<String>,
    /// The first line holds the names of the columns and is no record (`csv`, `tsv`).
    pub header: bool,
    /// What separates fields (`csv`).
    pub delimiter: u8,
    /// The longest key that the table takes, if it is known.
    pub longest_key_bytes: Option<usize>,
}

impl Default for Layout {
    fn default() -> Self {
        let (key, found, value_field) = (Vec::new(), None, None);
        let (header, delimiter, longest_key_bytes) = (false, b',', None);
        Self { key, found, value_field, header, delimiter, longest_key_bytes }
    }
}

/// A place between two records of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Bytes before it.
    pub byte_offset: u64,
    /// Lines before it.
    pub lines: u64,
}

/// A key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// At least one byte.
    pub key: Vec<u8>,
    /// At most [`MAX_VALUE_BYTES`] bytes.
    pub value: Vec<u8>,
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The line is not a record of this format.
    #[error("line {line}: {what}")]
    Bad {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ReadError {
    pub(crate) fn bad(line: u64, what: impl Into<String>) -> Self {
        Self::Bad { line, what: what.into() }
    }
}

/// Reads the records of a file one after the other.
pub struct RecordReader {
    source: Source,
    longest_key_bytes: Option<usize>,
}

enum Source {
    Tsv(tsv_records::TsvRecords),
    Csv(Box<csv_records::CsvRecords>),
    JsonLines(json_lines::JsonLines),
}

impl RecordReader {
    /// A reader of `input`, which is at `start` of its file.
    pub fn new(
        format: Format,
        layout: &Layout,
        input: Box<dyn BufRead>,
        start: Position,
    ) -> Result<Self, ReadError> {
        let source = match format {
            Format::Tsv => Source::Tsv(tsv_records::TsvRecords::new(input, start, layout)?),
            Format::Csv => {
                Source::Csv(Box::new(csv_records::CsvRecords::new(input, start, layout)?))
            }
            Format::Jsonl => Source::JsonLines(json_lines::JsonLines::new(input, start, layout)),
        };
        Ok(Self { source, longest_key_bytes: layout.longest_key_bytes })
    }

    /// The next record and its line, counted from 1; none at the end of the file.
    pub fn next(&mut self) -> Result<Option<(Record, u64)>, ReadError> {
        let next = match &mut self.source {
            Source::Tsv(records) => records.next(),
            Source::Csv(records) => records.next(),
            Source::JsonLines(records) => records.next(),
        }?;
        if let Some((record, line)) = &next {
            validate(record, self.longest_key_bytes).map_err(|what| ReadError::bad(*line, what))?;
        }
        Ok(next)
    }

    /// The place after the last record that was returned.
    pub fn position(&self) -> Position {
        match &self.source {
            Source::Tsv(records) => records.position(),
            Source::Csv(records) => records.position(),
            Source::JsonLines(records) => records.position(),
        }
    }

    /// Where the key is.
    pub fn key(&self) -> KeyColumns {
        match &self.source {
            Source::Tsv(records) => records.key().clone(),
            Source::Csv(records) => records.key().clone(),
            Source::JsonLines(records) => KeyColumns::fields(records.key_fields()),
        }
    }
}

fn validate(record: &Record, longest_key_bytes: Option<usize>) -> Result<(), String> {
    let (key_bytes, value_bytes) = (record.key.len(), record.value.len());
    if key_bytes == 0 {
        return Err("the key is empty".into());
    }
    if let Some(most) = longest_key_bytes.filter(|&most| key_bytes > most) {
        return Err(format!("the key has {key_bytes} bytes and may have {most}"));
    }
    if value_bytes > MAX_VALUE_BYTES {
        return Err(format!("the value has {value_bytes} bytes and may have {MAX_VALUE_BYTES}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_the_extension() {
        assert_eq!(Format::of_path(Path::new("a/b.TSV")), Some(Format::Tsv));
        assert_eq!(Format::of_path(Path::new("b.ndjson")), Some(Format::Jsonl));
        assert_eq!(Format::of_path(Path::new("b.csv")), Some(Format::Csv));
        assert_eq!(Format::of_path(Path::new("csv")), None);
    }

    #[test]
    fn keys_and_values_have_bounds() {
        let record = |key: usize| Record { key: vec![b'k'; key], value: vec![] };
        assert!(validate(&record(9), Some(9)).is_ok());
        assert!(validate(&record(10), Some(9)).is_err());
        assert!(validate(&record(0), None).is_err());
    }
}
