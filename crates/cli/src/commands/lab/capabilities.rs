//! `lapis lab capabilities`: the table of the README.

use std::path::PathBuf;

use clap::Args;
use lapis_index::CapabilityRow;
use lapis_lab::capability_table::{COMMAND, capability_table};
use lapis_lab::document::put_into_file;
use serde::Serialize;

use super::frame::{self, Csv, refused};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Print what each index structure can do, as a Markdown table
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab capabilities
  lapis lab capabilities --write README.md")]
pub struct Arguments {
    /// Put the table into this document, in place of the one there
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    csv: Csv,
}

/// The capability table as JSON.
#[derive(Debug, Serialize)]
struct CapabilityTable {
    rows: Vec<CapabilityRow>,
}

/// Runs `lapis lab capabilities`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let table = CapabilityTable { rows: lapis_index::capability_table() };
    frame::json(output, None, &table)?;
    arguments.csv.save(&table)?;
    if let Some(path) = &arguments.write {
        put_into_file(path, COMMAND, &capability_table()).map_err(refused)?;
    } else if !output.is_json() {
        output.bytes(capability_table().as_bytes())?;
    }
    Ok(Verdict::Good)
}
