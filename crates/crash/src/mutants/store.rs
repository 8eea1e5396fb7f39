//! The mutants of the store.

use lapis::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 40,
    entries: &[
        MutantEntry {
            mutant: mutants::ACKNOWLEDGED_BEFORE_BARRIER,
            what: "A commit is acknowledged without a barrier: neither its record nor what it \
                   changed is durable.",
            published: BUG_CLASS,
            place: "lapis/src/engine.rs, commit",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::APPLY_BEFORE_LOG,
            what: "The writes of a transaction are applied before its record is in the log.",
            published: BUG_CLASS,
            place: "lapis/src/engine.rs, commit",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::RECYCLE_BEFORE_APPLY,
            what: "The log is truncated before the last record has been applied durably.",
            published: BUG_CLASS,
            place: "lapis/src/engine.rs, commit",
            subjects: &[],
        },
    ],
};
