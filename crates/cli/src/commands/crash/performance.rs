//! `lapis crash --performance`: wasted flushes and fences.

use lapis_crash::{PerformanceReport, Structure, Waste, structure_performance};
use lapis_lab::experiment::table::Table;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};

/// What was found, as JSON.
#[derive(Serialize)]
pub struct Findings<'r> {
    /// The structure or the file.
    pub structure: &'r str,
    /// The seed of the operations; none for a recorded trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// One for each run.
    pub performance: Vec<PerformanceReport>,
}

/// Runs the structure once and prints what it wastes.
pub fn run(
    structure: Structure,
    only: &str,
    ops: usize,
    seed: u64,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let performance = structure_performance(structure, Some(only), ops, seed)?;
    print(&Findings { structure: structure.name(), seed: Some(seed), performance }, output)
}

/// Prints what was found. Waste is no failure: nothing is lost by it but time.
pub fn print(findings: &Findings<'_>, output: &mut Output) -> Result<Verdict, Failure> {
    output.json(findings)?;
    for report in &findings.performance {
        print_report(report, output)?;
    }
    Ok(Verdict::Good)
}

fn print_report(report: &PerformanceReport, output: &mut Output) -> Result<(), Failure> {
    let mut by_place = Table::new(6, "waste | where | because of | times | passed | first in");
    for finding in &report.findings {
        by_place.push([
            finding.waste.name().to_owned(),
            finding.location.clone(),
            finding.because_of.clone().unwrap_or_default(),
            grouped(finding.count),
            grouped(finding.passed),
            finding.first_operation.map_or_else(
                || "between operations".to_owned(),
                |number| format!("operation {number}"),
            ),
        ]);
    }
    let mut by_operation = Table::new(
        1,
        "operation | times | flushes each | fences each | wasted flushes | wasted fences",
    );
    for row in &report.by_operation {
        let fences = row.wasted.get(&Waste::IdleFence).copied().unwrap_or(0);
        let flushes = row.wasted.values().sum::<u64>() - fences;
        let each = |count: u64| match row.count {
            0 => String::new(),
            operations => format!("{:.2}", count as f64 / operations as f64),
        };
        by_operation.push([
            row.operation.clone(),
            grouped(row.count),
            each(row.flushes),
            each(row.fences),
            grouped(flushes),
            grouped(fences),
        ]);
    }
    if !report.findings.is_empty() {
        output.table(&by_place)?;
    }
    output.table(&by_operation)?;
    let fences = report.wasted_by(Waste::IdleFence);
    output.line(format_args!(
        "{}: {} of {} line flushes and {} of {} fences wasted",
        report.subject,
        grouped(report.wasted_total() - fences),
        grouped(report.flushes),
        grouped(fences),
        grouped(report.fences)
    ))
}
