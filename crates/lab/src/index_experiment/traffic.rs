//! What operations cost on the modelled machine, as a table for a document.

use std::fmt::Write;

use super::IndexResults;

/// The section of a document that [`traffic_table`] belongs in (module [`crate::document`]).
pub const TRAFFIC_SECTION: &str = "lapis lab index: traffic";

/// The modelled counts of `results` as a table in Markdown. Of measured times it says nothing, so it is
/// the same on every run and every machine.
pub fn traffic_table(results: &IndexResults) -> String {
    let mut text = String::from(
        "| index | operation | keys | flushes | fences | WPQ inserts | media writes | misses |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.rows {
        let Some(found) = &row.modelled else { continue };
        let counts =
            [found.flushes, found.fences, found.wpq_inserts, found.media_writes, found.llc_misses];
        let counts = counts.map(|count| format!("{count:.2}")).join(" | ");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} {} | {counts} |",
            row.index, row.operation, found.keys, row.distribution
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use super::super::{Operation, Options, run};
    use super::*;

    #[test]
    fn each_index_has_a_row_of_its_modelled_counts() {
        let options = Options {
            indexes: vec![IndexKind::Wort, IndexKind::PClht],
            operations: vec![Operation::Insert],
            measure: false,
            modelled_keys: 500,
            modelled_repetitions: 100,
            ..Options::default()
        };
        let table = traffic_table(&run(&options, &|_| ()).unwrap());
        assert_eq!(table.lines().count(), 2 + 2);
        assert!(table.contains("| `p-clht` | insert | 500 uniform | "), "{table}");
    }
}
