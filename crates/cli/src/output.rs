//! Standard output: lines and tables for people, or one JSON object.

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::{Failure, reason};

/// Where a command's results go.
pub struct Output {
    sink: BufWriter<Stdout>,
    json: bool,
}

impl Output {
    /// Standard output.
    pub fn stdout(json: bool) -> Self {
        Self { sink: BufWriter::with_capacity(1 << 16, io::stdout()), json }
    }

    /// Whether the one JSON object was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line for people; nothing with `--json`.
    pub fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        writeln!(self.sink, "{text}").map_err(|error| closed(&error))
    }

    /// Writes a line for people and makes it appear at once.
    pub fn announce(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        self.line(text)?;
        self.flush()
    }

    /// Writes a table for people; nothing with `--json`.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        self.line(table)
    }

    /// Writes a table of results for people; nothing with `--json`.
    pub fn results(
        &mut self,
        results: &lapis_lab::experiment::table::Table,
    ) -> Result<(), Failure> {
        if let Some(title) = &results.title {
            self.line(title)?;
        }
        let mut table = styled();
        table.set_header(&results.headings);
        for row in &results.rows {
            table.add_row(row.iter().map(|cell| cell.replace('`', "")));
        }
        right_align(&mut table, results.words);
        self.table(&table)
    }

    /// Writes the JSON object; nothing without `--json`.
    pub fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(object)
            .map_err(|error| Failure::refused(format!("cannot write the result: {error}")))?;
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sink.write_all(bytes).map_err(|error| closed(&error))
    }

    /// Makes everything written so far appear.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.sink.flush().map_err(|error| closed(&error))
    }

    /// Ends the output.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// What a failed write to standard output means.
pub fn closed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::OutputClosed
    } else {
        Failure::refused(format!("cannot write to standard output: {}", reason(error)))
    }
}

/// An empty table with these headings, numbers to be right-aligned by [`right_align`].
pub fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = styled();
    table.set_header(headings);
    table
}

fn styled() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// Aligns the columns from `first` on to the right.
pub fn right_align(table: &mut Table, first: usize) {
    for index in first..table.column_count() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A whole number with thousands separated.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit a person would choose.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn bytes_get_a_unit() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(1 << 50), "1024.0 TiB");
    }
}
