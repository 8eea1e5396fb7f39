//! The logs that are compared, as their declarations say.

use std::fmt;

use lapis_blocks::LogKind;
use lapis_blocks::log::{Layout, Placement};

/// A log to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogVariant {
    /// Which log it is.
    pub kind: LogKind,
    /// The name on the command line, in tables and in JSON.
    pub name: &'static str,
    /// Its fields for the size, if it has them.
    size_fields: usize,
}

impl LogVariant {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let of = |kind: LogKind| {
            let compared = kind.declaration().runs.iter().filter_map(|run| run.compared);
            compared.map(move |(name, size_fields)| Self { kind, name, size_fields })
        };
        LogKind::ALL.into_iter().flat_map(of).collect()
    }

    /// Whether threads can fill it side by side.
    pub fn can_be_shared(self, placement: Placement) -> bool {
        self.kind.is_ring() && placement == Placement::Padded
    }

    /// In a ring of so many bytes, or in one segment that is as large.
    pub(super) fn layout(self, placement: Placement, bytes: usize) -> Layout {
        let bytes = bytes.next_multiple_of(4096);
        Layout { bytes, placement, size_fields: self.size_fields }
    }
}

impl fmt::Display for LogVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
