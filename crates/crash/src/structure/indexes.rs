//! The subjects of the indexes, as their declarations say.

use lapis_device::Modelled;
use lapis_index::{Exploration, IndexFamily, IndexKind, IndexOf, Run, with_index};

use crate::erased::{AnySubject, Subjects};
use crate::subjects::{IndexSubject, KeySpace};

pub(super) fn subjects(kind: IndexKind) -> Subjects {
    with_index!(kind, |F| kind.declaration().exploration.runs.iter().map(subject::<F>).collect())
}

fn subject<F: IndexFamily>(run: &Run) -> Box<dyn AnySubject> {
    if run.byte_strings {
        Box::new(with_keys::<F, [u8]>(run))
    } else {
        Box::new(with_keys::<F, u64>(run))
    }
}

fn with_keys<F: IndexFamily, K: KeySpace + ?Sized>(run: &Run) -> IndexSubject<K> {
    let Exploration { sources, options, .. } = &F::KIND.declaration().exploration;
    type Of<F, K> = IndexOf<F, Modelled, K>;
    let subject = IndexSubject::new::<Of<F, K>>(run.name, sources, options.clone(), run.keys)
        .filled(run.filled);
    if run.drains { subject.draining() } else { subject }
}
