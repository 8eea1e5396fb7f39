//! Errors that the logs in a ring, and the leaves, commit on purpose when a machine asks them to (see
//! [`Observed::commits`](lapis_pmem::Observed::commits)): each is what an implementation that overlooks
//! one sentence of the thesis would do.

use lapis_pmem::Mutant;

/// The footer is stored and flushed together with header and payload, for one barrier instead of
/// two: it may persist before the payload does.
pub const CLASSIC_FOOTER_WITH_PAYLOAD: Mutant = Mutant("classic-log/footer-with-payload");
/// Truncated space is used again without having been zeroed, so that what an old entry left there
/// can be taken for a footer or a header.
pub const CLASSIC_REUSE_WITHOUT_ZEROING: Mutant = Mutant("classic-log/reuse-without-zeroing");

/// The size is stored and flushed together with the entry, for one barrier instead of two.
pub const HEADER_SIZE_WITH_PAYLOAD: Mutant = Mutant("header-log/size-with-payload");
/// Recovery believes the first of the dancing size fields instead of the greatest.
pub const HEADER_FIRST_SIZE_COUNTS: Mutant = Mutant("header-log/first-size-counts");

/// The polarity of validity bits stays the same when the ring is used again.
pub const RAWL_POLARITY_STAYS: Mutant = Mutant("rawl/polarity-stays");
/// Recovery leaves the blocks of a torn entry as they are, so that they pass for blocks of the next.
pub const RAWL_TORN_TAIL_STAYS: Mutant = Mutant("rawl/torn-tail-stays");

/// Recovery of a pop log in a ring leaves a torn entry behind the end, so that its bits make up for
/// missing bits of the next.
pub const POP_RING_TORN_TAIL_STAYS: Mutant = Mutant("pop-ring/torn-tail-stays");
/// Opening a streamed log leaves what stands before its end in the last line out of the copy of that
/// line in DRAM, so that the next append writes zeroes over it.
pub const POP_RING_LINE_FORGOTTEN: Mutant = Mutant("pop-ring/line-forgotten-at-open");
/// Truncated space of a pop log in a ring is used again without having been zeroed.
pub const POP_RING_REUSE_WITHOUT_ZEROING: Mutant = Mutant("pop-ring/reuse-without-zeroing");

/// The bit of a slot is stored and flushed together with its pair, for one fence instead of two.
pub const LEAVES_BIT_WITH_PAIR: Mutant = Mutant("fp-leaves/bit-with-pair");
/// The bit of a slot is stored before its fingerprint, in the same line.
pub const LEAVES_BIT_BEFORE_FINGERPRINT: Mutant = Mutant("fp-leaves/bit-before-fingerprint");
