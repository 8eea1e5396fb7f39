//! A table of results: the same for a terminal and for a document.

use std::fmt::Write;

/// Columns of words, then columns of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What stands above it, if anything.
    pub title: Option<String>,
    /// The names of its columns.
    pub headings: Vec<String>,
    /// How many of them, from the left, are words. The others are numbers, aligned to the right.
    pub words: usize,
    /// Its cells. What stands between backticks is a name.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table, with a bar between the names of its columns.
    pub fn new(words: usize, headings: &str) -> Self {
        let headings = headings.split(" | ").map(str::to_owned).collect();
        Self { title: None, headings, words, rows: Vec::new() }
    }

    /// The same beneath a title.
    pub fn titled(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Adds a row.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table in Markdown, ending in a newline.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let rule = (0..self.headings.len()).map(|at| if at < self.words { "---" } else { "--:" });
        // Writing to a string cannot fail.
        if let Some(title) = &self.title {
            let _ = writeln!(text, "**{title}**\n");
        }
        let _ = writeln!(text, "| {} |", self.headings.join(" | "));
        let _ = writeln!(text, "|{}|", rule.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }
}

/// Several tables in Markdown, one beneath the other.
pub fn markdown(tables: &[Table]) -> String {
    tables.iter().map(Table::markdown).collect::<Vec<_>>().join("\n")
}

/// A figure with so many decimals, or a dash if there is none.
pub fn decimals(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_to_the_left_and_numbers_to_the_right() {
        let mut table = Table::new(1, "log | barriers").titled("Appends");
        table.push(["`rawl`".to_owned(), decimals(Some(1.0), 2)]);
        table.push(["none".to_owned(), decimals(None, 2)]);
        let text =
            "**Appends**\n\n| log | barriers |\n|---|--:|\n| `rawl` | 1.00 |\n| none | – |\n";
        assert_eq!(table.markdown(), text);
        assert_eq!(markdown(&[table.clone(), table]), format!("{text}\n{text}"));
    }
}
