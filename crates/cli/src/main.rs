//! The `lapis` command line: a front door to the store, the laboratory and the crash checker.
//!
//! Standard output carries results (one JSON object with `--json`), standard error one sentence
//! per failure and, if asked for, the log. Exit codes: 0 done, 1 a check failed or something asked
//! for is not there, 2 the request could not be carried out.

mod arguments;
mod commands;
mod failure;
mod formats;
mod import_progress;
mod json_bytes;
mod logging;
mod output;
mod progress;
mod store_arguments;
mod workload_arguments;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // The last line of defence: even a defect of Lapis ends in one sentence and exit code 2.
        let what =
            panic.payload_as_str().unwrap_or("no reason given").lines().next().unwrap_or_default();
        let place = panic
            .location()
            .map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        eprintln!("lapis: internal error{place}: {what}; this is a defect, please report it");
    }));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(run));
    match outcome {
        Ok(Ok(Verdict::Good)) => ExitCode::SUCCESS,
        Ok(Ok(Verdict::Bad)) => ExitCode::from(1),
        Ok(Err(failure)) => {
            if let Some(sentence) = failure.sentence() {
                eprintln!("lapis: {sentence}");
            }
            ExitCode::from(failure.exit_code())
        }
        Err(_) => ExitCode::from(2),
    }
}

fn run() -> Result<Verdict, Failure> {
    let Some(arguments) = arguments::parse(std::env::args_os())? else {
        return Ok(Verdict::Good);
    };
    logging::start(arguments.verbose)?;
    let mut output = Output::stdout(arguments.json);
    let verdict = commands::run(arguments.command, &mut output)?;
    output.finish()?;
    Ok(verdict)
}
