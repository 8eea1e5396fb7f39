//! Errors that the epochs can be told to commit.

use crate::mutants;

mutants! {
    /// The mutants of the epochs, and operations in which all show.
    CATALOGUE: 1 operations;

    /// The reclaimer looks at the readers' words without having ordered their stores.
    // E2.
    NO_BARRIER = "epoch/no-barrier" =>
        at("pmem/src/epoch/mod.rs, oldest")
        .among_workers();
}
