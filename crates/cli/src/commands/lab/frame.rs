//! What the commands of the laboratory have in common: which machines to run on, and where to put what
//! comes out.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lapis_lab::document::put_those_there;
use lapis_lab::experiment::{self, ExperimentError, Findings, Labelled, Machine, csv};
use lapis_lab::plot::PlotError;
use lapis_lab::progress::OnProgress;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::progress;

/// Which machines to run on.
#[derive(Debug, Args)]
pub struct Sides {
    /// The device profile that is modelled: a built-in one, or the path of a file
    #[arg(long, value_name = "P", default_value = experiment::OPTANE_100)]
    pub profile: String,
    /// Only run on the modelled machine
    #[arg(long, conflicts_with = "measured_only")]
    pub modelled_only: bool,
    /// Only measure here
    #[arg(long)]
    pub measured_only: bool,
}

impl Sides {
    /// Those that were asked for.
    pub fn wanted(&self) -> experiment::Sides {
        let profile = self.profile.clone();
        experiment::Sides { profile, measure: !self.modelled_only, model: !self.measured_only }
    }
}

/// What the random numbers of an experiment start from.
#[derive(Debug, Args)]
pub struct Seed {
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 42)]
    pub seed: u64,
}

/// Where to put rows for other programs.
#[derive(Clone, Debug, Default, Args)]
pub struct Csv {
    /// Write the rows into this file as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Csv {
    /// Refuses what cannot be written, before there is something to write.
    pub fn check(&self) -> Result<(), Failure> {
        self.csv.as_deref().map_or(Ok(()), check_writable)
    }

    /// Writes the rows of `result`, if that was asked for.
    pub fn save(&self, result: &impl Serialize) -> Result<(), Failure> {
        let Some(path) = &self.csv else { return Ok(()) };
        let text = csv(result).map_err(refused)?;
        std::fs::write(path, text).map_err(|error| Failure::file("write", path, &error))
    }
}

/// Where to put rows and the figure of them.
#[derive(Debug, Args)]
pub struct Figures {
    /// Draw the figure into this file, as SVG or, if it ends in .html, as a page
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    csv: Csv,
}

impl Figures {
    /// Refuses what cannot be written, before there is something to write.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("svg" | "html" | "htm")) {
                return Err(refused(PlotError::FileKind { path: path.clone() }));
            }
            check_writable(path)?;
        }
        self.csv.check()
    }

    /// Draws what was found and writes the rows of `result`, where that was asked for.
    pub fn save(
        &self,
        found: &(impl Findings + ?Sized),
        result: &impl Serialize,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            let figure = found.figure().ok_or_else(no_figure);
            figure?.save(path).map_err(refused)?;
        }
        self.csv.save(result)
    }
}

/// Where to put what comes out, beside standard output.
#[derive(Debug, Args)]
pub struct Destinations {
    #[command(flatten)]
    figures: Figures,
    /// Put the tables into this document, in place of those there; may be given several times
    #[arg(long, value_name = "FILE")]
    write: Vec<PathBuf>,
}

impl Destinations {
    /// Runs an experiment under a bar that counts `what`, and puts what it finds where it was asked for.
    /// `seed` is none where nothing is left to chance.
    pub fn run<F: Findings>(
        &self,
        what: &str,
        seed: Option<u64>,
        output: &mut Output,
        run: impl FnOnce(OnProgress<'_>) -> Result<F, ExperimentError>,
    ) -> Result<Verdict, Failure> {
        self.check()?;
        let found = with_progress(what, run)?;
        self.put(&found, &found, seed, output)
    }

    /// Refuses a figure, of an experiment that has none.
    pub fn check_without_figure(&self) -> Result<(), Failure> {
        self.figures.plot.as_ref().map_or(Ok(()), |_| Err(no_figure()))
    }

    /// Refuses what cannot be written, before there is something to write.
    pub fn check(&self) -> Result<(), Failure> {
        self.figures.check()?;
        for path in &self.write {
            let opened = std::fs::OpenOptions::new().read(true).append(true).open(path);
            opened.map_err(|error| Failure::file("write into", path, &error))?;
        }
        Ok(())
    }

    /// Puts what was found where it was asked for; as JSON it is `result`.
    pub fn put(
        &self,
        found: &impl Findings,
        result: &impl Serialize,
        seed: Option<u64>,
        output: &mut Output,
    ) -> Result<Verdict, Failure> {
        self.figures.save(found, found)?;
        let (sections, renew) = (found.sections(), |old: &str, new: &str| found.renewed(old, new));
        for path in &self.write {
            put_those_there(path, &sections, renew).map_err(refused)?;
        }
        json(output, seed, result)?;
        output.findings(found)?;
        Ok(Verdict::Good)
    }
}

/// Writes a result of the laboratory as JSON, with what it was found with.
pub fn json(
    output: &mut Output,
    seed: Option<u64>,
    result: &impl Serialize,
) -> Result<(), Failure> {
    if !output.is_json() {
        return Ok(());
    }
    output.json(&Labelled { machine: Machine::here(), seed, result })
}

/// Changes the device profile in a file: its name and text make the new text.
pub fn change_profile<E: std::fmt::Display>(
    path: &Path,
    change: impl FnOnce(&str, &str) -> Result<String, E>,
) -> Result<(), Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    let text = change(&path.display().to_string(), &text).map_err(refused)?;
    std::fs::write(path, text).map_err(|error| Failure::file("write", path, &error))
}

/// Of what was named, or else the default.
pub fn or_default<T: Clone>(named: &[T], default: Vec<T>) -> Vec<T> {
    if named.is_empty() { default } else { named.to_vec() }
}

/// An argument that is one of `all`, whose names help lists.
pub fn named<T: Copy + Send + Sync + 'static>(
    all: Vec<T>,
    name_of: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|&one| name_of(one)).collect::<Vec<_>>())
        .try_map(move |name| one_of(&all, name_of, &name))
}

/// The one of `all` that is called `name`, or a sentence that names them. `what` is the plural.
pub fn one_of<T: Copy>(
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
    name: &str,
) -> Result<T, String> {
    all.iter().copied().find(|&one| name_of(one) == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&one| name_of(one)).collect();
        format!("use {}", names.join(", "))
    })
}

/// Whether a file can be written there, which is left as it is.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let existed = path.exists();
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Failure::file("write", path, &error))?;
    if !existed {
        std::fs::remove_file(path).map_err(|error| Failure::file("write", path, &error))?;
    }
    Ok(())
}

fn no_figure() -> Failure {
    Failure::refused("there is no figure of this; leave --plot out")
}

/// A refusal that says what an error says.
pub fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::refused(error.to_string())
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
