//! Errors that the PopLog can be told to commit.

use lapis_pmem::Mutant;

/// New segments are zeroed in the caches only, so that what they held before shows after a crash
/// (I3).
pub const NO_ZEROING: Mutant = Mutant("pop-log/no-zeroing");

/// The count covers the bits of the entry's first line only, and so may persist before the payload
/// of another line.
pub const COUNT_BEFORE_PAYLOAD: Mutant = Mutant("pop-log/count-before-payload");

/// Opening a streamed log leaves what stands before its end in the last line out of the copy of that
/// line in DRAM, so that the next append writes zeroes over it.
pub const LINE_FORGOTTEN: Mutant = Mutant("pop-log/line-forgotten-at-open");

/// A recycled segment is taken into use without a barrier after its zeroing (I3).
pub const RECYCLE_WITHOUT_BARRIER: Mutant = Mutant("pop-log/recycle-without-barrier");
