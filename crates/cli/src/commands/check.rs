//! `lapis check`: is every invariant of the store intact?

use clap::Args;
use lapis::CheckReport;

use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::store_arguments::StoreArguments;

/// Check every invariant of a store; exit code 1 if one is broken
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis check --dir /tmp/store
  lapis check --dir /tmp/store --json

A store that was not closed in order is recovered first, in memory. The check reads everything and
changes nothing, so it does for a read-only file system. A store that is too damaged to be opened
fails the check.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
}

/// Runs `lapis check`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let report = match arguments.store.try_open_to_read() {
        Ok(store) => store.check(),
        Err(error) if error.is_damage() => {
            CheckReport { problems: vec![error.to_string()], ..CheckReport::default() }
        }
        Err(error) => return Err(error.into()),
    };
    output.json(&report)?;
    for problem in &report.problems {
        output.line(problem)?;
    }
    if report.ok {
        output.line("the store is in order")?;
        Ok(Verdict::Good)
    } else {
        output.line(format_args!(
            "{} problem(s); export what can still be read, and restore the rest from a copy",
            report.problems.len()
        ))?;
        Ok(Verdict::Bad)
    }
}
