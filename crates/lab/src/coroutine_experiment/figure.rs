//! The figure and the table.

use super::{Case, FIGURE, Results, Row, Variant};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{Findings, Side, draw, section_of_tables};
use crate::plot::{Axis, Panel, Plot};

impl Findings for Results {
    /// A line for each variant and size of groups.
    fn tables(&self) -> Vec<Table> {
        let headings = "operation | in flight | Mop/s, measured here | speed-up | Mop/s, modelled | \
             speed-up | fences per operation | misses";
        let mut table = Table::new(1, headings);
        for row in &self.rows {
            let mut cells = vec![format!("`{}`", row.case.variant), row.case.group.to_string()];
            for side in Side::ALL {
                cells.push(decimals(row.figures(side).map(|found| found.mops), 2));
                cells.push(decimals(row.figures(side).map(|found| found.speed_up), 2));
            }
            let counts = row.modelled.as_ref().map(|found| found.counts);
            cells.push(decimals(counts.map(|of| of.fences), 2));
            cells.push(decimals(counts.map(|of| of.llc_misses), 2));
            table.push(cells);
        }
        vec![table]
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables("lapis lab coroutine", &self.tables())
    }

    /// Inserts and lookups side by side, throughput over the size of the group.
    fn figure(&self) -> Option<Plot> {
        let lookup = Variant::Lookup.name();
        let panels = [("inserts", false), ("lookups", true)].map(|(title, lookups)| {
            let (x, y) = (Axis::linear("tasks in flight"), Axis::linear("Mop/s"));
            let mut panel = Panel::new(title, x, y);
            let mut rows: Vec<&Row> = self.rows.iter().collect();
            rows.retain(|row| (row.case.variant == lookup) == lookups);
            let group = |case: &Case| case.group as f64;
            draw(&mut panel, &rows, &Side::ALL, |case| case.variant, group, |of| of.mops);
            panel
        });
        Some(Plot::new("Interleaving", FIGURE, panels.into()))
    }
}
