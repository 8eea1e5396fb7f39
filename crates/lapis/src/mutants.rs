//! Errors that the store can be told to commit ([`lapis_pmem::Observed::commits`]), for showing that
//! the crash checker finds them.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the store, and operations in which all show.
    CATALOGUE: 40 operations;

    /// A commit is acknowledged without a barrier: neither its record nor what it changed is
    /// durable.
    // S1.
    ACKNOWLEDGED_BEFORE_BARRIER = "store/acknowledged-before-barrier" =>
        at("lapis/src/engine.rs, commit");

    /// The writes of a transaction are applied before its record is in the log.
    APPLY_BEFORE_LOG = "store/apply-before-log" => at("lapis/src/engine.rs, commit");

    /// The log is truncated before the last record has been applied durably.
    // S2.
    RECYCLE_BEFORE_APPLY = "store/recycle-before-apply" => at("lapis/src/engine.rs, commit");
}
