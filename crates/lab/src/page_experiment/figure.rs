//! The figure and the tables.

use std::fmt::Write;

use lapis_blocks::page::PageScheme;

use crate::plot::{Axis, Panel, Plot, Source};

use super::{PageResults, Row};

/// Which figure of the paper ours is the counterpart of.
pub const FIGURE: &str = "Counterpart of Fig. 7 (a) to (c), failure atomic page flush, of A. van Renen et \
                          al., Building blocks for persistent memory, The VLDB Journal 29 (2020). \
                          Dirty lines are scattered over the page.";

/// Pages per second of a row, measured or modelled.
fn value(row: &Row, modelled: bool) -> Option<f64> {
    match modelled {
        true => row.modelled.as_ref().map(|modelled| modelled.pages_per_s),
        false => row.measured.map(|measured| measured.pages_per_s),
    }
}

fn source(row: &Row, modelled: bool) -> Source {
    match &row.modelled {
        Some(values) if modelled => Source::modelled(&values.profile),
        _ => Source::Measured,
    }
}

fn in_order<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn variants(rows: &[Row]) -> Vec<PageScheme> {
    in_order(rows.iter().map(|row| row.variant))
}

/// Numbers of threads that there are values for, rising.
fn threads(rows: &[Row], modelled: bool) -> Vec<usize> {
    let with_values = rows.iter().filter(|row| value(row, modelled).is_some());
    let mut threads = in_order(with_values.map(|row| row.threads));
    threads.sort_unstable();
    threads
}

fn panel(
    title: &str,
    x: Axis,
    rows: &[Row],
    modelled: bool,
    place: impl Fn(&Row) -> Option<f64>,
) -> Option<Panel> {
    let mut panel = Panel::new(title, x, Axis::linear("pages per second"));
    for variant in variants(rows) {
        let of_variant = || rows.iter().filter(|row| row.variant == variant);
        let mut points: Vec<(f64, f64)> =
            of_variant().filter_map(|row| Some((place(row)?, value(row, modelled)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(row) = of_variant().next().filter(|_| !points.is_empty()) {
            panel.line(variant.name(), source(row, modelled), points);
        }
    }
    (!panel.series.is_empty()).then_some(panel)
}

/// The figure: pages per second over dirty lines with the fewest and the most threads, and over
/// threads; what was modelled and what was measured in panels of their own.
pub fn figure(results: &PageResults) -> Plot {
    let rows = &results.rows;
    let mut panels = Vec::new();
    for modelled in [true, false] {
        let name = if modelled { "modelled" } else { "measured here" };
        let threads = threads(rows, modelled);
        let ends = in_order(threads.first().into_iter().chain(threads.last()).copied());
        for count in ends {
            let title =
                format!("{name}, {count} {}", if count == 1 { "thread" } else { "threads" });
            let place = |row: &Row| (row.threads == count).then_some(row.dirty_lines as f64);
            panels.extend(panel(&title, Axis::log2("dirty lines"), rows, modelled, place));
        }
        let dirty = in_order(rows.iter().map(|row| row.dirty_lines));
        if let Some(&dirty) = dirty.get(dirty.len() / 2).filter(|_| threads.len() > 1) {
            let title = format!("{name}, {dirty} dirty lines");
            let place = |row: &Row| (row.dirty_lines == dirty).then_some(row.threads as f64);
            panels.extend(panel(&title, Axis::linear("threads"), rows, modelled, place));
        }
    }
    let page_bytes = rows.first().map_or(0, |row| row.page_bytes);
    let title = format!("Page propagation, pages of {} KiB", page_bytes / 1024);
    Plot::new(&title, FIGURE, panels)
}

/// The tables in Markdown: for each source and number of threads, thousands of pages per second by
/// dirty lines and scheme; then what each scheme writes, and the crossovers.
pub fn markdown(results: &PageResults) -> String {
    let rows = &results.rows;
    let mut text = String::new();
    for modelled in [true, false] {
        for threads in threads(rows, modelled) {
            let of_threads: Vec<&Row> = rows.iter().filter(|row| row.threads == threads).collect();
            let Some(first) = of_threads.first() else { continue };
            let source = source(first, modelled);
            let plural = if threads == 1 { "thread" } else { "threads" };
            let _ = writeln!(text, "\nThousand pages per second, {threads} {plural}, {source}:\n");
            push_heading(&mut text, rows);
            push_rows(&mut text, rows, threads, &|row| {
                value(row, modelled).map(|pages| format!("{:.0}", pages / 1e3))
            });
        }
    }
    let profile = rows.iter().find_map(|row| row.modelled.as_ref());
    if let (Some(profile), Some(&one)) = (profile, threads(rows, true).first()) {
        let profile = &profile.profile;
        let _ = writeln!(
            text,
            "\nLines to the memory controller / media writes (in lines of 64 bytes) per page, \
             modelled: {profile}:\n"
        );
        push_heading(&mut text, rows);
        push_rows(&mut text, rows, one, &|row| {
            let modelled = row.modelled.as_ref()?;
            Some(format!("{:.0} / {:.0}", modelled.wpq_inserts, modelled.media_writes))
        });
    }
    text.push_str(
        "\n| threads | crossover measured here | modelled | published |\n|---:|---:|---:|---:|\n",
    );
    for crossover in &results.crossovers {
        let lines = |lines: Option<f64>| lines.map_or("-".into(), |lines| format!("{lines:.0}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            crossover.threads,
            lines(crossover.measured_lines),
            lines(crossover.modelled_lines),
            lines(crossover.published_lines)
        );
    }
    text
}

fn push_heading(text: &mut String, rows: &[Row]) {
    text.push_str("| dirty lines |");
    let variants = variants(rows);
    variants.iter().for_each(|variant| {
        let _ = write!(text, " `{variant}` |");
    });
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(variants.len()));
}

fn push_rows(
    text: &mut String,
    rows: &[Row],
    threads: usize,
    cell: &dyn Fn(&Row) -> Option<String>,
) {
    for dirty in in_order(rows.iter().map(|row| row.dirty_lines)) {
        let _ = write!(text, "| {dirty} |");
        for variant in variants(rows) {
            let found = rows.iter().find(|row| {
                (row.variant, row.threads, row.dirty_lines) == (variant, threads, dirty)
            });
            let _ = write!(text, " {} |", found.and_then(cell).unwrap_or_else(|| "-".into()));
        }
        text.push('\n');
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
        let figure = figure(&results());
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
        let text = markdown(&results());
        for wanted in [
            "1 thread, modelled: optane-100:",
            "7 threads, modelled: optane-100:",
            "1 thread, measured here:",
            "| 16 | 333 | 556 |",
            "| 16 | 257 / 260 | 257 / 260 |",
            "| 1 | 40 | 40 | 28 |",
            "| 7 | - | 70 | 40 |",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains("7 threads, measured"), "{text}");
    }
}
