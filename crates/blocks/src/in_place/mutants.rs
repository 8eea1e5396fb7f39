//! Errors that the checker must find.

use lapis_pmem::Mutant;

/// The selector is switched in the same barrier as the copy is written.
pub const SELECT_BEFORE_COPY: Mutant = Mutant("cow-cell/select-before-copy");
/// The copy that counts is overwritten.
pub const OVERWRITE_ACTIVE: Mutant = Mutant("cow-cell/overwrite-active-copy");
/// The value changes before its log entry is durable.
pub const UPDATE_BEFORE_LOG: Mutant = Mutant("log-cell/update-before-log");
/// Recovery leaves the logged value where it is.
pub const NO_REDO: Mutant = Mutant("log-cell/no-redo");
/// An update does not keep the previous state beside the new one.
pub const NO_OLD_STATE: Mutant = Mutant("fam-cell/no-old-state");
/// A rollback restores the state and not the version.
pub const ROLLBACK_KEEPS_VERSION: Mutant = Mutant("fam-cell/rollback-keeps-version");
