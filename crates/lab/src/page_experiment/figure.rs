//! The figure and the tables.

use lapis_blocks::page::PageScheme;

use super::{Case, PageResults, Row};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{Findings, Side, draw, in_order, section_of_tables};
use crate::plot::{Axis, Panel, Plot};

/// Which figure of the paper ours is the counterpart of.
pub const FIGURE: &str = "Counterpart of Fig. 7 (a) to (c), failure atomic page flush, of A. van Renen et \
                          al., Building blocks for persistent memory, The VLDB Journal 29 (2020). \
                          Dirty lines are scattered over the page.";

/// What was modelled first: there is more of it.
const SIDES: [Side; 2] = [Side::Modelled, Side::Measured];

/// Numbers of threads that there are figures for, rising.
fn threads(rows: &[Row], side: Side) -> Vec<usize> {
    let with_figures = rows.iter().filter(|row| row.figures(side).is_some());
    let mut threads = in_order(with_figures.map(|row| row.case.threads));
    threads.sort_unstable();
    threads
}

fn panel(
    title: &str,
    x: Axis,
    rows: &[&Row],
    side: Side,
    place: impl Fn(&Case) -> f64,
) -> Option<Panel> {
    let mut panel = Panel::new(title, x, Axis::linear("pages per second"));
    let name = |case: &Case| case.variant.name;
    draw(&mut panel, rows, &[side], name, place, |rate| rate.pages_per_s);
    (!panel.series.is_empty()).then_some(panel)
}

fn plural(threads: usize) -> &'static str {
    if threads == 1 { "thread" } else { "threads" }
}

impl PageResults {
    /// A table of what `cell` says of the rows with so many threads: by dirty lines, and by scheme.
    fn by_dirty_lines(
        &self,
        threads: usize,
        title: &str,
        cell: impl Fn(&Row) -> Option<String>,
    ) -> Table {
        let variants: Vec<PageScheme> = in_order(self.rows.iter().map(|row| row.case.variant));
        let names: String = variants.iter().map(|variant| format!(" | `{variant}`")).collect();
        let mut table = Table::new(0, &format!("dirty lines{names}")).titled(title);
        for dirty in in_order(self.rows.iter().map(|row| row.case.dirty_lines)) {
            let cells = variants.iter().map(|&variant| {
                let found = self.rows.iter().find(|Row { case, .. }| {
                    (case.variant, case.threads, case.dirty_lines) == (variant, threads, dirty)
                });
                found.and_then(&cell).unwrap_or_else(|| decimals(None, 0))
            });
            table.push(std::iter::once(dirty.to_string()).chain(cells));
        }
        table
    }

    fn crossover_table(&self) -> Table {
        let headings = "threads | crossover measured here | modelled | published";
        let mut table = Table::new(0, headings);
        for crossover in &self.crossovers {
            table.push([
                crossover.threads.to_string(),
                decimals(crossover.measured_lines, 0),
                decimals(crossover.modelled_lines, 0),
                decimals(crossover.published_lines, 0),
            ]);
        }
        table.titled("Up to how many dirty lines a log of them is faster than a copy of the page")
    }
}

impl Findings for PageResults {
    /// For each side and number of threads, thousands of pages per second by dirty lines and scheme;
    /// then what each scheme writes, and the crossovers.
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for side in SIDES {
            for threads in threads(&self.rows, side) {
                let of = |row: &&Row| row.case.threads == threads && row.figures(side).is_some();
                let Some(first) = self.rows.iter().find(of) else { continue };
                let (source, plural) = (first.source(side), plural(threads));
                let title = format!("Thousand pages per second, {threads} {plural}, {source}");
                tables.push(self.by_dirty_lines(threads, &title, |row| {
                    Some(format!("{:.0}", row.figures(side)?.pages_per_s / 1e3))
                }));
            }
        }
        if let Some(&one) = threads(&self.rows, Side::Modelled).first() {
            let title = "Lines to the memory controller / media writes / media reads (in lines of 64 \
                         bytes) per page, modelled";
            tables.push(self.by_dirty_lines(one, title, |row| {
                let of = row.modelled.as_ref()?.counts;
                let counts = [of.wpq_inserts, of.media_writes, of.media_reads];
                Some(counts.map(|count| format!("{count:.0}")).join(" / "))
            }));
        }
        tables.push(self.crossover_table());
        tables
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables("lapis lab page", &self.tables())
    }

    /// Pages per second over dirty lines with the fewest and the most threads, and over threads; what
    /// was modelled and what was measured in panels of their own.
    fn figure(&self) -> Option<Plot> {
        let rows = &self.rows;
        let mut panels = Vec::new();
        for side in SIDES {
            let name = if side == Side::Modelled { "modelled" } else { "measured here" };
            let threads = threads(rows, side);
            let chosen = |keep: &dyn Fn(&Case) -> bool| -> Vec<&Row> {
                rows.iter().filter(|row| keep(&row.case)).collect()
            };
            for count in in_order(threads.first().into_iter().chain(threads.last()).copied()) {
                let title = format!("{name}, {count} {}", plural(count));
                let of = chosen(&|case| case.threads == count);
                let place = |case: &Case| case.dirty_lines as f64;
                panels.extend(panel(&title, Axis::log2("dirty lines"), &of, side, place));
            }
            let dirty = in_order(rows.iter().map(|row| row.case.dirty_lines));
            if let Some(&dirty) = dirty.get(dirty.len() / 2).filter(|_| threads.len() > 1) {
                let title = format!("{name}, {dirty} dirty lines");
                let of = chosen(&|case| case.dirty_lines == dirty);
                let place = |case: &Case| case.threads as f64;
                panels.extend(panel(&title, Axis::linear("threads"), &of, side, place));
            }
        }
        let page_bytes = rows.first().map_or(0, |row| row.case.page_bytes);
        let title = format!("Page propagation, pages of {} KiB", page_bytes / 1024);
        Some(Plot::new(&title, FIGURE, panels))
    }
}

#[cfg(test)]
mod tests {
    use super::super::crossover::tests::rows;
    use super::super::crossovers;
    use super::*;

    fn results() -> PageResults {
        let rows = rows();
        PageResults { crossovers: crossovers(&rows), rows }
    }

    #[test]
    fn measured_and_modelled_are_in_panels_of_their_own() {
        let figure = results().figure().unwrap();
        for panel in &figure.panels {
            let first = &panel.series[0].source;
            assert!(panel.series.iter().all(|series| series.source == *first), "{}", panel.title);
        }
        let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "modelled, 1 thread",
                "modelled, 7 threads",
                "modelled, 64 dirty lines",
                "measured here, 1 thread"
            ]
        );
        assert!(figure.svg().unwrap().contains("Fig. 7"));
    }

    #[test]
    fn tables_name_their_source_and_have_a_cell_for_every_variant() {
        let text = crate::experiment::table::markdown(&results().tables());
        for wanted in [
            "1 thread, modelled: optane-100**",
            "7 threads, modelled: optane-100**",
            "1 thread, measured here**",
            "| 16 | 333 | 556 |",
            "| 16 | 257 / 260 / 4 | 257 / 260 / 4 |",
            "| 1 | 40 | 40 | 28 |",
            "| 7 | – | 70 | 40 |",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains("7 threads, measured"), "{text}");
    }
}
