//! The logs by name.

use std::fmt;

use lapis_blocks::log::Placement;
use lapis_blocks::pop_log::PopLogOptions;
use lapis_blocks::ring_log::RingOptions;

/// A log to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogVariant {
    /// The classic log.
    Classic,
    /// The header log with one size field: naive if dense, aligned if padded.
    Header,
    /// The header log with dancing size fields.
    HeaderDancing,
    /// RAWL.
    Rawl,
    /// PopLog, in segments.
    PopLog,
    /// PopLog in a ring.
    PopRing,
}

impl LogVariant {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Classic, Self::Header, Self::HeaderDancing, Self::Rawl, Self::PopLog, Self::PopRing];

    /// The name on the command line, in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic-log",
            Self::Header => "header-log",
            Self::HeaderDancing => "header-log:dancing",
            Self::Rawl => "rawl",
            Self::PopLog => "pop-log",
            Self::PopRing => "pop-ring",
        }
    }

    /// Whether threads can fill it side by side.
    pub fn can_be_shared(self, placement: Placement) -> bool {
        self != Self::PopLog && placement == Placement::Padded
    }

    /// Whether an append takes one barrier, not two.
    pub fn has_one_barrier(self) -> bool {
        matches!(self, Self::Rawl | Self::PopLog | Self::PopRing)
    }

    pub(super) fn ring(self, placement: Placement, capacity_bytes: usize) -> RingOptions {
        let size_fields = if self == Self::HeaderDancing { 64 } else { 1 };
        let capacity_bytes = capacity_bytes.next_multiple_of(4096);
        RingOptions { capacity_bytes, placement, size_fields }
    }

    /// One segment, as large as a ring would be.
    pub(super) fn segments(placement: Placement, capacity_bytes: usize) -> PopLogOptions {
        let segment_bytes = capacity_bytes.next_multiple_of(4096);
        PopLogOptions { segment_bytes, spare_segments: 2, placement }
    }
}

impl fmt::Display for LogVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Calls `$run` with the type of the log of a job over the domain `$domain`, its options for so many
/// bytes, and what follows.
macro_rules! with_log {
    ($job:expr, $domain:ty, $bytes:expr, $run:ident ( $($argument:expr),* )) => {{
        use lapis_blocks::{classic_log, header_log, pop_log, pop_ring, rawl};
        let ring = $job.variant.ring($job.placement, $bytes);
        match $job.variant {
            LogVariant::Classic => $run::<classic_log::ClassicLog<$domain>>(ring, $($argument),*),
            LogVariant::Header | LogVariant::HeaderDancing => {
                $run::<header_log::HeaderLog<$domain>>(ring, $($argument),*)
            }
            LogVariant::Rawl => $run::<rawl::Rawl<$domain>>(ring, $($argument),*),
            LogVariant::PopRing => $run::<pop_ring::PopRing<$domain>>(ring, $($argument),*),
            LogVariant::PopLog => {
                let segments = LogVariant::segments($job.placement, $bytes);
                $run::<pop_log::PopLog<$domain>>(segments, $($argument),*)
            }
        }
    }};
}
pub(super) use with_log;

/// The same for the kinds of logs in rings. PopLog's segments are not one.
macro_rules! with_kind {
    ($job:expr, $bytes:expr, $run:ident ( $($argument:expr),* )) => {{
        use lapis_blocks::{classic_log, header_log, pop_ring, rawl};
        let ring = $job.variant.ring($job.placement, $bytes);
        match $job.variant {
            LogVariant::Classic => $run::<classic_log::Classic>(ring, $($argument),*),
            LogVariant::Header | LogVariant::HeaderDancing => {
                $run::<header_log::Header>(ring, $($argument),*)
            }
            LogVariant::Rawl => $run::<rawl::Raw>(ring, $($argument),*),
            LogVariant::PopRing | LogVariant::PopLog => {
                $run::<pop_ring::Pop>(ring, $($argument),*)
            }
        }
    }};
}
pub(super) use with_kind;
