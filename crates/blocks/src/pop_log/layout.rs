//! What lies where: the root, the segments and the header of an entry. The diagrams are in the
//! [header of the log](super).

use lapis_pmem::{Domain, EXTENT_BYTES, LINE_BYTES, Link, PCell, Pool, Slot, persistent};

use crate::log::{LARGEST_ENTRY_BYTES, Placement, Position};
use crate::root_checksum::root_checksum;
use crate::spacing::Spacing;

/// "LAPISPOP", read as a little-endian word.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"LAPISPOP");
/// The format that this code writes, and the only one it reads.
pub(super) const FORMAT_VERSION: u64 = 1;

/// Bytes before the payload of an entry.
pub const ENTRY_HEADER_BYTES: usize = 16;
/// Bytes before the first entry of a segment.
pub(super) const SEGMENT_HEADER_BYTES: usize = LINE_BYTES;

persistent! {
    /// The header block of a log: what the caller publishes.
    pub struct PopLogRoot: 128 {
        pub(super) magic: PCell<u64>,
        pub(super) format_version: PCell<u64>,
        pub(super) segment_bytes: PCell<u64>,
        pub(super) spare_segments: PCell<u64>,
        pub(super) placement: PCell<u64>,
        /// CRC-32C of the five words above.
        pub(super) checksum: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 2],
        pub(super) starts: [StartRecord; 2],
        /// Its lowest bit says which of `starts` counts.
        pub(super) start_selector: PCell<u64>,
        pub(super) reserved_start: PCell<u64>,
    }
}

persistent! {
    /// Where the oldest retained entry stands.
    pub(super) struct StartRecord: 24 {
        /// [`SegmentRef`] of its segment.
        pub(super) segment: Slot<Segment>,
        /// Its [`Position`].
        pub(super) position: PCell<u64>,
        /// Its offset in the segment's data.
        pub(super) data_offset: PCell<u64>,
    }
}

persistent! {
    /// The first line of a segment; its data follows. All zeroes is a segment without entries.
    pub(super) struct Segment: 64 {
        /// [`SegmentRef`] of the segment that follows, zero for none.
        pub(super) next: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 7],
    }
}

persistent! {
    /// The first sixteen bytes of an entry; its payload follows.
    pub(super) struct EntryHeader: 16 {
        /// [`Seal`]: how long the entry is and how many bits are set in it.
        pub(super) seal: PCell<u64>,
        /// [`Identity`]: which entry it is, and the CRC.
        pub(super) identity: PCell<u64>,
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(PopLogRoot, checksum) == 40);
    // I6 rests on the whole start sharing one line.
    assert!(offset_of!(PopLogRoot, starts) == LINE_BYTES);
    assert!(offset_of!(PopLogRoot, start_selector) == 112);
    assert!(size_of::<PopLogRoot>() == 2 * LINE_BYTES);
    assert!(size_of::<Segment>() == SEGMENT_HEADER_BYTES);
    assert!(size_of::<EntryHeader>() == ENTRY_HEADER_BYTES);
    // The bits of the largest entry, and its length, fit their halves of the seal.
    assert!(8 * (LARGEST_ENTRY_BYTES as u64 + 16) < 1 << 32);
    // The tag of a segment reference holds the chunks of the largest segment.
    assert!((LARGEST_ENTRY_BYTES + 2 * LINE_BYTES) / EXTENT_BYTES + 1 < 1 << 16);
};

/// The first word of an entry, stored and torn as one.
///
/// ```text
///  63                              32 31                               0
/// +----------------------------------+----------------------------------+
/// | ones: bits set in the length,    | length of the payload in bytes,  |
/// | the identity and the payload     | never zero                       |
/// +----------------------------------+----------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal(pub(super) u64);

impl Seal {
    #[inline(always)]
    pub(super) fn new(length: usize, ones: u32) -> Self {
        Self(u64::from(ones) << 32 | length as u64)
    }

    #[inline(always)]
    pub(super) fn length(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline(always)]
    pub(super) fn ones(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The second word of an entry.
///
/// ```text
///  63                              32 31                               0
/// +----------------------------------+----------------------------------+
/// | CRC-32C of the whole position,   | low half of the position         |
/// | the length and the payload       |                                  |
/// +----------------------------------+----------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) u64);

impl Identity {
    #[inline(always)]
    pub(super) fn new(position: Position, crc: u32) -> Self {
        Self(u64::from(crc) << 32 | u64::from(position.number() as u32))
    }

    #[inline(always)]
    pub(super) fn crc(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether this may be the identity of the entry at `position`.
    #[inline(always)]
    pub(super) fn is_of(self, position: Position) -> bool {
        self.0 as u32 == position.number() as u32
    }
}

/// Bytes of an entry with this payload, without what is left free behind it.
#[inline(always)]
pub(super) const fn body_bytes(length: usize) -> usize {
    (ENTRY_HEADER_BYTES + length).next_multiple_of(8)
}

/// Bytes that an entry with this payload takes at `data_offset`: header, payload, what is left free
/// behind it.
#[inline(always)]
pub(super) fn entry_bytes(spacing: Spacing, data_offset: usize, length: usize) -> usize {
    let (at, bytes) = (data_offset as u64, body_bytes(length) as u64);
    (spacing.after(at, bytes) - at) as usize
}

/// What a placement comes to in a segment.
pub(super) fn spacing_of(placement: Placement) -> Spacing {
    match placement {
        Placement::Dense => Spacing::None,
        Placement::Padded => Spacing::Lines,
        Placement::Streamed => Spacing::SharedLines,
    }
}

/// A reference to a segment, which says how large it is, so that a segment of zeroes is complete.
///
/// ```text
///  63             48 47                                            0
/// +-----------------+-----------------------------------------------+
/// | 64 KiB chunks,  |  pool offset of the segment                   |
/// | 0 = ordinary    |                                               |
/// +-----------------+-----------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SegmentRef(u64);

impl SegmentRef {
    pub(super) fn new(link: Link<Segment>, chunks: usize) -> Self {
        debug_assert!(chunks < 1 << 16);
        Self((chunks as u64) << 48 | link.bits())
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn is_null(self) -> bool {
        self.link().is_null()
    }

    pub(super) fn link(self) -> Link<Segment> {
        Link::from_bits(self.0)
    }

    /// Whether this is an ordinary segment, of the size that the root names.
    pub(super) fn is_ordinary(self) -> bool {
        self.0 >> 48 == 0
    }

    /// Bytes of the block.
    pub(super) fn block_bytes(self, ordinary_bytes: usize) -> usize {
        match (self.0 >> 48) as usize {
            0 => ordinary_bytes,
            chunks => chunks * EXTENT_BYTES,
        }
    }

    /// Bytes for entries.
    pub(super) fn data_bytes(self, ordinary_bytes: usize) -> usize {
        self.block_bytes(ordinary_bytes) - SEGMENT_HEADER_BYTES
    }

    /// Pool offset of the byte at `data_offset` of the data.
    #[inline(always)]
    pub(super) fn pool_offset(self, data_offset: usize) -> u64 {
        self.link().offset() + (SEGMENT_HEADER_BYTES + data_offset) as u64
    }
}

/// The address of a pool offset. Valid for as many bytes as the caller knows to be in the pool.
#[inline(always)]
pub(super) fn address<D: Domain>(pool: &Pool<D>, pool_offset: u64) -> *mut u8 {
    pool.region().base().wrapping_add(pool_offset as usize)
}

/// Where the log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) segment: SegmentRef,
    pub(super) position: Position,
    pub(super) data_offset: usize,
}

impl PopLogRoot {
    /// The checksum that the immutable words ask for.
    pub(super) fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let words = [
            &self.magic,
            &self.format_version,
            &self.segment_bytes,
            &self.spare_segments,
            &self.placement,
        ];
        root_checksum(words.map(|word| word.load(domain)))
    }

    /// The start that counts.
    pub(super) fn start<D: Domain>(&self, domain: &D) -> Start {
        let record = &self.starts[(self.start_selector.load_acquire(domain) & 1) as usize];
        Start {
            segment: SegmentRef::from_bits(record.segment.word().load(domain)),
            position: Position::from_number(record.position.load(domain)),
            data_offset: record.data_offset.load(domain) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_the_largest_length_and_every_bit_of_it() {
        let ones = 8 * (LARGEST_ENTRY_BYTES as u32 + 12);
        let seal = Seal::new(LARGEST_ENTRY_BYTES, ones);
        assert_eq!((seal.length(), seal.ones()), (LARGEST_ENTRY_BYTES, ones));
    }

    #[test]
    fn an_entry_takes_whole_lines_or_shares_one_or_is_as_long_as_it_is() {
        let sizes = |placement, at| {
            let spacing = spacing_of(placement);
            [1, 48, 49, 112, 113].map(|length| entry_bytes(spacing, at, length))
        };
        assert_eq!(sizes(Placement::Padded, 0), [64, 64, 128, 128, 192]);
        assert_eq!(sizes(Placement::Dense, 0), [24, 64, 72, 128, 136]);
        assert_eq!(sizes(Placement::Streamed, 0), [24, 64, 128, 128, 192]);
        assert_eq!(sizes(Placement::Streamed, 24)[0], 40);
    }

    #[test]
    fn a_segment_reference_keeps_offset_and_size_apart() {
        let ordinary = SegmentRef::new(Link::from_bits(0xFFFF_FFFF_0000), 0);
        let large = SegmentRef::new(Link::from_bits(0x1_0000), 1025);
        assert_eq!(
            (ordinary.link().offset(), ordinary.block_bytes(4096)),
            (0xFFFF_FFFF_0000, 4096)
        );
        assert_eq!((large.link().offset(), large.block_bytes(4096)), (0x1_0000, 1025 << 16));
    }
}
