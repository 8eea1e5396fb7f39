//! A table of results: the same for a terminal and for a document.

use std::fmt::Write;

/// Columns of words, then columns of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What stands above it, if anything.
    pub title: Option<String>,
    /// What has to be said before it, if anything.
    pub text: Option<String>,
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
        Self { title: None, text: None, headings, words, rows: Vec::new() }
    }

    /// The same beneath a title.
    pub fn titled(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// The same with something to be said before it.
    pub fn after(self, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..self }
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
        if let Some(before) = &self.text {
            let _ = writeln!(text, "{before}\n");
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

/// A whole number with thousands separated.
pub fn grouped(number: impl std::fmt::Display) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// A number of bytes in the unit a person would choose.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// A figure with so many decimals, or a dash if there is none.
pub fn decimals(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let numbers = [0, 7, 999, 1000, 4_000_000];
        assert_eq!(numbers.map(grouped), ["0", "7", "999", "1,000", "4,000,000"]);
    }

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

    #[test]
    fn bytes_get_a_unit() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(1 << 50), "1024.0 TiB");
    }
}
