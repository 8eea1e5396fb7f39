//! The subjects of the indexes, as their declarations say.

use lapis_index::{Exploration, IndexKind, IndexOptions, Run};

use crate::erased::{AnySubject, Subjects};
use crate::subjects::{IndexSubject, KeySpace};

/// With so many keys beforehand, if it is not 0.
pub(super) fn subjects(kind: IndexKind, filled: u64) -> Subjects {
    let runs = kind.declaration().exploration.runs.iter();
    runs.map(|run| -> Box<dyn AnySubject> {
        if run.byte_strings {
            Box::new(with_keys::<[u8]>(kind, run, filled))
        } else {
            Box::new(with_keys::<u64>(kind, run, filled))
        }
    })
    .collect()
}

fn with_keys<K: KeySpace + ?Sized>(kind: IndexKind, run: &Run, filled: u64) -> IndexSubject<K> {
    let Exploration { sources, options, .. } = &kind.declaration().exploration;
    let options = if run.as_in_use { &IndexOptions::DEFAULT } else { options };
    let subject = IndexSubject::new(kind, run.name, sources, options.clone(), run.keys);
    let subject = match (filled, run.is_large) {
        (0, false) => subject.filled(run.filled),
        _ => subject.filled_beforehand(filled.max(run.filled)),
    };
    if run.drains { subject.draining() } else { subject }
}
