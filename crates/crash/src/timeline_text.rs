//! A shrunk violation as text.

use std::fmt;

use crate::report::Shrunk;
use crate::timeline::EntryKind;

/// Column from which the source lines stand.
const SOURCE_COLUMN: usize = 92;

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.operations.len();
        let operations = if count == 1 { "operation" } else { "operations" };
        writeln!(f, "{}, shrunk to {count} {operations}:", self.subject)?;
        for entry in &self.timeline {
            let indent = match entry.kind {
                EntryKind::Operation | EntryKind::Crash | EntryKind::Verdict => "",
                _ => "  ",
            };
            let mark = match entry.kind {
                EntryKind::Crash => "✗ ",
                EntryKind::Verdict => "! ",
                _ => "",
            };
            write!(f, "{:>8}  {}", entry.event, format_args!("{indent}{mark}{}", entry.text))?;
            if let Some(source) = &entry.source {
                let used = 10 + indent.len() + mark.chars().count() + entry.text.chars().count();
                write!(f, "{:gap$}  {source}", "", gap = SOURCE_COLUMN.saturating_sub(used))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  broken: {}", self.clause)?;
        write!(f, "  again: {}", self.replay)
    }
}
