//! Tables of the byte-string keys.

use super::tables::{
    MEASURED_COLUMNS, grouped, head, latencies_of_searches, line, measured_cells, names,
};
use super::{Latency, ModelledOperations, ModelledTime, StringRow, StudyResults};
use crate::experiment::in_order as distinct;

/// A table with a row for each structure and kind of strings for which there are `cells`; none if there
/// are none at all.
fn table(
    results: &StudyResults,
    columns: &[String],
    cells: impl Fn(&StringRow) -> Option<Vec<String>>,
) -> Option<String> {
    let rows = results.strings.iter();
    let lines: String =
        rows.filter_map(|row| Some(line(row.strings, row.structure, &cells(row)?))).collect();
    (!lines.is_empty()).then(|| head(columns) + &lines)
}

/// How many keys there are, and how long they are.
fn sizes(results: &StudyResults, keys: impl Fn(&StringRow) -> Option<usize>) -> String {
    let rows = results.strings.iter();
    let sizes = rows.filter_map(|row| {
        let keys = grouped(keys(row)?);
        Some(format!("{keys} `{}` keys of {:.1} bytes on average", row.strings, row.key_bytes))
    });
    distinct(sizes).join(", ")
}

/// What was measured.
pub(super) fn measured(results: &StudyResults) -> Option<String> {
    let columns = names(MEASURED_COLUMNS);
    let table = table(results, &columns, |row| Some(measured_cells(&row.measured?)))?;
    Some(format!(
        "Measured here (anonymous memory, {}), one thread: {}.\n\n{table}",
        results.flush_method,
        sizes(results, |row| Some(row.measured?.keys))
    ))
}

/// What was counted.
pub(super) fn counts(results: &StudyResults) -> Option<String> {
    let columns = names([
        "flushes per insert",
        "fences per insert",
        "WPQ inserts per insert",
        "media writes per insert",
        "misses per insert",
        "misses per search",
        "depth",
        "bytes per key",
    ]);
    let table = table(results, &columns, |row| {
        let ModelledOperations { insert, search, depth, bytes_per_key, .. } =
            row.modelled.as_ref()?;
        let mut cells = [
            insert.flushes,
            insert.fences,
            insert.wpq_inserts,
            insert.media_writes,
            insert.llc_misses,
            search.llc_misses,
            *depth,
        ]
        .map(|count| format!("{count:.2}"))
        .to_vec();
        cells.push(format!("{bytes_per_key:.1}"));
        Some(cells)
    })?;
    let size = results.strings.iter().find_map(|row| row.modelled.as_ref())?;
    Some(format!(
        "Modelled for {}: the last {} inserts, and {} searches; {}. Misses are of the last-level cache, \
         media writes in units of 64 bytes, on media written 256 bytes at a time. Bytes per key include \
         the key.\n\n{table}",
        results.profile,
        grouped(size.inserts),
        grouped(size.searches),
        modelled_sizes(results)
    ))
}

fn modelled_sizes(results: &StudyResults) -> String {
    sizes(results, |row| Some(row.modelled.as_ref()?.keys))
}

/// Virtual time.
pub(super) fn by_latency(results: &StudyResults) -> Option<String> {
    let first = results.strings.iter().find_map(|row| row.modelled.as_ref())?;
    let inserts: Vec<Latency> = first.times.iter().map(|time| time.latency).collect();
    let searches = latencies_of_searches(&first.times);
    let columns: Vec<String> = inserts
        .iter()
        .map(|latency| format!("insert, {latency}"))
        .chain(searches.iter().map(|latency| format!("search, {latency}")))
        .collect();
    let table = table(results, &columns, |row| {
        let times = &row.modelled.as_ref()?.times;
        let of = |latency: &Latency, ns: fn(&ModelledTime) -> f64| {
            let time = times.iter().find(|time| time.latency == *latency)?;
            Some(format!("{:.0}", ns(time)))
        };
        let inserts = inserts.iter().map(|latency| of(latency, |time| time.insert_ns));
        let searches = searches.iter().map(|latency| of(latency, |time| time.search_ns));
        inserts.chain(searches).collect()
    })?;
    Some(format!(
        "Modelled for {}, {}: nanoseconds of virtual time, by read/write latency of persistent memory in \
         nanoseconds.\n\n{table}",
        results.profile,
        modelled_sizes(results)
    ))
}
