//! What lies where in a ring log: the root, the size fields, the ring. The diagrams are in the
//! [header of the module](super).

use lapis_pmem::{Domain, LINE_BYTES, PCell, persistent};

use crate::log::Position;
use crate::root_checksum::root_checksum;

/// The smallest ring.
pub const SMALLEST_CAPACITY_BYTES: usize = 4096;
/// The largest ring.
pub const LARGEST_CAPACITY_BYTES: usize = 1 << 40;
/// The most size fields a header log has.
pub const MOST_SIZE_FIELDS: usize = 1024;

persistent! {
    /// The header of a ring log: what the caller publishes. Size fields and ring follow.
    pub struct RingRoot: 128 {
        pub(crate) magic: PCell<u64>,
        pub(crate) format_version: PCell<u64>,
        pub(crate) capacity_bytes: PCell<u64>,
        pub(crate) placement: PCell<u64>,
        pub(crate) size_fields: PCell<u64>,
        /// CRC-32C of the five words above.
        pub(crate) checksum: PCell<u64>,
        pub(crate) reserved: [PCell<u64>; 2],
        pub(crate) starts: [StartRecord; 2],
        /// Bit 0 says which of `starts` counts; the upper half is its CRC-32C.
        pub(crate) start_selector: PCell<u64>,
        pub(crate) reserved_start: PCell<u64>,
    }
}

persistent! {
    /// Where the oldest retained entry stands, and how far the ring may be written.
    pub(crate) struct StartRecord: 24 {
        pub(crate) position: PCell<u64>,
        pub(crate) offset: PCell<u64>,
        pub(crate) limit: PCell<u64>,
    }
}

persistent! {
    /// One size field on a line of its own.
    pub(crate) struct SizeField: 64 {
        pub(crate) size: PCell<u64>,
        pub(crate) reserved: [PCell<u64>; 7],
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(RingRoot, checksum) == 40);
    // G4 rests on the whole start sharing one line.
    assert!(offset_of!(RingRoot, starts) == LINE_BYTES);
    assert!(offset_of!(RingRoot, start_selector) == 112);
    assert!(size_of::<RingRoot>() == 2 * LINE_BYTES);
    assert!(size_of::<SizeField>() == LINE_BYTES);
    // A size says which of several rings' lengths away from the start it is.
    assert!((LARGEST_CAPACITY_BYTES as u64) < 1 << (SIZE_BITS + 3 - 2));
};

/// Where the log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Of the oldest retained entry.
    pub(crate) position: Position,
    /// Its offset in the stream.
    pub(crate) offset: u64,
    /// The stream may be written up to here.
    pub(crate) limit: u64,
}

impl Start {
    /// The limit that the offset allows.
    pub(crate) fn widest_limit(self, capacity: u64) -> u64 {
        line_floor(self.offset) + capacity
    }

    fn checksum(self, selector: u64) -> u64 {
        let words = [self.position.number(), self.offset, self.limit, selector & 1];
        let crc = words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
        u64::from(crc) << 32
    }
}

pub(crate) const fn line_floor(offset: u64) -> u64 {
    offset & !(LINE_BYTES as u64 - 1)
}

impl RingRoot {
    /// The checksum that the immutable words ask for.
    pub(crate) fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let words = [
            &self.magic,
            &self.format_version,
            &self.capacity_bytes,
            &self.placement,
            &self.size_fields,
        ];
        root_checksum(words.map(|word| word.load(domain)))
    }

    /// The start that counts; none if it is damaged.
    pub(crate) fn start<D: Domain>(&self, domain: &D) -> Option<Start> {
        let selector = self.start_selector.load_acquire(domain);
        let record = &self.starts[(selector & 1) as usize];
        let start = Start {
            position: Position::from_number(record.position.load(domain)),
            offset: record.offset.load(domain),
            limit: record.limit.load(domain),
        };
        (start.checksum(selector) | selector & 1 == selector).then_some(start)
    }

    /// Stores another start: all in one line, the selector last, so that what it selects is there
    /// whenever it is (G4).
    pub(crate) fn store_start<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        start: Start,
    ) -> lapis_pmem::Visible<'a, D> {
        let selector = (self.start_selector.load(domain) ^ 1) & 1;
        let record = &self.starts[selector as usize];
        record.position.store_ordered(domain, start.position.number());
        record.offset.store_ordered(domain, start.offset);
        record.limit.store_ordered(domain, start.limit);
        self.start_selector.publish(domain, selector | start.checksum(selector))
    }

    /// As [`RingRoot::store_start`], in a root that nobody can reach yet.
    pub(crate) fn init_start<D: Domain>(&self, domain: &D, start: Start) {
        self.starts[0].position.store(domain, start.position.number());
        self.starts[0].offset.store(domain, start.offset);
        self.starts[0].limit.store(domain, start.limit);
        self.start_selector.store(domain, start.checksum(0));
    }
}

const SIZE_BITS: u32 = 44;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;

/// The word in a size field: how far the stream goes. It has to be one word, so that it is replaced
/// whole; offsets are told apart within 128 TiB, which is many times what a log can hold.
///
/// ```text
///  63                   44 43                                             0
/// +-----------------------+------------------------------------------------+
/// | CRC of the bits below | end of the stream in units of 8 bytes, modulo  |
/// +-----------------------+------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    pub(crate) fn of(end: u64) -> Self {
        let units = (end / 8) & SIZE_MASK;
        Self(units | Self::check(units))
    }

    fn check(units: u64) -> u64 {
        // Some bit is set, so that a field of zeroes is not a size.
        u64::from(crc32c::crc32c(&units.to_le_bytes()) | 1) << SIZE_BITS
    }

    /// How many bytes behind `start` the stream ends, or before it if negative; none if the word
    /// is no size.
    pub(crate) fn distance(self, start: u64) -> Option<i64> {
        let units = self.0 & SIZE_MASK;
        if Self::check(units) | units != self.0 {
            return None;
        }
        let apart = units.wrapping_sub(start / 8) << (64 - SIZE_BITS);
        Some((apart as i64 >> (64 - SIZE_BITS)) * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_from_the_start_in_both_directions_and_across_the_wrap() {
        for start in [0u64, 4096, (1 << 47) - 64, 1 << 47, (1 << 55) + 8] {
            for apart in [0i64, 8, 1 << 40, -8, -64] {
                let Some(end) = start.checked_add_signed(apart) else { continue };
                assert_eq!(Size::of(end).distance(start), Some(apart), "{start} {apart}");
            }
        }
    }

    #[test]
    fn a_size_with_any_bit_flipped_is_no_size() {
        let size = Size::of(123_456);
        for bit in 0..64 {
            assert_eq!(Size(size.0 ^ 1 << bit).distance(0), None, "bit {bit}");
        }
        assert_eq!(Size(0).distance(0), None);
    }
}
