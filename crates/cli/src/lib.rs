//! The `lapis` command line: a front door to the store, the laboratory and the crash checker.
//!
//! Standard output carries results (one JSON object with `--json`), standard error one sentence
//! per failure and, if asked for, the log; with `--json` the failure is on standard output, too. Exit codes: 0 done, 1 a check failed or something asked
//! for is not there, 2 the request could not be carried out; 130 or 143: SIGINT or SIGTERM ended it early, and nothing
//! was wrong until then.

mod arguments;
mod commands;
mod failure;
mod formats;
mod import_progress;
mod json_bytes;
mod logging;
mod output;
mod progress;
mod stop;
mod store_arguments;
mod time_argument;
mod whole_file;
mod workload_arguments;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Does what the arguments of the process ask for.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // The last line of defence: even a defect of Lapis ends in one sentence and exit code 2.
        let what =
            panic.payload_as_str().unwrap_or("no reason given").lines().next().unwrap_or_default();
        let place = panic
            .location()
            .map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        complain(format_args!("internal error{place}: {what}; this is a defect, please report it"));
    }));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(run));
    match outcome {
        Ok(Ok(Verdict::Good)) => ExitCode::SUCCESS,
        Ok(Ok(Verdict::Bad)) => ExitCode::from(1),
        Ok(Ok(Verdict::Stopped)) => ExitCode::from(stop::exit_code()),
        Ok(Err(failure)) => {
            if let Some(sentence) = failure.sentence() {
                complain(sentence);
            }
            ExitCode::from(failure.exit_code())
        }
        Err(_) => ExitCode::from(2),
    }
}

/// Writes a sentence to standard error. If that is closed or full, the exit code says it alone.
fn complain(sentence: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "lapis: {sentence}");
}

fn run() -> Result<Verdict, Failure> {
    let words: Vec<_> = std::env::args_os().collect();
    // Wrong arguments are answered as they ask for, too.
    let mut output = Output::stdout(words.iter().any(|word| word == "--json"));
    let done = parse_and_run(words, &mut output);
    let said = match &done {
        Ok(_) => Ok(()),
        Err(failure) => output.failure(failure),
    };
    let said = said.and_then(|()| output.finish());
    // What the command itself ended with comes before what became of its output.
    let verdict = done?;
    said?;
    Ok(verdict)
}

fn parse_and_run(words: Vec<OsString>, output: &mut Output) -> Result<Verdict, Failure> {
    let Some(arguments) = arguments::parse(words)? else { return Ok(Verdict::Good) };
    logging::start(arguments.verbose)?;
    commands::run(arguments.command, output)
}
