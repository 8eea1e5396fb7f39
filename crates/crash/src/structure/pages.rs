//! The subjects of the page schemes, as their declarations say.

use lapis_blocks::{PageKind, PageRun};

use crate::erased::{AnySubject, Subjects};
use crate::subjects::PageSubject;

pub(super) fn subjects(kind: PageKind) -> Subjects {
    let subject = |&PageRun { name, scheme, page_bytes }: &PageRun| -> Box<dyn AnySubject> {
        Box::new(PageSubject::new(name, scheme, page_bytes))
    };
    kind.declaration().runs.iter().map(subject).collect()
}
