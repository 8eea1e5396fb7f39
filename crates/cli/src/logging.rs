//! The log: to standard error, off unless asked for by `-v` or `LAPIS_LOG`.

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::failure::Failure;

/// Starts the log. `LAPIS_LOG` (a level, or `target=level` pairs) wins over the number of `-v`.
pub fn start(verbose: u8) -> Result<(), Failure> {
    let default = match verbose {
        0 => "error",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let directives = match std::env::var("LAPIS_LOG") {
        Ok(directives) if !directives.trim().is_empty() => directives,
        _ => default.to_owned(),
    };
    let filter: Targets = directives.parse().map_err(|_| {
        Failure::refused(format!(
            "LAPIS_LOG is `{directives}`, which is not a log filter; set it to error, warn, info, debug or trace"
        ))
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}
