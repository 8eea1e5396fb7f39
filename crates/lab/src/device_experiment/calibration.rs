//! The modelled machine beside the real one, row by row.

use std::fmt::Write;

use lapis_device::Profile;
use lapis_device::profile::Trust;
use serde::Serialize;

use super::published::published;
use super::{DeviceError, experiments, mixed};
use crate::report::{OnProgress, Progress};

/// The command whose section of `docs/calibration.md` the table is (module [`crate::generated`]).
pub const COMMAND: &str = "lapis lab device --profile optane-100";

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub quantity: String,
    /// Its unit.
    pub unit: &'static str,
    /// What was published of the real machine; null if nobody measured it.
    pub published: Option<f64>,
    /// What the model does.
    pub modelled: f64,
    /// How far the model is off.
    pub error_percent: Option<f64>,
    /// How far the published figure is to be trusted; null if there is none.
    pub trust: Option<Trust>,
    /// Who published it.
    pub source: Option<&'static str>,
    /// What was done on the model.
    pub pattern: &'static str,
    /// The figure's short name, for programs.
    pub id: String,
}

/// What `lab device` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceResults {
    /// The profile.
    pub profile: String,
    /// What it stands for.
    pub description: String,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Does every experiment on the machine of a profile. The same on every run and every machine.
///
/// # Errors
/// [`DeviceError`].
pub fn calibrate(
    profile: &Profile,
    progress: OnProgress<'_>,
) -> Result<DeviceResults, DeviceError> {
    let all = [
        experiments::read_latency,
        experiments::persist_latency,
        experiments::module_bandwidth,
        experiments::peak_bandwidth,
        mixed::mixed_bandwidth,
        experiments::amplification,
    ];
    let mut rows = Vec::new();
    for (done, experiment) in all.iter().enumerate() {
        progress(Progress { done: done as u64, total: all.len() as u64 });
        for figure in experiment(profile)? {
            let real = published(&profile.name, &figure.id);
            let error = |value: f64| (figure.value / value - 1.0) * 100.0;
            rows.push(Row {
                quantity: figure.quantity,
                unit: figure.unit,
                published: real.map(|real| real.value),
                modelled: figure.value,
                error_percent: real.map(|real| error(real.value)),
                trust: real.map(|real| real.trust),
                source: real.map(|real| real.source),
                pattern: figure.how,
                id: figure.id,
            });
        }
    }
    let (profile, description) = (profile.name.clone(), profile.description.clone());
    Ok(DeviceResults { profile, description, rows })
}

/// A figure with as many decimals as its size deserves.
pub fn shown(value: f64) -> String {
    if value.abs() < 20.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// The rows in Markdown, without the markers, ending in a newline.
pub fn calibration_table(results: &DeviceResults) -> String {
    let mut text = String::from(
        "| quantity | unit | published | modelled | error | trust | source | pattern on the model |\n\
         |---|---|--:|--:|--:|---|---|---|\n",
    );
    for row in &results.rows {
        let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.quantity,
            row.unit,
            or(row.published.map(shown), "not measured"),
            shown(row.modelled),
            or(row.error_percent.map(|error| format!("{error:+.1} %")), ""),
            or(row.trust.map(|trust| trust.to_string()), ""),
            row.source.unwrap_or_default(),
            row.pattern,
        );
    }
    text
}
