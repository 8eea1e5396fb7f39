//! The results as tables in Markdown: for the terminal, and as sections of a document.

use std::fmt::Write;

use super::{
    Contestant, DepthResults, Latency, ModelledOperations, OperationsRow, PerOperation, RangeRow,
    StudyResults,
};
use crate::keys::Distribution;

/// The command that the sections of a document name (module [`crate::generated`]), each followed by a
/// colon and what it shows.
pub const COMMAND: &str = "lapis lab wort";
/// The section of [`super::depths`].
pub const DEPTHS_SECTION: &str = "lapis lab wort --depths";

/// A table and the section of a document that it belongs in.
type Section = (String, String);

/// The tables of what was run, each with the name of its section; those of what was not run are left
/// out.
pub fn sections(results: &StudyResults) -> Vec<Section> {
    let all = [
        ("operations, measured", operations_measured(results)),
        ("insert by latency, modelled", by_latency(results, "Insert", |time| time.insert_ns)),
        ("search by latency, modelled", by_latency(results, "Search", |time| time.search_ns)),
        ("Table 1, modelled", table_1(results)),
        ("traffic, modelled", traffic(results)),
        ("ranges, measured", ranges_measured(results)),
        ("ranges, modelled", ranges_modelled(results)),
        ("recovery, measured", recovery(results)),
    ];
    let named = |(name, text): (&str, Option<String>)| Some((format!("{COMMAND}: {name}"), text?));
    all.into_iter().filter_map(named).collect()
}

fn heading(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Dense => "Dense",
        Distribution::Sparse => "Sparse",
        Distribution::Clustered => "Clustered",
        Distribution::Uniform => "Uniform",
        Distribution::Zipf => "Zipf",
    }
}

/// What occurs in rows, in order, each once.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn distributions(results: &StudyResults) -> Vec<Distribution> {
    distinct(results.operations.iter().map(|row| row.distribution))
}

fn structures(results: &StudyResults) -> Vec<Contestant> {
    distinct(results.operations.iter().map(|row| row.structure))
}

fn row_of(
    results: &StudyResults,
    structure: Contestant,
    distribution: Distribution,
) -> Option<&OperationsRow> {
    let is = |row: &&OperationsRow| (row.structure, row.distribution) == (structure, distribution);
    results.operations.iter().find(is)
}

/// A table with a row for each structure and `columns` for each distribution. Cells that nothing
/// fills have a dash; none if no cell has more.
fn by_distribution(
    results: &StudyResults,
    columns: &[&str],
    cells: impl Fn(&OperationsRow) -> Option<Vec<String>>,
) -> Option<String> {
    let distributions = distributions(results);
    let mut text = String::from("| structure |");
    for &distribution in &distributions {
        for column in columns {
            // Writing to a string cannot fail.
            let _ = write!(text, " {}, {column} |", heading(distribution));
        }
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(distributions.len() * columns.len()));
    text.push('\n');
    let mut filled = false;
    for structure in structures(results) {
        let found: Vec<_> = distributions
            .iter()
            .map(|&distribution| row_of(results, structure, distribution).and_then(&cells))
            .collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        filled = true;
        let _ = write!(text, "| `{structure}` |");
        for cells in found {
            let cells = cells.unwrap_or_else(|| vec!["–".into(); columns.len()]);
            for cell in cells {
                let _ = write!(text, " {cell} |");
            }
        }
        text.push('\n');
    }
    filled.then_some(text)
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn operations_measured(results: &StudyResults) -> Option<String> {
    let table = by_distribution(results, &["insert ns", "search ns"], |row| {
        let measured = row.measured.as_ref()?;
        Some([measured.insert_ns, measured.search_ns].map(|ns| format!("{ns:.0}")).to_vec())
    })?;
    let speeds = by_distribution(results, &["insert", "search"], |row| {
        let measured = row.measured.as_ref()?;
        let mops = [measured.insert_ns, measured.search_ns].map(|ns| 1e3 / ns);
        Some(mops.map(|mops| format!("{mops:.2}")).to_vec())
    })?;
    let keys = results.operations.iter().find_map(|row| row.measured.map(|found| found.keys))?;
    Some(format!(
        "Measured here (anonymous memory, {}), {} keys, one thread: mean time of an operation.\n\n\
         {table}\nThe same as million operations per second.\n\n{speeds}",
        results.flush_method,
        grouped(keys)
    ))
}

fn modelled_size(results: &StudyResults) -> Option<&ModelledOperations> {
    results.operations.iter().find_map(|row| row.modelled.as_ref())
}

fn by_latency(
    results: &StudyResults,
    operation: &str,
    time: impl Fn(&super::ModelledTime) -> f64,
) -> Option<String> {
    let size = modelled_size(results)?;
    let mut latencies: Vec<Latency> = size.times.iter().map(|time| time.latency).collect();
    if operation == "Search" {
        // Nothing is written, so those that differ in the writes alone are the same.
        let mut seen = Vec::new();
        latencies.retain(|latency| {
            let new = !seen.contains(&latency.read_ns);
            seen.push(latency.read_ns);
            new
        });
    }
    let columns: Vec<String> = latencies.iter().map(ToString::to_string).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let table = by_distribution(results, &columns, |row| {
        let times = &row.modelled.as_ref()?.times;
        let of = |latency: &Latency| {
            let found = times.iter().find(|time| time.latency == *latency);
            found.map_or_else(|| "–".into(), |found| format!("{:.0}", time(found)))
        };
        Some(latencies.iter().map(of).collect())
    })?;
    Some(format!(
        "Modelled for {}, {} keys: nanoseconds of virtual time, by read/write latency of PM in \
         nanoseconds.\n\n{table}",
        results.profile,
        grouped(size.keys)
    ))
}

fn table_1(results: &StudyResults) -> Option<String> {
    let size = modelled_size(results)?;
    let published = |row: &OperationsRow| {
        row.published_depth.map_or_else(|| "–".to_owned(), |depth| format!("{depth:.1}"))
    };
    let table = by_distribution(
        results,
        &[
            "(a) misses per insert",
            "(b) flushes per insert",
            "(c) misses per search",
            "(d) depth",
            "(d) published",
        ],
        |row| {
            let found = row.modelled.as_ref()?;
            Some(vec![
                format!("{:.2}", found.insert.llc_misses),
                format!("{:.2}", found.insert.flushes),
                format!("{:.2}", found.search.llc_misses),
                format!("{:.2}", found.depth),
                published(row),
            ])
        },
    )?;
    Some(format!(
        "Modelled for {}: the last {} inserts into an index of {} keys, and {} searches. The published \
         depths are those at 128 M keys.\n\n{table}",
        results.profile,
        grouped(size.inserts),
        grouped(size.keys),
        grouped(size.searches),
    ))
}

fn traffic(results: &StudyResults) -> Option<String> {
    let size = modelled_size(results)?;
    let mut text = format!(
        "Modelled for {}, {} keys, per insert; then misses of inner nodes in DRAM, part of (a) and (c) \
         above. Media writes in units of 64 bytes.\n\n\
         | structure | keys | flushes | fences | WPQ inserts | media writes | depth | bytes per key \
         | DRAM misses per insert | per search |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        results.profile,
        grouped(size.keys)
    );
    for row in &results.operations {
        let Some(found) = &row.modelled else { continue };
        let PerOperation { flushes, fences, wpq_inserts, media_writes, .. } = found.insert;
        let _ = writeln!(
            text,
            "| `{}` | {} | {flushes:.2} | {fences:.2} | {wpq_inserts:.2} | {media_writes:.2} | {:.2} \
             | {:.1} | {:.2} | {:.2} |",
            row.structure,
            row.distribution,
            found.depth,
            found.bytes_per_key,
            found.insert.dram_misses,
            found.search.dram_misses
        );
    }
    Some(text)
}

fn ranges_measured(results: &StudyResults) -> Option<String> {
    let rows: Vec<&RangeRow> = results.ranges.iter().filter(|row| row.measured.is_some()).collect();
    let reference = |row: &RangeRow| {
        let is = |other: &&&RangeRow| {
            other.structure == Contestant::BTreeMap
                && (other.distribution, other.percent) == (row.distribution, row.percent)
        };
        rows.iter().find(is)?.measured
    };
    range_table(
        &rows,
        "Measured here: microseconds of a query, and how many times that of the standard library's \
         `BTreeMap`.",
        &["µs", "against BTreeMap"],
        |row| {
            let own = row.measured?;
            let against = reference(row).map_or_else(
                || "–".into(),
                |reference| format!("{:.1}", own.query_ns / reference.query_ns),
            );
            Some((own.entries, vec![format!("{:.2}", own.query_ns / 1000.0), against]))
        },
    )
}

fn ranges_modelled(results: &StudyResults) -> Option<String> {
    let rows: Vec<&RangeRow> = results.ranges.iter().filter(|row| row.modelled.is_some()).collect();
    range_table(
        &rows,
        &format!(
            "Modelled for {}: microseconds of virtual time of a query, and last-level misses per entry.",
            results.profile
        ),
        &["µs", "misses per entry"],
        |row| {
            let own = row.modelled?;
            let misses = own.llc_misses_per_entry.unwrap_or_default();
            Some((
                own.entries,
                vec![format!("{:.2}", own.query_ns / 1000.0), format!("{misses:.2}")],
            ))
        },
    )
}

/// A row for each structure and share of the keys, `columns` for each distribution.
fn range_table(
    rows: &[&RangeRow],
    title: &str,
    columns: &[&str],
    cells: impl Fn(&RangeRow) -> Option<(usize, Vec<String>)>,
) -> Option<String> {
    let distributions = distinct(rows.iter().map(|row| row.distribution));
    let mut text = format!("{title}\n\n| structure | of the keys | entries |");
    for &distribution in &distributions {
        for column in columns {
            let _ = write!(text, " {}, {column} |", heading(distribution));
        }
    }
    text.push_str("\n|---|--:|--:|");
    text.push_str(&"--:|".repeat(distributions.len() * columns.len()));
    text.push('\n');
    let shares = distinct(rows.iter().map(|row| (row.percent, row.structure)));
    let mut percents = distinct(shares.iter().map(|(percent, _)| *percent));
    percents.sort_by(f64::total_cmp);
    for percent in percents {
        for (_, structure) in shares.iter().filter(|(of, _)| *of == percent) {
            let of = |distribution: &Distribution| {
                let is = |row: &&&RangeRow| {
                    (row.structure, row.distribution, row.percent)
                        == (*structure, *distribution, percent)
                };
                rows.iter().find(is).and_then(|row| cells(row))
            };
            let found: Vec<_> = distributions.iter().map(of).collect();
            let entries = found.iter().flatten().map(|(entries, _)| *entries).next()?;
            let _ = write!(text, "| `{structure}` | {percent} % | {} |", grouped(entries));
            for cells in found {
                let cells =
                    cells.map_or_else(|| vec!["–".into(); columns.len()], |(_, cells)| cells);
                for cell in cells {
                    let _ = write!(text, " {cell} |");
                }
            }
            text.push('\n');
        }
    }
    (!rows.is_empty()).then_some(text)
}

fn recovery(results: &StudyResults) -> Option<String> {
    let rows = &results.recovery;
    let threads = distinct(rows.iter().map(|row| row.threads));
    let mut text = String::from(
        "Measured here: milliseconds from the opening of the index, left as by a crash, to its first \
         answer. Opening the pool beneath it comes before and depends on no size.\n\n\
         | structure | rebuilds | keys | pool, ms |",
    );
    for &threads in &threads {
        let plural = if threads == 1 { "thread" } else { "threads" };
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

/// The table of depths.
pub fn depths_table(results: &DepthResults) -> String {
    let mut text = String::from(
        "| structure | keys | how many | depth | deepest | published, 128 M | bytes per key |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.depths {
        let published =
            row.published_depth.map_or_else(|| "–".to_owned(), |depth| format!("{depth:.1}"));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {:.2} | {} | {published} | {:.1} |",
            row.structure,
            row.distribution,
            grouped(row.keys),
            row.depth,
            row.max_depth,
            row.bytes_per_key
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([7, 999, 1000, 4_000_000].map(grouped), ["7", "999", "1,000", "4,000,000"]);
    }
}
