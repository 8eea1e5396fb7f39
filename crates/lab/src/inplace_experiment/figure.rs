//! The figure and the table.

use super::{FIGURE, Operation, Pattern, Results, Row};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{Findings, Side, draw, section_of_tables};
use crate::plot::{Axis, Panel, Plot};

impl Findings for Results {
    /// A line for each scheme, size and pattern.
    fn tables(&self) -> Vec<Table> {
        let headings = "cells | order | bytes | update / read / dependent read, Mop/s, measured here \
             | the same, modelled | barriers | flushes | WPQ inserts | media writes";
        let mut table = Table::new(2, headings);
        for update in self.rows.iter().filter(|row| row.case.operation == Operation::Update) {
            let case = &update.case;
            let of = |operation| {
                self.rows.iter().find(|Row { case: other, .. }| {
                    (other.variant, other.size_bytes, other.pattern, other.operation)
                        == (case.variant, case.size_bytes, case.pattern, operation)
                })
            };
            let three = |side| {
                let mops = |operation| Some(of(operation)?.figures(side)?.mops);
                Operation::ALL.map(|operation| decimals(mops(operation), 2)).join(" / ")
            };
            let counts = update.modelled.as_ref().map(|found| found.counts);
            table.push([
                format!("`{}`", case.variant),
                case.pattern.name().to_owned(),
                case.size_bytes.to_string(),
                three(Side::Measured),
                three(Side::Modelled),
                case.barriers.to_string(),
                decimals(counts.map(|of| of.flushes), 2),
                decimals(counts.map(|of| of.wpq_inserts), 2),
                decimals(counts.map(|of| of.media_writes), 2),
            ]);
        }
        vec![table]
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables("lapis lab inplace", &self.tables())
    }

    /// A panel for each operation and pattern, throughput over size.
    fn figure(&self) -> Option<Plot> {
        let mut panels = Vec::new();
        for pattern in Pattern::ALL {
            for operation in Operation::ALL {
                let title = format!("{} {}", pattern.name(), operation.name());
                let x = Axis::log2("bytes of a value");
                let mut panel = Panel::new(&title, x, Axis::linear("Mop/s"));
                let mut rows: Vec<&Row> = self.rows.iter().collect();
                rows.retain(|Row { case, .. }| {
                    (case.operation, case.pattern) == (operation, pattern)
                });
                let place = |case: &super::Case| case.size_bytes as f64;
                draw(&mut panel, &rows, &Side::ALL, |case| case.variant, place, |of| of.mops);
                panels.push(panel);
            }
        }
        Some(Plot::new("In-place updates", FIGURE, panels))
    }
}
