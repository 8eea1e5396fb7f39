//! Copy-on-write or µlog, whichever the cost model says is cheaper.

use super::{PageKind, PageRun};
use super::{PageScheme, mutants};
use crate::declaration::Declaration;

impl PageScheme {
    /// Copy-on-write or µlog, whichever the cost model says is cheaper.
    pub const HYBRID: Self = Self {
        kind: PageKind::Hybrid,
        name: "page-hybrid",
        number: 5,
        copies: true,
        ..Self::MICRO_LOG
    };
}

/// See [`PageScheme::logs`].
pub(crate) fn logs(dirty_lines: usize, copy_from_lines: usize) -> bool {
    dirty_lines < copy_from_lines
}

pub(crate) const DECLARATION: Declaration<PageRun> = Declaration {
    name: "page-hybrid",
    sources: &["blocks/src/page"],
    mutants: mutants::PAGE_HYBRID,
    runs: &[PageRun { name: "page-hybrid:4k", scheme: PageScheme::HYBRID, page_bytes: 4096 }],
    operations: 100,
    persist_points: (120, 2),
};
