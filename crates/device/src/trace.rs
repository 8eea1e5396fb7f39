//! Traces: what a program did to persistent memory, in the order in which it became visible.
//!
//! An event takes 16 bytes. A store of an event lies within one aligned 8-byte unit, the unit of
//! persistence (rule R2 of [`lapis_pmem::domain`]); copies are split into such units.
//!
//! ```text
//!  byte   0     1        2       3      4      8              16
//!        +-----+--------+-------+------+------+---------------+
//!        | tag | worker | start | bytes| line | value         |   stores; value little-endian,
//!        +-----+--------+-------+------+------+---------------+   its low `bytes` bytes
//! ```

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use crate::persist_points::PersistPoint;

/// A note of the program under observation to whoever reads its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Marker {
    /// The operation of this number begins.
    Begin(u32),
    /// The operation of this number has been acknowledged: from here on it must survive.
    End(u32),
    /// Anything else.
    Note(u32),
}

/// One event. `line` is the number of the 64-byte line in the region, `start` the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A store that the compiler may reorder with its neighbours: relaxed, or part of a copy.
    Store {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1 to 8, within one aligned unit.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A store with release ordering: later than all earlier stores to its line.
    OrderedStore {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// The store of a successful swap or compare-exchange (rule R5).
    Locked {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A store past the caches (rule R6).
    NonTemporal {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1 to 8, within one aligned unit.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A line is written back (rule R4).
    Flush {
        /// Who flushes.
        worker: u8,
        /// Index into [`Trace::points`].
        point: u16,
        /// The line.
        line: u32,
    },
    /// A line is written back by `clflush`, which waits: what the line held then is durable. The
    /// domain's flushes are never this, for not every machine has it; litmus tests and recorded
    /// traces may be.
    StrongFlush {
        /// Who flushes.
        worker: u8,
        /// The line.
        line: u32,
    },
    /// A fence (rules R4, R6).
    Fence {
        /// Who fences.
        worker: u8,
        /// Index into [`Trace::points`].
        point: u16,
    },
    /// A note of the program.
    Marker {
        /// Who notes it.
        worker: u8,
        /// The note.
        marker: Marker,
    },
}

const _: () = assert!(size_of::<Event>() == 16);

impl Event {
    /// Who did it.
    pub fn worker(&self) -> u8 {
        match *self {
            Self::Store { worker, .. }
            | Self::OrderedStore { worker, .. }
            | Self::Locked { worker, .. }
            | Self::NonTemporal { worker, .. }
            | Self::Flush { worker, .. }
            | Self::StrongFlush { worker, .. }
            | Self::Fence { worker, .. }
            | Self::Marker { worker, .. } => worker,
        }
    }
}

/// A sequence of events in the order of their visibility.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened.
    pub events: Vec<Event>,
    /// The persist points that flushes and fences refer to.
    pub points: Vec<PersistPoint>,
}

/// The aligned units that `bytes` bytes at `offset` fall into: (line, start in it, bytes,
/// position in the range).
pub(crate) fn units(
    offset: usize,
    bytes: usize,
) -> impl Iterator<Item = (u32, u8, u8, usize)> + Clone {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done;
        let step = (8 - at % 8).min(bytes - done);
        let unit = ((at / LINE_BYTES) as u32, (at % LINE_BYTES) as u8, step as u8, done);
        done += step;
        Some(unit)
    })
}

/// The value of up to eight bytes, little-endian.
pub(crate) fn unit_value(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_aligned_units_and_lines() {
        let found: Vec<_> = units(61, 14).collect();
        assert_eq!(found, [(0, 61, 3, 0), (1, 0, 8, 3), (1, 8, 3, 11)]);
    }

    #[test]
    fn an_empty_range_has_no_units() {
        assert_eq!(units(5, 0).count(), 0);
    }
}
