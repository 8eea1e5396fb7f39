//! `lapis lab device --this-machine`: the characterisation of a memory, as a table.

use lapis_lab::device_experiment::point::Figures;
use lapis_lab::device_experiment::this_machine::{Characterisation, Row};

use crate::failure::Failure;
use crate::output::{Output, human_bytes, right_align, table};

/// Writes a characterisation for people: measured and modelled side by side, never mixed.
pub fn print(
    found: &Characterisation,
    profile: &str,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut rows = table([
        "experiment",
        "figure",
        "method",
        "pattern",
        "bytes",
        "threads",
        "beside",
        "measured here",
        "modelled",
    ]);
    for row in &found.rows {
        rows.add_row(cells(row));
    }
    right_align(&mut rows, 7);
    output.table(&rows)?;
    output.line(format_args!(
        "measured here: {} of {}, {} cores; {}.",
        human_bytes(found.bytes as u64),
        found.memory,
        found.cores,
        found.remark
    ))?;
    if let Some(load) = found.load_average_before.filter(|&load| load > 0.5) {
        output.line(format_args!(
            "the system's load average was {load:.1} before: other processes disturbed the measurement."
        ))?;
    }
    output.line(format_args!(
        "modelled: {profile}, in virtual time. A dash: too few cores here, or no such instruction there."
    ))?;
    output.line(
        "figure: of van Renen et al., Building blocks for persistent memory, VLDB Journal 29 (2020).",
    )
}

fn cells(row: &Row) -> [String; 9] {
    let method = match row.task {
        Some(task) => format!("{task} ({})", row.method),
        None => row.method.to_owned(),
    };
    let beside = match (row.beside, row.beside_threads) {
        (Some(task), Some(threads)) => format!("{threads} × {task}"),
        _ => String::new(),
    };
    [
        row.experiment.to_owned(),
        row.figure.to_owned(),
        method,
        row.pattern.to_owned(),
        row.granularity_bytes.to_string(),
        row.threads.to_string(),
        beside,
        words(row.measured.as_ref()),
        words(row.modelled.as_ref()),
    ]
}

/// A latency, or a bandwidth and what it lost.
fn words(figures: Option<&Figures>) -> String {
    let Some(figures) = figures else { return "-".to_owned() };
    let mut parts = Vec::new();
    if let Some(latency_ns) = figures.latency_ns {
        parts.push(format!("{latency_ns:.1} ns"));
    }
    if let Some(gb_s) = figures.gb_s {
        parts.push(format!("{gb_s:.2} GB/s"));
    }
    if let Some(slowdown_percent) = figures.slowdown_percent {
        parts.push(format!("({slowdown_percent:+.0} % lost)"));
    }
    parts.join(" ")
}
