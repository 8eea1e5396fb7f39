//! Known errors of page propagation, which the stores commit when the domain says so.

use lapis_pmem::Mutant;

/// The version is stored before the id: for a moment the slot passes for the latest version of the
/// page that it held before, with the contents of another.
pub const VERSION_BEFORE_ID: Mutant = Mutant("page-cow/pvn-before-pid");

/// The header is made valid together with the contents, by one barrier.
pub const VALID_WITH_CONTENTS: Mutant = Mutant("page-cow/valid-with-contents");

/// A deletion clears the current slot and leaves the older version in the spare slot: the page comes
/// back as it once was.
pub const SPARE_SURVIVES_DELETION: Mutant = Mutant("page-cow/spare-survives-deletion");

/// With the checksum scheme, recovery leaves torn slots as they are: the next page that is written to
/// one may bring, half done, what the torn one lacks.
pub const TORN_SLOT_KEPT: Mutant = Mutant("page-cow/torn-slot-kept");

/// The µlog is not invalidated before it is written anew.
pub const NO_INVALIDATION: Mutant = Mutant("page-mulog/no-invalidation");

/// The µlog is valid before its lines are durable.
pub const VALID_BEFORE_LINES: Mutant = Mutant("page-mulog/valid-before-lines");

/// Lines are applied to the page before the µlog is durably valid.
pub const APPLIED_BEFORE_VALID: Mutant = Mutant("page-mulog/applied-before-valid");

/// Recovery applies every valid µlog, whatever the page has become since: published so, and right as
/// long as nothing but µlogs writes pages.
pub const REDO_WHATEVER_THE_VERSION: Mutant = Mutant("page-hybrid/redo-whatever-the-version");

/// A deletion leaves the µlog valid, which then is applied to the next page of that id.
pub const LOG_SURVIVES_DELETION: Mutant = Mutant("page-hybrid/log-survives-deletion");
