//! The capability table of the README: what each structure can do, generated from the index crate,
//! whose conformance suite verifies it.

use std::fmt::Write;

use lapis_index::{CapabilityRow, InsertCost};

/// The command whose section of the README the table is (module [`crate::document`]).
pub const COMMAND: &str = "lapis lab capabilities";

/// The table in Markdown, without the markers, ending in a newline.
pub fn capability_table() -> String {
    let mut text = String::from(
        "| index | structure | published | ordered | concurrent writers | lock-free reads | keys \
         | insert, u64 key | insert, byte-string key |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in lapis_index::capability_table() {
        write_row(&mut text, &row);
    }
    text
}

fn write_row(text: &mut String, row: &CapabilityRow) {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let cost = |cost: Option<InsertCost>| match cost {
        Some(cost) => format!(
            "{} {}, {} {}",
            cost.flushed_lines,
            if cost.flushed_lines == 1 { "flush" } else { "flushes" },
            cost.fences,
            if cost.fences == 1 { "fence" } else { "fences" },
        ),
        None => "depends on where the key falls".into(),
    };
    let capabilities = row.capabilities;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
        row.kind,
        row.title,
        row.paper,
        yes(capabilities.ordered),
        yes(capabilities.concurrent_writers),
        yes(capabilities.lock_free_reads),
        row.keys.join(", "),
        cost(row.insert_u64),
        cost(row.insert_bytes),
    );
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use super::*;

    #[test]
    fn every_structure_has_a_row_of_nine_cells() {
        let table = capability_table();
        for kind in IndexKind::ALL {
            assert_eq!(table.matches(&format!("| `{kind}` |")).count(), 1, "{kind}");
        }
        assert!(table.lines().all(|line| line.matches('|').count() == 10), "{table}");
    }

    #[test]
    fn the_readme_has_the_generated_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let Ok(readme) = std::fs::read_to_string(path) else {
            eprintln!("skipped: {path} is not there");
            return;
        };
        assert_eq!(
            crate::document::section(&readme, COMMAND),
            Some(capability_table().as_str()),
            "README.md is out of date: `lapis lab capabilities --write README.md` renews it"
        );
    }
}
