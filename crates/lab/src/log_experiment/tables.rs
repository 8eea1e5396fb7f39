//! The results as tables in Markdown: a row per log, a column per size.

use std::fmt::Write;

use super::{LogResults, Row};

/// The command whose section of a document the tables are (module [`crate::document`]).
pub const COMMAND: &str = "lapis lab log";

/// The tables, without the markers, ending in a newline.
pub fn markdown(results: &LogResults) -> String {
    let mut text = String::new();
    let profile = &results.profile;
    let mut threads: Vec<usize> = results.rows.iter().map(|row| row.threads).collect();
    threads.dedup();
    for threads in threads {
        let of: Vec<&Row> = results.rows.iter().filter(|row| row.threads == threads).collect();
        let plural = if threads == 1 { "thread" } else { "threads" };
        if of.iter().any(|row| row.modelled.is_some()) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "**Modelled for {profile}, {threads} {plural}: million appends per second, by bytes \
                 of the entry**\n"
            );
            write_table(&mut text, &of, |row| row.modelled.as_ref().map(|m| m.appends_per_s));
        }
        if of.iter().any(|row| row.measured.is_some()) {
            let _ = writeln!(
                text,
                "**Measured here (anonymous memory, {}), {threads} {plural}: million appends per \
                 second, by bytes of the entry**\n",
                results.flush_method
            );
            write_table(&mut text, &of, |row| row.measured.map(|m| m.appends_per_s));
        }
    }
    text
}

fn write_table(text: &mut String, rows: &[&Row], value: impl Fn(&Row) -> Option<f64>) {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    text.push_str("| log | entries | log is | barriers |");
    for size in &sizes {
        let _ = write!(text, " {size} |");
    }
    text.push_str("\n|---|---|---|---:|");
    text.push_str(&"---:|".repeat(sizes.len()));
    text.push('\n');
    let key = |row: &Row| (row.placement, row.variant, row.sharing);
    let mut seen = Vec::new();
    for row in rows {
        if seen.contains(&key(row)) {
            continue;
        }
        seen.push(key(row));
        let _ = write!(
            text,
            "| `{}` | {} | {} | {:.0} |",
            row.variant,
            row.placement,
            row.sharing.name(),
            row.barriers
        );
        for &size in &sizes {
            let of = rows.iter().find(|other| key(other) == key(row) && other.size_bytes == size);
            match of.and_then(|row| value(row)) {
                Some(appends_per_s) => {
                    let _ = write!(text, " {:.2} |", appends_per_s / 1e6);
                }
                None => text.push_str(" - |"),
            }
        }
        text.push('\n');
    }
    text.push('\n');
}
