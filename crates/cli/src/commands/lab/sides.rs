//! What the experiments that measure here and model a device have in common.

use std::path::PathBuf;

use clap::Args;
use lapis_lab::document::put_into_file;
use lapis_lab::plot::Plot;
use lapis_lab::report::OnProgress;

use crate::failure::Failure;
use crate::progress;

/// Which sides to run, and where to put what comes out.
#[derive(Debug, Args)]
pub struct Sides {
    /// The device profile that is modelled: a name or a file
    #[arg(long, value_name = "P", default_value = lapis_lab::index_experiment::OPTANE_100)]
    pub profile: String,
    /// Only run on the modelled machine
    #[arg(long, conflicts_with = "measured_only")]
    pub modelled_only: bool,
    /// Only measure here
    #[arg(long)]
    pub measured_only: bool,
    /// Draw the figure into this file, as SVG or, if it ends in .html, as a page
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Put the tables into this document, in place of those there
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

impl Sides {
    /// Whether to measure here.
    pub fn measure(&self) -> bool {
        !self.modelled_only
    }

    /// Whether to model a device.
    pub fn model(&self) -> bool {
        !self.measured_only
    }

    /// Draws and writes what was asked for.
    pub fn save<S: AsRef<str>>(
        &self,
        plot: impl FnOnce() -> Plot,
        sections: impl FnOnce() -> Vec<(S, String)>,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            plot().save(path).map_err(|error| Failure::refused(error.to_string()))?;
        }
        self.write(sections)
    }

    /// Writes what was asked for: a section of the document for each command in `sections`.
    pub fn write<S: AsRef<str>>(
        &self,
        sections: impl FnOnce() -> Vec<(S, String)>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.write else { return Ok(()) };
        for (command, text) in sections() {
            put_into_file(path, command.as_ref(), &text)
                .map_err(|error| Failure::refused(error.to_string()))?;
        }
        Ok(())
    }
}

/// What the random numbers of an experiment start from.
#[derive(Debug, Args)]
pub struct Seed {
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 42)]
    pub seed: u64,
}

/// Runs an experiment under a bar that counts `what`.
pub fn with_progress<T>(what: &str, run: impl FnOnce(OnProgress<'_>) -> T) -> T {
    let bar = progress::count(0, what);
    let found = run(&|progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    found
}
