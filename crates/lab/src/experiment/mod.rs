//! The frame of the experiments: what they are told, how they are run, and what comes out of them.
//!
//! An experiment says what is its own: its cases, how one is run here and on the model, its columns and
//! its figure. Here is what they share. There are two sides, this machine and the modelled machine
//! of a device profile ([`Sides`]), and they are never mixed; every figure comes from a closed
//! [`Section`](meter::Section) of a [`Meter`](meter::Meter); a [`Row`] is a case with what was measured and
//! what was modelled; and whoever has [`Findings`] can print, draw and write them.

mod csv;
mod error;
mod machine;
pub(crate) mod memory;
pub mod meter;
pub mod table;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lapis_device::Profile;
use serde::Serialize;

use crate::plot::{Panel, Plot, Source};
use crate::progress::{OnProgress, Progress};
pub use csv::csv;
pub use error::ExperimentError;
pub use machine::{Labelled, Machine, processor};
use meter::{CountsPerOperation, Section};
use table::{Table, markdown};

/// The device profile that is modelled unless another is asked for.
pub const OPTANE_100: &str = "optane-100";

/// The machines that an experiment is run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    /// The device profile that is modelled: the name of a built-in one, or the path of a file.
    pub profile: String,
    /// Whether to measure here. If not, `measured` is null.
    pub measure: bool,
    /// Whether to model. If not, `modelled` is null.
    pub model: bool,
}

/// What was found on the sides that were wanted: measured, and modelled.
pub(crate) type Found<H, M> = (Option<H>, Option<M>);

impl Default for Sides {
    fn default() -> Self {
        Self { profile: OPTANE_100.into(), measure: true, model: true }
    }
}

impl Sides {
    /// Only this machine.
    pub fn measured_only() -> Self {
        Self { model: false, ..Self::default() }
    }

    /// Only the modelled machine.
    pub fn modelled_only() -> Self {
        Self { measure: false, ..Self::default() }
    }

    /// The profile.
    ///
    /// # Errors
    /// There is none, or neither side is to be run.
    pub fn check(&self) -> Result<Profile, ExperimentError> {
        if !self.measure && !self.model {
            let what = "an experiment measures, models or does both";
            return Err(ExperimentError::bad_option(what));
        }
        Ok(Profile::find(&self.profile)?)
    }

    /// Runs every case on the sides that are wanted.
    pub(crate) fn run<C, H, M>(
        &self,
        cases: &[C],
        progress: OnProgress<'_>,
        mut measure: impl FnMut(&C) -> Result<H, ExperimentError>,
        mut model: impl FnMut(&C) -> Result<M, ExperimentError>,
    ) -> Result<Vec<Found<H, M>>, ExperimentError> {
        let step = self.steps(cases.len(), progress);
        let mut found = Vec::with_capacity(cases.len());
        for case in cases {
            let measured = self.measure.then(|| measure(case).inspect(|_| step())).transpose()?;
            let modelled = self.model.then(|| model(case).inspect(|_| step())).transpose()?;
            found.push((measured, modelled));
        }
        Ok(found)
    }

    /// The same where cases share nothing: first they are modelled side by side, on as many threads as
    /// there are processors, as the model knows nothing of time; then measured one by one.
    pub(crate) fn run_side_by_side<C: Sync, H, M: Send>(
        &self,
        cases: &[C],
        progress: OnProgress<'_>,
        mut measure: impl FnMut(&C) -> Result<H, ExperimentError>,
        model: impl Fn(&C) -> Result<M, ExperimentError> + Sync,
    ) -> Result<Vec<Found<H, M>>, ExperimentError> {
        let step = self.steps(cases.len(), progress);
        let to_model = if self.model { cases } else { &[] };
        let modelled = side_by_side(to_model, |case| model(case).inspect(|_| step()))?;
        let mut modelled = modelled.into_iter();
        let found = cases.iter().map(|case| {
            let measured = self.measure.then(|| measure(case).inspect(|_| step())).transpose()?;
            Ok::<_, ExperimentError>((measured, modelled.next()))
        });
        found.collect()
    }

    /// Tells `progress` of each side of a case that is done.
    fn steps(&self, cases: usize, progress: OnProgress<'_>) -> impl Fn() + Sync {
        let total = cases as u64 * (u64::from(self.measure) + u64::from(self.model));
        let done = AtomicU64::new(0);
        move || progress(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total })
    }
}

/// How many cases are modelled at a time.
pub(crate) fn modelling_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What comes of `run` for each of `cases`, in their order.
fn side_by_side<C: Sync, M: Send>(
    cases: &[C],
    run: impl Fn(&C) -> Result<M, ExperimentError> + Sync,
) -> Result<Vec<M>, ExperimentError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { break found };
            found.push((at, run(case)));
        }
    };
    let mut found = std::thread::scope(|scope| {
        let threads = 0..modelling_threads().min(cases.len());
        let threads: Vec<_> = threads.map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect::<Vec<_>>()
    });
    found.sort_by_key(|&(at, _)| at);
    found.into_iter().map(|(_, result)| result).collect()
}

/// A case, and what it came to: `H` is what is measured here, `M` what is modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<C, H, M = OnModel<H>> {
    /// What was run.
    #[serde(flatten)]
    pub case: C,
    /// What was measured on this machine.
    pub measured: Option<H>,
    /// What was modelled.
    pub modelled: Option<M>,
}

/// What the modelled machine did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnModel<M> {
    /// The device profile.
    pub profile: String,
    /// Figures of virtual time, and whatever else is modelled.
    #[serde(flatten)]
    pub figures: M,
    /// Counts per operation.
    #[serde(flatten)]
    pub counts: CountsPerOperation,
}

impl<M> OnModel<M> {
    /// What a section of so many operations came to on the machine of `profile`.
    pub(crate) fn new(profile: &Profile, figures: M, section: &Section, operations: usize) -> Self {
        let counts = section.per_operation(operations as u64);
        Self { profile: profile.name.clone(), figures, counts }
    }
}

/// One of the two halves of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Measured,
    Modelled,
}

impl Side {
    pub(crate) const ALL: [Self; 2] = [Self::Measured, Self::Modelled];
}

impl<C, F> Row<C, F> {
    /// The figures of one side.
    pub(crate) fn figures(&self, side: Side) -> Option<&F> {
        match side {
            Side::Measured => self.measured.as_ref(),
            Side::Modelled => self.modelled.as_ref().map(|modelled| &modelled.figures),
        }
    }

    /// Where they come from.
    pub(crate) fn source(&self, side: Side) -> Source {
        match &self.modelled {
            Some(modelled) if side == Side::Modelled => Source::modelled(&modelled.profile),
            _ => Source::Measured,
        }
    }
}

/// Draws `rows` into `panel`: for each name a line for each of these sides that has figures.
pub(crate) fn draw<C, F>(
    panel: &mut Panel,
    rows: &[&Row<C, F>],
    sides: &[Side],
    name: impl Fn(&C) -> &'static str,
    place: impl Fn(&C) -> f64,
    value: impl Fn(&F) -> f64,
) {
    for line in in_order(rows.iter().map(|row| name(&row.case))) {
        for &side in sides {
            let of = || rows.iter().filter(|row| name(&row.case) == line);
            let mut points: Vec<(f64, f64)> = of()
                .filter_map(|row| Some((place(&row.case), value(row.figures(side)?))))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if let Some(row) = of().find(|row| row.figures(side).is_some()) {
                panel.line(line, row.source(side), points);
            }
        }
    }
}

/// What occurs, in order, each once.
pub(crate) fn in_order<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// What an experiment found, for whoever prints, draws or writes it. As JSON it is an object whose
/// lists of objects are its tables.
pub trait Findings: Serialize {
    /// The tables, for people and for documents.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    /// What has to be said beneath them, a line each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sections of a document that it fills, by the names of [`document`](crate::document).
    fn sections(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What takes the place of `before` in such a section: `found`, unless rows of earlier runs stay.
    fn renewed(&self, _before: &str, found: &str) -> String {
        found.to_owned()
    }

    /// The figure, if it has numbers by a parameter.
    fn figure(&self) -> Option<Plot> {
        None
    }
}

/// The only section of an experiment: its tables.
pub(crate) fn section_of_tables(name: &str, tables: &[Table]) -> Vec<(String, String)> {
    vec![(name.to_owned(), markdown(tables))]
}
