//! What the experiments that measure here and model a device have in common.

use std::path::{Path, PathBuf};

use clap::Args;
use lapis_lab::generated::put_into_file;
use lapis_lab::plot::Plot;

use crate::failure::Failure;

/// Which sides to run, and where to put what comes out.
#[derive(Debug, Args)]
pub struct Sides {
    /// The device profile that is modelled: a name or a file
    #[arg(long, value_name = "P", default_value = "optane-100")]
    pub profile: String,
    /// Only run on the modelled machine
    #[arg(long, conflicts_with = "measured_only")]
    pub modelled_only: bool,
    /// Only measure here
    #[arg(long)]
    pub measured_only: bool,
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 42)]
    pub seed: u64,
    /// Draw the figure into this file, as SVG or, if it ends in .html, as a page
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Put the table into this document, in place of the one there
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

impl Sides {
    /// Draws and writes what was asked for.
    pub fn save(
        &self,
        command: &str,
        plot: impl FnOnce() -> Plot,
        markdown: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::refused(error.to_string());
        if let Some(path) = &self.plot {
            save_plot(&plot(), path)?;
        }
        if let Some(path) = &self.write {
            put_into_file(path, command, &markdown()).map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

fn save_plot(plot: &Plot, path: &Path) -> Result<(), Failure> {
    plot.save(path).map_err(|error| Failure::refused(error.to_string()))
}
