//! Logs pages with one dirty line and copies the others: the toy by which a test shows what it takes to
//! add a page scheme.

use lapis_pmem::mutants;

use super::{PageKind, PageRun, PageScheme};
use crate::declaration::Declaration;

mutants! {
    /// The toy has no mutants of its own.
    CATALOGUE: 24 operations;
}

const TOY: PageScheme =
    PageScheme { kind: PageKind::Toy, name: "page-toy", number: 1000, ..PageScheme::HYBRID };

/// See [`PageScheme::logs`].
pub(crate) fn logs(dirty_lines: usize, _: usize) -> bool {
    dirty_lines == 1
}

pub(crate) const DECLARATION: Declaration<PageRun> = Declaration {
    name: "page-toy",
    sources: &["blocks/src/page"],
    mutants: CATALOGUE,
    runs: &[PageRun { name: "page-toy:4k", scheme: TOY, page_bytes: 4096 }],
    operations: 24,
    persist_points: (24, 1),
};
