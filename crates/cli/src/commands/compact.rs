//! `lapis compact`: gives the end of the file back.

use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, human_bytes};
use crate::store_arguments::StoreArguments;

/// Move pages to the front of the file and give its end back
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  lapis compact --dir /tmp/store

What is deleted is used again by itself. This is for a store that was much larger than it will be.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Serialize)]
struct Report {
    moved_pages: u64,
    freed_pages: u64,
    bytes_before: u64,
    bytes_after: u64,
}

/// Runs `lapis compact`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let store = arguments.store.open()?;
    let bytes = || Ok::<_, Failure>(store.info(false)?.bytes.storage);
    let bytes_before = bytes()?;
    let done = store.compact()?;
    let bytes_after = bytes()?;
    let (moved_pages, freed_pages) = (done.moved_pages, done.freed_pages);
    output.json(&Report { moved_pages, freed_pages, bytes_before, bytes_after })?;
    output.line(format_args!(
        "{} pages moved, {} given back: {} now, {} before",
        grouped(moved_pages),
        grouped(freed_pages),
        human_bytes(bytes_after),
        human_bytes(bytes_before)
    ))?;
    Ok(Verdict::Good)
}
