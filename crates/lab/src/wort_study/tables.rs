//! The results as tables: for the terminal, and as sections of a document.

use std::fmt::Display;

use super::results::Operations;
use super::{
    Contestant, Latency, ModelledOperations, ModelledTime, PerOperation, RangeRow, RangeTimes,
    StringKind, StringRow, StudyResults, claims,
};
use crate::experiment::table::{Table, decimals, grouped};
use crate::experiment::{Findings, in_order};
use crate::plot::Plot;

/// The command that the sections of a document name (module [`crate::document`]), each followed by a
/// colon and what it shows.
const COMMAND: &str = "lapis lab wort";

impl Findings for StudyResults {
    fn tables(&self) -> Vec<Table> {
        sections(self).into_iter().map(|(name, table)| table.titled(name)).collect()
    }

    fn sections(&self) -> Vec<(String, String)> {
        let named =
            |(name, table): (String, Table)| (format!("{COMMAND}: {name}"), table.markdown());
        sections(self).into_iter().map(named).collect()
    }

    fn figure(&self) -> Option<Plot> {
        Some(super::figure::figure(self))
    }
}

/// The tables of what was run, each with what it shows; those of what was not run are left out. Models
/// of another size than the default one, and keys from a file, have sections of their own.
fn sections(results: &StudyResults) -> Vec<(String, Table)> {
    let (integers, strings) = (results.of_integers(), results.of_strings());
    let modelled = match size(&integers) {
        Some(size) if size.keys != super::MODELLED_KEYS => {
            format!("modelled, {} keys", grouped(size.keys))
        }
        _ => "modelled".to_owned(),
    };
    let of_file = results.strings.iter().any(|row| row.case.strings == StringKind::File);
    let of_strings = if of_file { "byte strings of a file" } else { "byte strings" };
    let all = [
        ("operations, measured".to_owned(), operations_measured(results, &integers)),
        ("claims, measured".to_owned(), claims::table(results)),
        (format!("insert by latency, {modelled}"), insert_by_latency(results, &integers)),
        (format!("search by latency, {modelled}"), search_by_latency(results, &integers)),
        (format!("Table 1, {modelled}"), table_1(results, &integers)),
        (format!("traffic, {modelled}"), traffic(results, &integers)),
        ("Table 1 (d), computed".to_owned(), radix_depths(results)),
        ("ranges, measured".to_owned(), ranges_measured(results)),
        (format!("ranges, {modelled}"), ranges_modelled(results)),
        ("recovery, measured".to_owned(), recovery(results)),
        (format!("{of_strings}, measured"), strings_measured(results, &strings)),
        (format!("{of_strings}, modelled"), string_counts(results, &strings)),
        (format!("{of_strings} by latency, modelled"), strings_by_latency(results, &strings)),
    ];
    all.into_iter().filter_map(|(name, table)| Some((name, table?))).collect()
}

/// A table of which each row is of one kind of keys and one structure; none if there are no rows.
pub(super) fn by_structure<K: Display>(
    columns: &str,
    rows: impl IntoIterator<Item = (K, Contestant, Vec<String>)>,
) -> Option<Table> {
    let mut table = Table::new(2, &format!("keys | structure | {columns}"));
    for (keys, structure, cells) in rows {
        table.push([keys.to_string(), format!("`{structure}`")].into_iter().chain(cells));
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The same of inserts and searches, for which there are `cells`.
fn of_operations(
    rows: &[Operations<'_>],
    columns: &str,
    cells: impl Fn(&Operations<'_>) -> Option<Vec<String>>,
) -> Option<Table> {
    by_structure(
        columns,
        rows.iter().filter_map(|row| Some((row.keys, row.structure, cells(row)?))),
    )
}

/// Figures with two decimals.
fn two_decimals<const N: usize>(figures: [f64; N]) -> Vec<String> {
    figures.map(|figure| format!("{figure:.2}")).to_vec()
}

/// The size of what was modelled, that of the first row as of all.
fn size<'r>(rows: &[Operations<'r>]) -> Option<&'r ModelledOperations> {
    rows.iter().find_map(|row| row.modelled)
}

fn measured(rows: &[Operations<'_>]) -> Option<Table> {
    let columns = "insert, ns | search, ns | insert, Mop/s | search, Mop/s | depth | bytes per key";
    of_operations(rows, columns, |row| {
        let found = row.measured?;
        let times = [found.insert_ns, found.search_ns];
        let mut cells = times.map(|ns| format!("{ns:.0}")).to_vec();
        cells.extend(two_decimals(times.map(|ns| 1e3 / ns)));
        cells.extend([format!("{:.2}", found.depth), format!("{:.1}", found.bytes_per_key)]);
        Some(cells)
    })
}

fn operations_measured(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let keys = rows.iter().find_map(|row| Some(row.measured?.keys))?;
    Some(measured(rows)?.after(format!(
        "Measured here (anonymous memory, {}): {} keys, one thread.",
        results.flush_method,
        grouped(keys)
    )))
}

/// A column of virtual times: its heading, the latencies, and what is done.
type TimesColumn = (String, Latency, fn(&ModelledTime) -> f64);

fn by_latency(rows: &[Operations<'_>], columns: &[TimesColumn]) -> Option<Table> {
    let headings: Vec<&str> = columns.iter().map(|(heading, ..)| heading.as_str()).collect();
    of_operations(rows, &headings.join(" | "), |row| {
        let times = &row.modelled?.times;
        let cells = columns.iter().map(|(_, latency, ns)| {
            Some(format!("{:.0}", ns(times.iter().find(|time| time.latency == *latency)?)))
        });
        cells.collect()
    })
}

/// The columns of inserts, with what their headings begin with.
fn inserts(size: &ModelledOperations, begin: &str) -> Vec<TimesColumn> {
    let column = |time: &ModelledTime| -> TimesColumn {
        (format!("{begin}{}", time.latency), time.latency, |time| time.insert_ns)
    };
    size.times.iter().map(column).collect()
}

/// Those of searches, which write nothing: of latencies that differ in the writes alone one will do.
fn searches(size: &ModelledOperations, begin: &str) -> Vec<TimesColumn> {
    let mut columns: Vec<TimesColumn> = Vec::new();
    for time in &size.times {
        if columns.iter().all(|(_, known, _)| known.read_ns != time.latency.read_ns) {
            let heading = format!("{begin}{}", time.latency);
            columns.push((heading, time.latency, |time| time.search_ns));
        }
    }
    columns
}

/// What is said before a table of virtual times.
fn virtual_times(results: &StudyResults, sizes: &str) -> String {
    format!(
        "Modelled for {}, {sizes}: nanoseconds of virtual time, by read/write latency of persistent \
         memory in nanoseconds.",
        results.profile
    )
}

fn insert_by_latency(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let text = virtual_times(results, &format!("{} keys", grouped(size.keys)));
    Some(by_latency(rows, &inserts(size, ""))?.after(text))
}

fn search_by_latency(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let text = virtual_times(results, &format!("{} keys", grouped(size.keys)));
    Some(by_latency(rows, &searches(size, ""))?.after(text))
}

fn table_1(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let columns = "(a) misses per insert | (b) flushes per insert | (c) misses per search | (d) depth | \
                   (d) published, 128 M keys";
    let table = of_operations(rows, columns, |row| {
        let ModelledOperations { insert, search, depth, .. } = row.modelled?;
        let mut cells =
            two_decimals([insert.llc_misses, insert.flushes, search.llc_misses, *depth]);
        cells.push(decimals(row.published_depth, 1));
        Some(cells)
    })?;
    Some(table.after(format!(
        "Modelled for {}: the last {} inserts into an index of {} keys, and {} searches.",
        results.profile,
        grouped(size.inserts),
        grouped(size.keys),
        grouped(size.searches),
    )))
}

fn traffic(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let columns = "flushes | fences | WPQ inserts | media writes | bytes per key | \
                   DRAM misses per insert | DRAM misses per search";
    let table = of_operations(rows, columns, |row| {
        let ModelledOperations { insert, search, bytes_per_key, .. } = row.modelled?;
        let PerOperation { flushes, fences, wpq_inserts, media_writes, .. } = *insert;
        let mut cells = two_decimals([flushes, fences, wpq_inserts, media_writes]);
        cells.push(format!("{bytes_per_key:.1}"));
        cells.extend(two_decimals([insert.dram_misses, search.dram_misses]));
        Some(cells)
    })?;
    Some(table.after(format!(
        "Modelled for {}, {} keys, per insert; media writes in units of 64 bytes, on media written 256 \
         bytes at a time. DRAM misses are of volatile inner nodes and locks, and part of (a) and (c).",
        results.profile,
        grouped(size.keys)
    )))
}

fn ranges_measured(results: &StudyResults) -> Option<Table> {
    let reference = |row: &RangeRow| {
        let is = |other: &&RangeRow| {
            other.case.structure == Contestant::BTreeMap
                && (other.case.distribution, other.case.percent)
                    == (row.case.distribution, row.case.percent)
        };
        results.ranges.iter().find(is)?.measured
    };
    let table = range_table(results, ["µs", "times BTreeMap"], |row| {
        let own = row.measured?;
        let against = reference(row).map(|reference| own.query_ns / reference.query_ns);
        Some((own, decimals(against, 1)))
    })?;
    Some(table.after(
        "Measured here: microseconds of a query, and how many times that of the standard library's \
         `BTreeMap`.",
    ))
}

fn ranges_modelled(results: &StudyResults) -> Option<Table> {
    let table = range_table(results, ["µs", "misses per entry"], |row| {
        let own = row.modelled?;
        Some((own, format!("{:.2}", own.llc_misses_per_entry?)))
    })?;
    Some(table.after(format!(
        "Modelled for {} under its first pair of latencies: microseconds of virtual time of a query, \
         and last-level misses per entry.",
        results.profile
    )))
}

/// A row for each structure and distribution, two columns for each share of the keys: the time of a
/// query and what is put beside it.
fn range_table(
    results: &StudyResults,
    columns: [&str; 2],
    cells: impl Fn(&RangeRow) -> Option<(RangeTimes, String)>,
) -> Option<Table> {
    let found: Vec<_> =
        results.ranges.iter().filter_map(|row| Some((row.case, cells(row)?))).collect();
    let shares = in_order(found.iter().map(|(case, (own, _))| (case.percent, own.entries)));
    let headings = shares.iter().flat_map(|&(percent, entries)| {
        columns.map(|column| format!("{percent} % ({}): {column}", grouped(entries)))
    });
    let pairs = in_order(found.iter().map(|(case, _)| (case.distribution, case.structure)));
    let rows = pairs.into_iter().map(|pair| {
        let of = found.iter().filter(|(case, _)| (case.distribution, case.structure) == pair);
        let cells = of.flat_map(|(_, (own, beside))| {
            [format!("{:.2}", own.query_ns / 1000.0), beside.clone()]
        });
        (pair.0, pair.1, cells.collect())
    });
    by_structure(&headings.collect::<Vec<_>>().join(" | "), rows)
}

fn recovery(results: &StudyResults) -> Option<Table> {
    let rows = &results.recovery;
    let mut headings = "structure | rebuilds | keys | pool, ms".to_owned();
    for threads in in_order(rows.iter().map(|row| row.threads)) {
        let plural = if threads == 1 { "thread" } else { "threads" };
        headings += &format!(" | index, {threads} {plural}, ms");
    }
    let mut table = Table::new(2, &headings);
    for place in in_order(rows.iter().map(|row| (row.structure, row.keys))) {
        let of: Vec<_> = rows.iter().filter(|row| (row.structure, row.keys) == place).collect();
        let first = of.first()?;
        let rebuilds = if first.rebuilds { "inner nodes" } else { "nothing" };
        let words = [format!("`{}`", place.0), rebuilds.to_owned(), grouped(place.1)];
        let us = std::iter::once(first.pool_open_us).chain(of.iter().map(|row| row.index_open_us));
        table.push(words.into_iter().chain(us.map(|us| format!("{:.3}", us / 1000.0))));
    }
    let text = "Measured here: milliseconds from the opening of an index of sparse keys, left as by a \
                crash, to its first answer. Opening the pool beneath it comes before.";
    (!rows.is_empty()).then(|| table.after(text))
}

fn radix_depths(results: &StudyResults) -> Option<Table> {
    let rows = results.radix_depths.iter().map(|row| {
        let cells =
            vec![grouped(row.keys), format!("{:.2}", row.depth), decimals(row.published_depth, 1)];
        (row.distribution, row.structure, cells)
    });
    let table = by_structure("how many | depth | published, 128 M keys", rows)?;
    Some(table.after("Computed from the keys: a radix tree's depth depends on nothing else."))
}

/// How many byte-string keys there are, and how long they are.
fn string_sizes(results: &StudyResults, keys: impl Fn(&StringRow) -> Option<usize>) -> String {
    let sizes = results.strings.iter().filter_map(|row| {
        let (keys, kind) = (grouped(keys(row)?), row.case.strings);
        Some(format!("{keys} `{kind}` keys of {:.1} bytes on average", row.case.key_bytes))
    });
    in_order(sizes).join(", ")
}

fn modelled_string_sizes(results: &StudyResults) -> String {
    string_sizes(results, |row| Some(row.modelled.as_ref()?.keys))
}

fn strings_measured(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    Some(measured(rows)?.after(format!(
        "Measured here (anonymous memory, {}), one thread: {}.",
        results.flush_method,
        string_sizes(results, |row| Some(row.measured?.keys))
    )))
}

fn string_counts(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let columns = "flushes per insert | fences per insert | WPQ inserts per insert | \
                   media writes per insert | misses per insert | misses per search | depth | \
                   bytes per key";
    let table = of_operations(rows, columns, |row| {
        let ModelledOperations { insert, search, depth, bytes_per_key, .. } = row.modelled?;
        let PerOperation { flushes, fences, wpq_inserts, media_writes, .. } = *insert;
        let misses = [insert.llc_misses, search.llc_misses];
        let mut cells = two_decimals([flushes, fences, wpq_inserts, media_writes]);
        cells.extend(two_decimals([misses[0], misses[1], *depth]));
        cells.push(format!("{bytes_per_key:.1}"));
        Some(cells)
    })?;
    Some(table.after(format!(
        "Modelled for {}: the last {} inserts, and {} searches; {}. Misses are of the last-level cache, \
         media writes in units of 64 bytes, on media written 256 bytes at a time. Bytes per key include \
         the key.",
        results.profile,
        grouped(size.inserts),
        grouped(size.searches),
        modelled_string_sizes(results)
    )))
}

fn strings_by_latency(results: &StudyResults, rows: &[Operations<'_>]) -> Option<Table> {
    let size = size(rows)?;
    let columns = [inserts(size, "insert, "), searches(size, "search, ")].concat();
    let text = virtual_times(results, &modelled_string_sizes(results));
    Some(by_latency(rows, &columns)?.after(text))
}
