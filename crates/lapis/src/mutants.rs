//! Errors that the store can be told to commit ([`lapis_pmem::Observed::commits`]), for showing that
//! the crash checker finds them.

use lapis_pmem::Mutant;

/// A commit is acknowledged without any barrier: neither its record nor what it changed is durable
/// (S1).
pub const ACKNOWLEDGED_BEFORE_BARRIER: Mutant = Mutant("store/acknowledged-before-barrier");

/// The writes of a transaction are applied to the tables before its record is in the log.
pub const APPLY_BEFORE_LOG: Mutant = Mutant("store/apply-before-log");

/// The log is truncated before the last record has been applied durably (S2).
pub const RECYCLE_BEFORE_APPLY: Mutant = Mutant("store/recycle-before-apply");
