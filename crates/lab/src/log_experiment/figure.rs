//! The tables, a row for each log and a column for each size, and the figure.

use lapis_blocks::log::Placement;

use super::{Case, LogResults, Row, Sharing};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{Findings, Side, draw, in_order, section_of_tables};
use crate::plot::{Axis, Panel, Plot};

impl Findings for LogResults {
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for threads in in_order(self.rows.iter().map(|row| row.case.threads)) {
            for side in [Side::Modelled, Side::Measured] {
                let rows = self.rows.iter().filter(|row| row.case.threads == threads);
                let rows: Vec<&Row> = rows.filter(|row| row.figures(side).is_some()).collect();
                if rows.is_empty() {
                    continue;
                }
                let source = match side {
                    Side::Modelled => format!("Modelled for {}", self.profile),
                    Side::Measured => {
                        format!("Measured here (anonymous memory, {})", self.flush_method)
                    }
                };
                let plural = if threads == 1 { "thread" } else { "threads" };
                tables.push(by_size(&rows, side).titled(format!(
                    "{source}, {threads} {plural}: million appends per second, by bytes of the entry"
                )));
            }
        }
        tables
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables("lapis lab log", &self.tables())
    }

    /// Appends per second by the size of entries: a panel for each placement, number of threads and
    /// way of sharing.
    fn figure(&self) -> Option<Plot> {
        let group = |row: &Row| (row.case.threads, row.case.placement, row.case.sharing);
        let panels = in_order(self.rows.iter().map(group)).into_iter().map(|of| {
            let (threads, placement, sharing): (usize, Placement, Sharing) = of;
            let title = match sharing {
                Sharing::Own => format!("{placement} entries, one thread"),
                Sharing::PerThread => format!("{placement} entries, {threads} threads, a log each"),
                Sharing::Shared => format!("{placement} entries, {threads} threads, one log"),
            };
            let y = Axis::linear("million appends per second");
            let mut panel = Panel::new(&title, Axis::log2("entry (bytes)"), y);
            let rows: Vec<&Row> = self.rows.iter().filter(|row| group(row) == of).collect();
            let (name, place) =
                (|case: &Case| case.variant.name, |case: &Case| case.size_bytes as f64);
            draw(&mut panel, &rows, &Side::ALL, name, place, |rate| rate.appends_per_s / 1e6);
            panel
        });
        Some(Plot::new(
            "Appends to logs",
            "The counterpart of Fig. 8 of van Renen et al., Building blocks for persistent memory (VLDB \
             Journal 29, 2020): dense entries are its left chart, padded ones its right. Measured: this \
             machine, anonymous memory. Modelled: virtual time.",
            panels.collect(),
        ))
    }
}

/// Appends per second of one side.
fn by_size(rows: &[&Row], side: Side) -> Table {
    let mut sizes = in_order(rows.iter().map(|row| row.case.size_bytes));
    sizes.sort_unstable();
    let names: String = sizes.iter().map(|size| format!(" | {size}")).collect();
    let mut table = Table::new(3, &format!("log | entries | log is | barriers{names}"));
    let log = |row: &Row| (row.case.placement, row.case.variant, row.case.sharing);
    for of in in_order(rows.iter().map(|row| log(row))) {
        let alike = rows.iter().filter(|row| log(row) == of);
        let Some(Row { case, .. }) = alike.clone().next() else { continue };
        let mut cells = vec![
            format!("`{}`", case.variant),
            case.placement.to_string(),
            case.sharing.name().to_owned(),
            format!("{:.0}", case.barriers),
        ];
        cells.extend(sizes.iter().map(|&size| {
            let row = alike.clone().find(|row| row.case.size_bytes == size);
            let rate = row.and_then(|row| row.figures(side));
            decimals(rate.map(|rate| rate.appends_per_s / 1e6), 2)
        }));
        table.push(cells);
    }
    table
}
