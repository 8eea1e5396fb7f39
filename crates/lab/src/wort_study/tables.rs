//! The results as tables in Markdown: for the terminal, and as sections of a document.

use std::fmt::{Display, Write};

use super::{
    Contestant, Latency, MeasuredOperations, ModelledOperations, ModelledTime, OperationsRow,
    PerOperation, RangeRow, StringKind, StudyResults, claims, string_tables,
};

use crate::experiment::{Findings, in_order as distinct};
use crate::plot::Plot;

/// The command that the sections of a document name (module [`crate::document`]), each followed by a
/// colon and what it shows.
const COMMAND: &str = "lapis lab wort";

/// A table and the section of a document that it belongs in.
type Section = (String, String);

impl Findings for StudyResults {
    /// Its tables are Markdown, with what is to be said of each.
    fn notes(&self) -> Vec<String> {
        let titled = |(name, text): (String, String)| format!("{name}\n\n{text}");
        sections(self).into_iter().map(titled).collect()
    }

    fn sections(&self) -> Vec<(String, String)> {
        sections(self)
    }

    fn figure(&self) -> Option<Plot> {
        Some(super::figure::figure(self))
    }
}

/// The tables of what was run, each with the name of its section; those of what was not run are left
/// out. Models of another size than the default one, and keys from a file, have sections of their own.
fn sections(results: &StudyResults) -> Vec<Section> {
    let keys = modelled_size(results).map(|size| size.keys);
    let modelled = match keys {
        Some(keys) if keys != super::MODELLED_KEYS => format!("modelled, {} keys", grouped(keys)),
        _ => "modelled".to_owned(),
    };
    let of_file = results.strings.iter().any(|row| row.strings == StringKind::File);
    let strings = if of_file { "byte strings of a file" } else { "byte strings" };
    let all = [
        ("operations, measured".to_owned(), operations_measured(results)),
        ("claims, measured".to_owned(), claims::table(results)),
        (format!("insert by latency, {modelled}"), insert_by_latency(results)),
        (format!("search by latency, {modelled}"), search_by_latency(results)),
        (format!("Table 1, {modelled}"), table_1(results)),
        (format!("traffic, {modelled}"), traffic(results)),
        ("Table 1 (d), computed".to_owned(), radix_depths(results)),
        ("ranges, measured".to_owned(), ranges_measured(results)),
        (format!("ranges, {modelled}"), ranges_modelled(results)),
        ("recovery, measured".to_owned(), recovery(results)),
        (format!("{strings}, measured"), string_tables::measured(results)),
        (format!("{strings}, modelled"), string_tables::counts(results)),
        (format!("{strings} by latency, modelled"), string_tables::by_latency(results)),
    ];
    let named =
        |(name, text): (String, Option<String>)| Some((format!("{COMMAND}: {name}"), text?));
    all.into_iter().filter_map(named).collect()
}

/// The head of a table whose first two columns are keys and structure.
pub(super) fn head(columns: &[String]) -> String {
    let columns: String = columns.iter().map(|column| format!(" {column} |")).collect();
    let rule = "--:|".repeat(columns.matches('|').count());
    format!("| keys | structure |{columns}\n|---|---|{rule}\n")
}

pub(super) fn line(keys: impl Display, structure: Contestant, cells: &[String]) -> String {
    format!("| {keys} | `{structure}` | {} |\n", cells.join(" | "))
}

/// A table with a row for each structure and distribution for which there are `cells`; none if there
/// are none at all.
fn operations_table(
    results: &StudyResults,
    columns: &[String],
    cells: impl Fn(&OperationsRow) -> Option<Vec<String>>,
) -> Option<String> {
    let lines: String = results
        .operations
        .iter()
        .filter_map(|row| Some(line(row.distribution, row.structure, &cells(row)?)))
        .collect();
    (!lines.is_empty()).then(|| head(columns) + &lines)
}

pub(super) fn names<const N: usize>(columns: [&str; N]) -> Vec<String> {
    columns.map(str::to_owned).to_vec()
}

pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

pub(super) fn published(depth: Option<f64>) -> String {
    depth.map_or_else(|| "–".to_owned(), |depth| format!("{depth:.1}"))
}

/// The columns of [`measured_cells`].
pub(super) const MEASURED_COLUMNS: [&str; 6] =
    ["insert, ns", "search, ns", "insert, Mop/s", "search, Mop/s", "depth", "bytes per key"];

pub(super) fn measured_cells(found: &MeasuredOperations) -> Vec<String> {
    let MeasuredOperations { insert_ns, search_ns, depth, bytes_per_key, .. } = *found;
    let mut cells = vec![format!("{insert_ns:.0}"), format!("{search_ns:.0}")];
    cells.extend([insert_ns, search_ns].map(|ns| format!("{:.2}", 1e3 / ns)));
    cells.extend([format!("{depth:.2}"), format!("{bytes_per_key:.1}")]);
    cells
}

fn operations_measured(results: &StudyResults) -> Option<String> {
    let columns = names(MEASURED_COLUMNS);
    let table = operations_table(results, &columns, |row| Some(measured_cells(&row.measured?)))?;
    let keys = results.operations.iter().find_map(|row| row.measured.map(|found| found.keys))?;
    Some(format!(
        "Measured here (anonymous memory, {}): {} keys, one thread.\n\n{table}",
        results.flush_method,
        grouped(keys)
    ))
}

fn modelled_size(results: &StudyResults) -> Option<&ModelledOperations> {
    results.operations.iter().find_map(|row| row.modelled.as_ref())
}

fn insert_by_latency(results: &StudyResults) -> Option<String> {
    let latencies = modelled_size(results)?.times.iter().map(|time| time.latency).collect();
    by_latency(results, latencies, |time| time.insert_ns)
}

fn search_by_latency(results: &StudyResults) -> Option<String> {
    let latencies = latencies_of_searches(&modelled_size(results)?.times);
    by_latency(results, latencies, |time| time.search_ns)
}

/// Searches write nothing, so of latencies that differ in the writes alone one will do.
pub(super) fn latencies_of_searches(times: &[ModelledTime]) -> Vec<Latency> {
    let mut latencies: Vec<Latency> = Vec::new();
    for time in times {
        if latencies.iter().all(|known| known.read_ns != time.latency.read_ns) {
            latencies.push(time.latency);
        }
    }
    latencies
}

fn by_latency(
    results: &StudyResults,
    latencies: Vec<Latency>,
    ns: impl Fn(&ModelledTime) -> f64,
) -> Option<String> {
    let columns: Vec<String> = latencies.iter().map(ToString::to_string).collect();
    let table = operations_table(results, &columns, |row| {
        let times = &row.modelled.as_ref()?.times;
        let of = |latency: &Latency| times.iter().find(|time| time.latency == *latency);
        let cells = latencies.iter().map(|latency| Some(format!("{:.0}", ns(of(latency)?))));
        cells.collect()
    })?;
    Some(format!(
        "Modelled for {}, {} keys: nanoseconds of virtual time, by read/write latency of persistent \
         memory in nanoseconds.\n\n{table}",
        results.profile,
        grouped(modelled_size(results)?.keys)
    ))
}

fn table_1(results: &StudyResults) -> Option<String> {
    let size = modelled_size(results)?;
    let columns = names([
        "(a) misses per insert",
        "(b) flushes per insert",
        "(c) misses per search",
        "(d) depth",
        "(d) published, 128 M keys",
    ]);
    let table = operations_table(results, &columns, |row| {
        let found = row.modelled.as_ref()?;
        let counts =
            [found.insert.llc_misses, found.insert.flushes, found.search.llc_misses, found.depth];
        let mut cells = counts.map(|count| format!("{count:.2}")).to_vec();
        cells.push(published(row.published_depth));
        Some(cells)
    })?;
    Some(format!(
        "Modelled for {}: the last {} inserts into an index of {} keys, and {} searches.\n\n{table}",
        results.profile,
        grouped(size.inserts),
        grouped(size.keys),
        grouped(size.searches),
    ))
}

fn traffic(results: &StudyResults) -> Option<String> {
    let columns = names([
        "flushes",
        "fences",
        "WPQ inserts",
        "media writes",
        "bytes per key",
        "DRAM misses per insert",
        "DRAM misses per search",
    ]);
    let table = operations_table(results, &columns, |row| {
        let ModelledOperations { insert, search, bytes_per_key, .. } = row.modelled.as_ref()?;
        let PerOperation { flushes, fences, wpq_inserts, media_writes, .. } = *insert;
        let mut cells =
            [flushes, fences, wpq_inserts, media_writes].map(|n| format!("{n:.2}")).to_vec();
        cells.push(format!("{bytes_per_key:.1}"));
        cells.extend([insert.dram_misses, search.dram_misses].map(|n| format!("{n:.2}")));
        Some(cells)
    })?;
    Some(format!(
        "Modelled for {}, {} keys, per insert; media writes in units of 64 bytes, on media written 256 \
         bytes at a time. DRAM misses are of volatile inner nodes and locks, and part of (a) and (c).\n\n{table}",
        results.profile,
        grouped(modelled_size(results)?.keys)
    ))
}

fn ranges_measured(results: &StudyResults) -> Option<String> {
    let reference = |row: &RangeRow| {
        let is = |other: &&RangeRow| {
            other.structure == Contestant::BTreeMap
                && (other.distribution, other.percent) == (row.distribution, row.percent)
        };
        results.ranges.iter().find(is)?.measured
    };
    let table = range_table(&results.ranges, ["µs", "times BTreeMap"], |row| {
        let own = row.measured?;
        let against = reference(row).map(|reference| own.query_ns / reference.query_ns);
        let against = against.map_or_else(|| "–".into(), |times| format!("{times:.1}"));
        Some((own.entries, [format!("{:.2}", own.query_ns / 1000.0), against]))
    })?;
    Some(format!(
        "Measured here: microseconds of a query, and how many times that of the standard library's \
         `BTreeMap`.\n\n{table}"
    ))
}

fn ranges_modelled(results: &StudyResults) -> Option<String> {
    let table = range_table(&results.ranges, ["µs", "misses per entry"], |row| {
        let own = row.modelled?;
        let misses = own.llc_misses_per_entry?;
        Some((own.entries, [format!("{:.2}", own.query_ns / 1000.0), format!("{misses:.2}")]))
    })?;
    Some(format!(
        "Modelled for {} under its first pair of latencies: microseconds of virtual time of a query, \
         and last-level misses per entry.\n\n{table}",
        results.profile
    ))
}

/// A row for each structure and distribution, two columns for each share of the keys.
fn range_table(
    rows: &[RangeRow],
    columns: [&str; 2],
    cells: impl Fn(&RangeRow) -> Option<(usize, [String; 2])>,
) -> Option<String> {
    let found: Vec<_> = rows.iter().filter_map(|row| Some((row, cells(row)?))).collect();
    let shares = distinct(found.iter().map(|(row, (entries, _))| (row.percent, *entries)));
    let title = |(percent, entries): &(f64, usize)| {
        columns.map(|column| format!("{percent} % ({}): {column}", grouped(*entries)))
    };
    let mut text = head(&shares.iter().flat_map(title).collect::<Vec<_>>());
    for pair in distinct(found.iter().map(|(row, _)| (row.distribution, row.structure))) {
        let of = found.iter().filter(|(row, _)| (row.distribution, row.structure) == pair);
        let cells: Vec<String> = of.flat_map(|(_, (_, cells))| cells.clone()).collect();
        text += &line(pair.0, pair.1, &cells);
    }
    (!found.is_empty()).then_some(text)
}

fn recovery(results: &StudyResults) -> Option<String> {
    let rows = &results.recovery;
    let threads = distinct(rows.iter().map(|row| row.threads));
    let mut text = String::from(
        "Measured here: milliseconds from the opening of an index of sparse keys, left as by a crash, \
         to its first answer. Opening the pool beneath it comes before.\n\n\
         | structure | rebuilds | keys | pool, ms |",
    );
    for &threads in &threads {
        let plural = if threads == 1 { "thread" } else { "threads" };
        // Writing to a string cannot fail.
        let _ = write!(text, " index, {threads} {plural}, ms |");
    }
    text.push_str("\n|---|---|--:|--:|");
    text.push_str(&"--:|".repeat(threads.len()));
    text.push('\n');
    for (structure, keys) in distinct(rows.iter().map(|row| (row.structure, row.keys))) {
        let of: Vec<_> =
            rows.iter().filter(|row| (row.structure, row.keys) == (structure, keys)).collect();
        let first = of.first()?;
        let _ = write!(
            text,
            "| `{structure}` | {} | {} | {:.3} |",
            if first.rebuilds { "inner nodes" } else { "nothing" },
            grouped(keys),
            first.pool_open_us / 1000.0
        );
        for row in of {
            let _ = write!(text, " {:.3} |", row.index_open_us / 1000.0);
        }
        text.push('\n');
    }
    (!rows.is_empty()).then_some(text)
}

fn radix_depths(results: &StudyResults) -> Option<String> {
    let columns = names(["how many", "depth", "published, 128 M keys"]);
    let lines = results.radix_depths.iter().map(|row| {
        let cells =
            [grouped(row.keys), format!("{:.2}", row.depth), published(row.published_depth)];
        line(row.distribution, row.structure, &cells)
    });
    let table = head(&columns) + &lines.collect::<String>();
    (!results.radix_depths.is_empty()).then(|| {
        format!("Computed from the keys: a radix tree's depth depends on nothing else.\n\n{table}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([7, 999, 1000, 4_000_000].map(grouped), ["7", "999", "1,000", "4,000,000"]);
    }
}
