//! Errors that the toy can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the toy, and operations in which all show.
    CATALOGUE: 40 operations;

    /// A new node is not flushed before the link to it is stored.
    // I1.
    UNFLUSHED_NODE = "toy/unflushed-node" => at("index/src/toy/mod.rs, add");
}
