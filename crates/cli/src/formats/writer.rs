//! Writes records so that importing them gives the same records.

use std::io::{self, Write};

use csv::{QuoteStyle, WriterBuilder};
use serde_json::{Map, Value};

use super::Format;
use crate::json_bytes;

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The format has no way to write it.
    #[error("{what}")]
    NotExpressible {
        /// What stands in the way.
        what: &'static str,
    },
    /// The destination took no more.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes records in one format.
pub struct RecordWriter<W: Write> {
    format: Format,
    sink: W,
    records: u64,
}

impl<W: Write> RecordWriter<W> {
    pub fn new(format: Format, sink: W) -> Self {
        Self { format, sink, records: 0 }
    }

    /// Writes one record.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        match self.format {
            Format::Tsv => self.write_tsv(key, value)?,
            Format::Csv => self.write_csv(key, value)?,
            Format::Jsonl => self.write_json_line(key, value)?,
        }
        self.records += 1;
        Ok(())
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Hands back the destination with everything written to it.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write_tsv(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        if key.iter().any(|byte| matches!(byte, b'\t' | b'\n')) {
            return Err(WriteError::NotExpressible {
                what: "its key contains a tab or a line feed",
            });
        }
        if value.contains(&b'\n') {
            return Err(WriteError::NotExpressible { what: "its value contains a line feed" });
        }
        for part in [key, b"\t", value, b"\n"] {
            self.sink.write_all(part)?;
        }
        Ok(())
    }

    fn write_csv(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        // At the start of a file, a byte order mark outside of quotes would be taken for one.
        let mark = self.records == 0 && key.starts_with("\u{feff}".as_bytes());
        let style = if mark { QuoteStyle::Always } else { QuoteStyle::Necessary };
        let mut line = Vec::with_capacity(key.len() + value.len() + 4);
        WriterBuilder::new()
            .quote_style(style)
            .from_writer(&mut line)
            .write_record([key, value])
            .map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            _ => io::ErrorKind::InvalidData.into(),
        })?;
        Ok(self.sink.write_all(&line)?)
    }

    fn write_json_line(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let mut object = Map::new();
        json_bytes::insert(&mut object, "key", key);
        json_bytes::insert(&mut object, "value", value);
        serde_json::to_writer(&mut self.sink, &Value::Object(object)).map_err(io::Error::from)?;
        Ok(self.sink.write_all(b"\n")?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layout, Position, Record, RecordReader};
    use super::*;

    fn round_trip(format: Format, records: &[(&[u8], &[u8])]) -> Vec<Record> {
        let mut writer = RecordWriter::new(format, Vec::new());
        for (key, value) in records {
            writer.write(key, value).unwrap();
        }
        let input = Box::new(io::Cursor::new(writer.finish().unwrap()));
        let layout = Layout::default();
        let mut reader = RecordReader::new(format, &layout, input, Position::default()).unwrap();
        let mut all = Vec::new();
        while let Some((record, _)) = reader.next().unwrap() {
            all.push(record);
        }
        all
    }

    fn owned(records: &[(&[u8], &[u8])]) -> Vec<Record> {
        let record =
            |(key, value): &(&[u8], &[u8])| Record { key: key.to_vec(), value: value.to_vec() };
        records.iter().map(record).collect()
    }

    const ODD: [(&[u8], &[u8]); 7] = [
        (b"\xef\xbb\xbfmark", b""),
        (b" ", b" a "),
        (b"quote\"", b"\"a\",\"b\""),
        (b"comma,", b",,"),
        (b"line\nfeed\ttab\r", b"\r\n"),
        (b"\0\xff\xfe", b"\xc3\x28"),
        (b"{\"key\":1}", b"\\u0000\\"),
    ];

    #[test]
    fn csv_and_json_lines_carry_any_bytes() {
        assert_eq!(round_trip(Format::Csv, &ODD), owned(&ODD));
        assert_eq!(round_trip(Format::Jsonl, &ODD), owned(&ODD));
    }

    #[test]
    fn tsv_carries_any_bytes_but_the_separators() {
        let records: [(&[u8], &[u8]); 4] =
            [(b"\xef\xbb\xbfmark", b"\tx\t"), (b"\0\xff", b""), (b"\"", b"a\r"), (b" ", b" ")];
        assert_eq!(round_trip(Format::Tsv, &records), owned(&records));
    }

    #[test]
    fn what_tsv_cannot_carry_is_an_error() {
        let mut writer = RecordWriter::new(Format::Tsv, Vec::new());
        assert!(matches!(writer.write(b"a\tb", b""), Err(WriteError::NotExpressible { .. })));
        assert!(matches!(writer.write(b"a", b"b\n"), Err(WriteError::NotExpressible { .. })));
        assert_eq!(writer.records(), 0);
        assert!(writer.finish().unwrap().is_empty());
    }
}
