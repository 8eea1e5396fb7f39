//! Which fields of a profile are fitted, to which figures, and whether the model is off by more with a
//! little less or a little more of each.
//!
//! What a profile is fitted to is in [`super::published`]. Figures that are kept aside are not known
//! here.

use lapis_device::Profile;
use serde::Serialize;

use super::experiments::{self, Figure};
use super::published::{figures_of, published};
use super::raw_runs;
use crate::experiment::table::Table;
use crate::experiment::{ExperimentError, Findings};
use crate::progress::{OnProgress, Progress};

/// A field of a profile.
enum Field<'a> {
    Real(&'a mut f64),
    Whole(&'a mut u64),
}

impl Field<'_> {
    /// Its value, moved by so many steps.
    fn step(self, steps: i64) -> f64 {
        match self {
            Field::Real(value) => {
                *value *= 1.0 + steps as f64 / 10.0;
                *value
            }
            Field::Whole(value) => {
                let step = (*value / 10).max(1);
                *value = value.saturating_add_signed(steps * step as i64).max(1);
                *value as f64
            }
        }
    }
}

struct Fit {
    name: &'static str,
    field: fn(&mut Profile) -> Field<'_>,
    /// What the names of its figures begin with.
    figures: &'static [&'static str],
}

const FITS: [Fit; 14] = [
    Fit {
        name: "core.store_miss_interval_ns",
        field: |profile| Field::Real(&mut profile.core.store_miss_interval_ns.value),
        figures: &["runs/random/6/store+clwb/256/1/"],
    },
    Fit {
        name: "core.nontemporal_interval_ns",
        field: |profile| Field::Real(&mut profile.core.nontemporal_interval_ns.value),
        figures: &["runs/random/6/ntstore/256/1/"],
    },
    Fit {
        name: "memory.flush_accept_ns",
        field: |profile| Field::Real(&mut profile.memory.flush_accept_ns.value),
        figures: &["best/clwb"],
    },
    Fit {
        name: "memory.nontemporal_accept_ns",
        field: |profile| Field::Real(&mut profile.memory.nontemporal_accept_ns.value),
        figures: &["best/ntstore"],
    },
    Fit {
        name: "memory.flush_line_interval_ns",
        field: |profile| Field::Real(&mut profile.memory.flush_line_interval_ns.value),
        figures: &["size/clwb/"],
    },
    Fit {
        name: "memory.nontemporal_line_interval_ns",
        field: |profile| Field::Real(&mut profile.memory.nontemporal_line_interval_ns.value),
        figures: &["size/ntstore/"],
    },
    Fit {
        name: "memory.other_stripe_ns",
        field: |profile| Field::Real(&mut profile.memory.other_stripe_ns.value),
        figures: &["size/ntstore/64", "size/clwb/64"],
    },
    Fit {
        name: "memory.read_beside_write_ns",
        field: |profile| Field::Real(&mut profile.memory.read_beside_write_ns.value),
        figures: &["runs/random/1/store+clwb/256/2/"],
    },
    Fit {
        name: "memory.read_queue_lines",
        field: |profile| Field::Whole(&mut profile.memory.read_queue_lines.value),
        figures: &[
            "runs/random/1/load/128/12/",
            "runs/random/1/load/256/12/",
            "runs/random/1/load/1024/12/",
        ],
    },
    Fit {
        name: "memory.write_service_ns",
        field: |profile| Field::Real(&mut profile.memory.write_service_ns.value),
        figures: &["runs/random/1/ntstore/256/1/"],
    },
    Fit {
        name: "memory.write_backlog_units",
        field: |profile| Field::Whole(&mut profile.memory.write_backlog_units.value),
        figures: &["runs/random/6/ntstore/256/4/"],
    },
    Fit {
        name: "memory.buffer_spare_units",
        field: |profile| Field::Whole(&mut profile.memory.buffer_spare_units.value),
        figures: &["halves/"],
    },
    Fit {
        name: "memory.eviction_candidates",
        field: |profile| Field::Whole(&mut profile.memory.eviction_candidates.value),
        figures: &["halves/"],
    },
    Fit {
        name: "memory.eager_write_back_chance",
        field: |profile| Field::Real(&mut profile.memory.eager_write_back_chance.value),
        figures: &["halves/"],
    },
];

/// Whether a field is fitted to a figure.
#[cfg(test)]
pub(super) fn is_fitted_to(figure: &str) -> bool {
    FITS.iter().flat_map(|fit| fit.figures).any(|name| figure.starts_with(name))
}

/// A field, and how far the figures that it is fitted to are off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FittedField {
    /// Its name.
    pub field: &'static str,
    /// A step less of it, what the profile has, and a step more. A step is a tenth, of whole numbers
    /// at least one.
    pub values: [f64; 3],
    /// For each of the three the root of the mean square of the errors.
    pub error_percent: [f64; 3],
    /// How many figures it is fitted to.
    pub figures: usize,
}

/// What `lab device --fit` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitting {
    /// The profile.
    pub profile: String,
    /// Its fitted fields.
    pub fields: Vec<FittedField>,
}

/// The figures of a fit on the machine of a profile.
fn modelled(profile: &Profile, fit: &Fit) -> Result<Vec<Figure>, ExperimentError> {
    let belongs = |name: &str| fit.figures.iter().any(|begin| name.starts_with(begin));
    let runs: Vec<_> = figures_of(&profile.name).into_iter().filter(|name| belongs(name)).collect();
    let mut figures = raw_runs::figures(profile, &runs)?;
    if figures.is_empty() {
        let halves = fit.figures.iter().any(|name| name.starts_with("halves/"));
        let experiment =
            if halves { experiments::amplification } else { experiments::persist_latency };
        figures = experiment(profile)?;
    }
    figures.retain(|figure| belongs(&figure.id) && published(&profile.name, &figure.id).is_some());
    Ok(figures)
}

/// Moves each fitted field of a profile a step down and up.
///
/// # Errors
/// [`ExperimentError`].
pub fn fit(profile: &Profile, progress: OnProgress<'_>) -> Result<Fitting, ExperimentError> {
    let mut fields = Vec::new();
    for (done, fit) in FITS.iter().enumerate() {
        progress(Progress { done: done as u64, total: FITS.len() as u64 });
        let (mut values, mut errors, mut count) = ([0.0; 3], [0.0; 3], 0);
        for (at, steps) in [-1, 0, 1].into_iter().enumerate() {
            let mut moved = profile.clone();
            values[at] = (fit.field)(&mut moved).step(steps);
            let figures = modelled(&moved, fit)?;
            let squares = figures.iter().filter_map(|figure| {
                let real = published(&profile.name, &figure.id)?.value;
                Some((figure.value / real - 1.0).powi(2))
            });
            count = figures.len();
            errors[at] = (squares.sum::<f64>() / count.max(1) as f64).sqrt() * 100.0;
        }
        if count > 0 {
            let (field, error_percent, figures) = (fit.name, errors, count);
            fields.push(FittedField { field, values, error_percent, figures });
        }
    }
    Ok(Fitting { profile: profile.name.clone(), fields })
}

impl Findings for Fitting {
    fn tables(&self) -> Vec<Table> {
        let headings =
            "field | figures | a step less | error | the profile | error | a step more | error";
        let mut table = Table::new(1, headings);
        for field in &self.fields {
            let mut cells = vec![format!("`{}`", field.field), field.figures.to_string()];
            for (value, error) in field.values.iter().zip(field.error_percent) {
                cells.extend([
                    format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
                    format!("{error:.1} %"),
                ]);
            }
            table.push(cells);
        }
        vec![table]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_tenth_and_of_whole_numbers_at_least_one() {
        let (mut real, mut whole) = (20.0, 5);
        assert_eq!(Field::Real(&mut real).step(-1), 18.0);
        assert_eq!(Field::Whole(&mut whole).step(1), 6.0);
        assert_eq!(Field::Whole(&mut whole).step(0), 6.0);
        let mut one = 1;
        assert_eq!(Field::Whole(&mut one).step(-1), 1.0);
    }

    #[test]
    fn every_fitted_figure_has_a_field() {
        let fitted = |name: &&str| {
            let figure = published("optane-100", name).unwrap();
            figure.role == crate::device_experiment::published::Role::Fitted
        };
        for figure in figures_of("optane-100").into_iter().filter(fitted) {
            assert!(is_fitted_to(figure), "{figure}");
        }
    }
}
