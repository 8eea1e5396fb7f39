//! The subjects of the indexes, as their declarations say.

use lapis_index::{Exploration, IndexKind, Run};

use crate::erased::{AnySubject, Subjects};
use crate::subjects::{IndexSubject, KeySpace};

pub(super) fn subjects(kind: IndexKind) -> Subjects {
    let runs = kind.declaration().exploration.runs.iter();
    runs.map(|run| -> Box<dyn AnySubject> {
        if run.byte_strings {
            Box::new(with_keys::<[u8]>(kind, run))
        } else {
            Box::new(with_keys::<u64>(kind, run))
        }
    })
    .collect()
}

fn with_keys<K: KeySpace + ?Sized>(kind: IndexKind, run: &Run) -> IndexSubject<K> {
    let Exploration { sources, options, .. } = &kind.declaration().exploration;
    let subject =
        IndexSubject::new(kind, run.name, sources, options.clone(), run.keys).filled(run.filled);
    if run.drains { subject.draining() } else { subject }
}
