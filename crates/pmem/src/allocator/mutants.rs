//! Errors that the allocator can be told to commit.

use crate::observed::Mutant;

/// A large block that was allocated before a crash and never linked is not found free again.
pub const LEAK_ON_CRASH: Mutant = Mutant("allocator/leak-on-crash");

/// The high-water mark is not persisted when it moves, so that a crash takes it back below chunks
/// that were handed out (A3).
pub const DOUBLE_ALLOCATION_AFTER_CRASH: Mutant = Mutant("allocator/double-allocation-after-crash");

/// The bitmaps of the last clean shutdown are believed after a crash that came later (A4).
pub const STALE_BITMAPS_BELIEVED: Mutant = Mutant("allocator/stale-bitmaps-believed");
