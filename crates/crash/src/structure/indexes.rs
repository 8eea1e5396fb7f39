//! The subjects of the indexes, as their declarations say.

use lapis_index::{Exploration, IndexKind, IndexOptions, Run};

use crate::erased::{AnySubject, Subjects};
use crate::options::ExploreOptions;
use crate::subjects::{IndexSubject, KeySpace};

pub(super) fn subjects(kind: IndexKind, options: &ExploreOptions) -> Subjects {
    let runs = kind.declaration().exploration.runs.iter();
    runs.map(|run| -> Box<dyn AnySubject> {
        if run.byte_strings {
            Box::new(with_keys::<[u8]>(kind, run, options))
        } else {
            Box::new(with_keys::<u64>(kind, run, options))
        }
    })
    .collect()
}

fn with_keys<K: KeySpace + ?Sized>(
    kind: IndexKind,
    run: &Run,
    explore: &ExploreOptions,
) -> IndexSubject<K> {
    let declaration = kind.declaration();
    let Exploration { sources, options, .. } = &declaration.exploration;
    let mut options = if run.as_in_use { &IndexOptions::DEFAULT } else { options }.clone();
    if run.node_bytes > 0 {
        options.node_bytes = run.node_bytes;
    }
    let options = options.with(explore.optimisations.among(declaration.optimisations));
    let subject =
        IndexSubject::new(kind, run.name, sources, options, run.keys).rare_after(run.rare);
    let subject = match (explore.filled, run.is_large) {
        (0, false) => subject.filled(run.filled),
        (filled, _) => subject.filled_beforehand(filled.max(run.filled)),
    };
    let subject = if run.is_crowded { subject.crowded() } else { subject };
    let subject = if run.descends { subject.descending() } else { subject };
    let subject = if run.drains { subject.draining() } else { subject };
    match run.cramped_bytes {
        0 => subject,
        bytes => subject.cramped(bytes, run.refuses_removals),
    }
}
