//! The figure and the table.

use lapis_blocks::in_place::CellKind;

use super::{FIGURE, OnModel, Operation, Pattern, Results, Row};
use crate::plot::{Axis, Panel, Plot, Source};

/// The figure: a panel for each operation and pattern, throughput over size.
pub fn plot(results: &Results) -> Plot {
    let mut panels = Vec::new();
    for pattern in Pattern::ALL {
        for operation in Operation::ALL {
            let title = format!("{} {}", pattern.name(), operation.name());
            let mut panel =
                Panel::new(&title, Axis::log2("bytes of a value"), Axis::linear("Mop/s"));
            for variant in CellKind::ALL.map(CellKind::name) {
                let rows = results.rows.iter().filter(|row| {
                    (row.variant, row.operation, row.pattern) == (variant, operation, pattern)
                });
                let (mut measured, mut modelled) = (Vec::new(), Vec::new());
                let mut profile = None;
                for row in rows {
                    let size = row.size_bytes as f64;
                    measured.extend(row.measured.map(|found| (size, found.mops)));
                    if let Some(found) = &row.modelled {
                        modelled.push((size, found.mops));
                        profile = Some(&found.profile);
                    }
                }
                if !measured.is_empty() {
                    panel.line(variant, Source::Measured, measured);
                }
                if let Some(profile) = profile {
                    panel.line(variant, Source::modelled(profile), modelled);
                }
            }
            panels.push(panel);
        }
    }
    Plot::new("In-place updates", FIGURE, panels)
}

/// The table in Markdown: a line for each scheme, size and pattern.
pub fn markdown(results: &Results) -> String {
    use std::fmt::Write;
    let mut text = String::from(
        "| cells | bytes | order | update / read / dependent read, Mop/s, measured here \
         | the same, modelled | barriers | flushes | WPQ inserts | media writes |\n\
         |---|--:|---|---|---|--:|--:|--:|--:|\n",
    );
    let figure = |mops: Option<f64>| mops.map_or("–".to_owned(), |mops| format!("{mops:.2}"));
    for update in results.rows.iter().filter(|row| row.operation == Operation::Update) {
        let of = |operation| {
            results.rows.iter().find(|row| {
                (row.variant, row.size_bytes, row.pattern, row.operation)
                    == (update.variant, update.size_bytes, update.pattern, operation)
            })
        };
        let three = |mops: &dyn Fn(&Row) -> Option<f64>| {
            Operation::ALL.map(|operation| figure(of(operation).and_then(mops))).join(" / ")
        };
        let count = |count: &dyn Fn(&OnModel) -> f64| figure(update.modelled.as_ref().map(count));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
            update.variant,
            update.size_bytes,
            update.pattern.name(),
            three(&|row| row.measured.map(|found| found.mops)),
            three(&|row| row.modelled.as_ref().map(|found| found.mops)),
            update.barriers,
            count(&|found| found.flushes),
            count(&|found| found.wpq_inserts),
            count(&|found| found.media_writes),
        );
    }
    text
}
