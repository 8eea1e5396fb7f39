//! Standard output: lines and tables for people, or one JSON object.

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};

use comfy_table::{CellAlignment, ContentArrangement, presets};
use lapis_lab::experiment::Findings;
use lapis_lab::experiment::table::Table;
pub use lapis_lab::experiment::table::{grouped, human_bytes};
use serde::Serialize;

use crate::commands::lab::frame::Csv;
use crate::failure::{Failure, reason};

/// Columns of a terminal that does not say how many it has, as on a serial line.
const USUAL_COLUMNS: u16 = 80;

/// The columns of what is printed to, as COLUMNS or the terminal says; none if it goes elsewhere.
pub fn columns() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let told = said.or_else(|| comfy_table::Table::new().width())?;
    Some(if told == 0 { USUAL_COLUMNS } else { told })
}

/// The fewest columns for a table in which no word is divided.
fn fewest_columns(table: &Table) -> usize {
    let longest = |text: &String| text.split(' ').map(|word| word.chars().count()).max();
    let of_column = |column| {
        let cells = table.rows.iter().filter_map(|row: &Vec<String>| row.get(column));
        cells.chain(table.headings.get(column)).filter_map(longest).max().unwrap_or(0)
    };
    (0..table.headings.len()).map(|column| of_column(column) + " │ ".chars().count()).sum::<usize>()
        + 1
}

/// Where a command's results go. If nobody reads them any more, lines, tables and objects are left out, and the command goes on
/// to its verdict; what is written as bytes ends there.
pub struct Output {
    sink: BufWriter<Stdout>,
    json: bool,
    /// Where the rows of the result are to be, too.
    csv: Csv,
    /// Something was written.
    used: bool,
}

impl Output {
    /// Standard output.
    pub fn stdout(json: bool) -> Self {
        let sink = BufWriter::with_capacity(1 << 16, io::stdout());
        Self { sink, json, csv: Csv::default(), used: false }
    }

    /// Has the rows of the result written there, too, whether it is printed as JSON or not.
    pub fn rows_to(&mut self, csv: &Csv) {
        self.csv = csv.clone();
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
        unless_closed(writeln!(self.sink, "{text}").map_err(|error| closed(&error)))
    }

    /// Writes a line for people and makes it appear at once. A run that tells how it goes ends if nobody reads it.
    pub fn announce(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        self.line(text)?;
        self.flush()
    }

    /// Writes a table for people; nothing with `--json`.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        for above in table.title.iter().chain(&table.text) {
            self.line(above)?;
        }
        let columns = columns();
        if columns.is_some_and(|columns| fewest_columns(table) > usize::from(columns)) {
            return table.rows.iter().try_for_each(|row| {
                let named = table.headings.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
                named.into_iter().try_for_each(|(name, cell)| {
                    self.line(format_args!("{name}: {}", cell.replace('`', "")))
                })?;
                self.line("")
            });
        }
        // A serial terminal may have no other characters.
        let style = match std::env::var("TERM").as_deref() {
            Ok("dumb") => presets::ASCII_FULL_CONDENSED,
            _ => presets::UTF8_FULL_CONDENSED,
        };
        let mut drawn = comfy_table::Table::new();
        drawn
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(&table.headings)
            .add_rows(table.rows.iter().map(|row| row.iter().map(|cell| cell.replace('`', ""))));
        if let Some(columns) = columns {
            drawn.set_width(columns);
        }
        for column in drawn.column_iter_mut().skip(table.words) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self.line(drawn)
    }

    /// Writes the tables of what was found, and what has to be said beneath them.
    pub fn findings(&mut self, found: &(impl Findings + ?Sized)) -> Result<(), Failure> {
        found.tables().iter().try_for_each(|table| self.table(table))?;
        found.notes().iter().try_for_each(|note| self.line(note))
    }

    /// With `--json`, says why the command ended early, unless it has written something already.
    pub fn failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        match failure.sentence() {
            Some(error) if !self.used => {
                self.csv = Csv::default();
                self.json(&serde_json::json!({ "error": error, "code": failure.exit_code() }))
            }
            _ => Ok(()),
        }
    }

    /// Writes the result as a JSON object; nothing without `--json`, but its rows where they are to be.
    pub fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        self.csv.save(object)?;
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(object)
            .map_err(|error| Failure::refused(format!("cannot write the result: {error}")))?;
        unless_closed(self.bytes(text.as_bytes()).and_then(|()| self.bytes(b"\n")))
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.used = true;
        self.sink.write_all(bytes).map_err(|error| closed(&error))
    }

    /// Makes everything written so far appear.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.sink.flush().map_err(|error| closed(&error))
    }

    /// Ends the output.
    pub fn finish(mut self) -> Result<(), Failure> {
        unless_closed(self.flush())
    }
}

/// Takes it for written if nobody reads it.
pub fn unless_closed(written: Result<(), Failure>) -> Result<(), Failure> {
    match written {
        Err(Failure::OutputClosed) => Ok(()),
        written => written,
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
