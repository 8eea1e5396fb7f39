//! A shrunk violation as text.

use std::fmt;

use crate::report::Shrunk;
use crate::timeline::entry::EntryKind;

/// Column from which the source lines stand.
const SOURCE_COLUMN: usize = 92;

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.operations.len();
        let plural = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        match &self.history {
            None if self.recorded => {
                writeln!(f, "{}, told from what is in flight on:", self.subject)?
            }
            None => writeln!(f, "{}, shrunk to {}:", self.subject, plural(count, "operation"))?,
            Some(history) => {
                write!(
                    f,
                    "{}, shrunk to {} of {}, {}",
                    self.subject,
                    plural(count, "call"),
                    plural(history.workers, "worker"),
                    plural(history.switches, "change") + " of worker",
                )?;
                match history.deviations {
                    Some(count) => {
                        writeln!(f, " (a schedule with {}):", plural(count, "deviation"))?
                    }
                    None => writeln!(f, ":")?,
                }
                for operation in &history.before {
                    writeln!(f, "  beforehand {}: {}", operation.number, operation.what)?;
                }
            }
        }
        let by_worker = self.names_workers();
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
            write!(f, "{:>8}  ", entry.event)?;
            let by = match (by_worker, entry.worker) {
                (false, _) => String::new(),
                (true, Some(worker)) => format!("w{worker:<3}"),
                (true, None) => " ".repeat(4),
            };
            write!(f, "{by}{indent}{mark}{}", entry.text)?;
            if let Some(source) = &entry.source {
                let used = 10
                    + by.len()
                    + indent.len()
                    + mark.chars().count()
                    + entry.text.chars().count();
                write!(f, "{:gap$}  {source}", "", gap = SOURCE_COLUMN.saturating_sub(used))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  broken: {}", self.clause)?;
        write!(f, "  again: {}", self.replay)
    }
}
