//! The capability table of the README: what each structure can do, generated from the index crate,
//! whose conformance suite verifies it.

use lapis_index::InsertCost;

use crate::experiment::table::Table;

/// The command whose section of the README the table is (module [`crate::document`]).
pub const COMMAND: &str = "lapis lab capabilities";

/// The table in Markdown, without the markers, ending in a newline.
pub fn capability_table() -> String {
    let headings = "index | structure | published | ordered | concurrent writers | lock-free reads | \
                    keys | insert, u64 key | insert, byte-string key";
    let mut table = Table::new(9, headings);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let plural = |count: u64, of: &str| match count {
        1 => format!("1 {of}"),
        _ => format!("{count} {of}{}", if of == "flush" { "es" } else { "s" }),
    };
    let cost = |cost: Option<InsertCost>| match cost {
        Some(InsertCost { flushed_lines, fences }) => {
            format!("{}, {}", plural(flushed_lines, "flush"), plural(fences, "fence"))
        }
        None => "depends on where the key falls".to_owned(),
    };
    for row in lapis_index::capability_table() {
        table.push([
            format!("`{}`", row.kind),
            row.title.to_owned(),
            row.paper.to_owned(),
            yes(row.capabilities.ordered),
            yes(row.capabilities.concurrent_writers),
            yes(row.capabilities.lock_free_reads),
            row.keys.join(", "),
            cost(row.insert_u64),
            cost(row.insert_bytes),
        ]);
    }
    table.markdown()
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
