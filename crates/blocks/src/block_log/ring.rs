//! Where the bytes of the stream lie on the device, and where records go.

use lapis_pmem::{BLOCK_BYTES, BlockDevice, BlockError};

use super::error::BlockLogError;
use super::record::{ALIGNMENT, RECORD_HEADER_BYTES, WITNESS_RECORD_BYTES, record_bytes};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks before the ring: one for each copy of the header.
pub(super) const HEADER_BLOCKS: u64 = 2;

/// The most that ending a batch takes: what is left of the segment is too short for a mark, padded, and
/// the next segment begins.
pub(super) const MARK_ROOM: u64 = WITNESS_RECORD_BYTES - ALIGNMENT + WITNESS_RECORD_BYTES;

/// A ring becomes so many times as long.
const GROWTH: u64 = 4;

/// What a header says of a ring.
pub(super) const FIELDS: usize = 7;

/// A log is not larger, nor are its parts, so that positions never overflow.
const MOST_BYTES: u64 = 1 << 50;
/// Two buffers of a batch are kept in memory.
const MOST_BATCH_BYTES: u64 = 1 << 30;

/// How to lay out a log. It fills its device, and grows with it if it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLogOptions {
    /// A number that no other log has whose records may lie on the device.
    pub identity: u64,
    /// Bytes of a segment, a multiple of [`lapis_pmem::BLOCK_BYTES`]. No record crosses the end
    /// of one.
    pub segment_bytes: u64,
    /// Bytes that are collected before somebody has to wait for a sync, a multiple of
    /// [`lapis_pmem::BLOCK_BYTES`]. Two buffers of it are kept. A record has less than half of it.
    pub batch_bytes: u64,
    /// Bytes that the ring may grow to, in whole segments; 0, or less than the device has: it stays as it is.
    pub most_bytes: u64,
}

impl BlockLogOptions {
    /// Segments of 4 MiB and batches of 1 MiB, in a ring that stays as it is.
    pub const fn new(identity: u64) -> Self {
        Self { identity, segment_bytes: 4 << 20, batch_bytes: 1 << 20, most_bytes: 0 }
    }
}

/// The ring. All of its shape but its length, and with that `base`, stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    identity: u64,
    segment_bytes: u64,
    segments: u64,
    batch_bytes: u64,
    /// Where the stream came to the beginning of the ring when that got its length.
    base: u64,
    /// Segments at least, and at most.
    fewest_segments: u64,
    most_segments: u64,
    /// Of the device that it lies on, and of no header.
    unit_bytes: u64,
}

impl Ring {
    /// As many segments as a device of so many blocks has room for.
    pub(super) fn new(options: BlockLogOptions, blocks: u64) -> Result<Self, BlockLogError> {
        let BlockLogOptions { identity, segment_bytes, batch_bytes, most_bytes } = options;
        let segment_blocks = (segment_bytes / BLOCK).max(1);
        let segments = blocks.saturating_sub(HEADER_BLOCKS) / segment_blocks;
        let most = (most_bytes / segment_bytes.max(1)).max(segments);
        Self::of_fields([identity, segment_bytes, segments, batch_bytes, 0, segments, most], blocks)
    }

    /// The ring that a header describes.
    pub(super) fn of_fields(
        [identity, segment_bytes, segments, batch_bytes, base, fewest_segments, most_segments]:
            [u64; FIELDS],
        blocks: u64,
    ) -> Result<Self, BlockLogError> {
        let unit_bytes = BLOCK;
        let ring = Self {
            identity,
            segment_bytes,
            segments,
            batch_bytes,
            base,
            fewest_segments,
            most_segments,
            unit_bytes,
        };
        ring.checked(blocks)
    }

    /// The same ring, written in units of so many bytes.
    pub(super) fn in_units_of(self, bytes: usize) -> Self {
        Self { unit_bytes: bytes as u64, ..self }
    }

    pub(super) fn unit_bytes(self) -> u64 {
        self.unit_bytes
    }

    pub(super) fn fields(self) -> [u64; FIELDS] {
        let Self { identity, segment_bytes, segments, batch_bytes, .. } = self;
        let Self { base, fewest_segments: fewest, most_segments: most, .. } = self;
        [identity, segment_bytes, segments, batch_bytes, base, fewest, most]
    }

    fn checked(self, blocks: u64) -> Result<Self, BlockLogError> {
        let wrong = |what| Err(BlockLogError::Options { what });
        let is_multiple = |bytes: u64| bytes > 0 && bytes.is_multiple_of(BLOCK);
        if !is_multiple(self.segment_bytes) || self.segment_bytes > MOST_BYTES {
            return wrong("the segments of a log are not a multiple of 4096 bytes, or too long");
        }
        if !is_multiple(self.batch_bytes) || self.batch_bytes > MOST_BATCH_BYTES {
            return wrong("the batches of a log are not a multiple of 4096 bytes, or over 1 GiB");
        }
        if self.batch_bytes < 4 * BLOCK {
            return wrong("the batches of a log are shorter than 16384 bytes");
        }
        let is_length = self.fewest_segments <= self.segments
            && self.segments <= self.most_segments
            && self.most_segments <= MOST_BYTES / self.segment_bytes
            && self.base.is_multiple_of(self.segment_bytes);
        if self.segments > 0 && !is_length {
            return wrong("a log is to be shorter than it may be, or longer");
        }
        let segment_blocks = self.segment_bytes / BLOCK;
        let needed_blocks = self.segments.max(1).checked_mul(segment_blocks);
        let needed_blocks = needed_blocks.and_then(|ring| ring.checked_add(HEADER_BLOCKS));
        match needed_blocks {
            Some(needed)
                if self.segments > 0 && needed <= blocks && needed <= MOST_BYTES / BLOCK =>
            {
                Ok(self)
            }
            needed => Err(BlockLogError::DeviceTooSmall {
                blocks,
                needed_blocks: needed.unwrap_or(u64::MAX),
            }),
        }
    }

    pub(super) fn identity(self) -> u64 {
        self.identity
    }

    pub(super) fn bytes(self) -> u64 {
        self.segment_bytes * self.segments
    }

    pub(super) fn base(self) -> u64 {
        self.base
    }

    /// Bytes that it may grow to.
    pub(super) fn most_bytes(self) -> u64 {
        self.segment_bytes * self.most_segments
    }

    /// Blocks of the device that it takes, and the header.
    pub(super) fn device_blocks(self) -> u64 {
        HEADER_BLOCKS + self.bytes() / BLOCK
    }

    /// Where the round began in which `at` lies.
    fn round_start(self, at: u64) -> u64 {
        at - (at - self.base) % self.bytes()
    }

    /// How often the stream came to the beginning of the ring before `at`.
    pub(super) fn rounds_before(self, at: u64) -> u64 {
        (at - self.base) / self.bytes()
    }

    /// Several times as long, or as long as it may be, what lies between `start` and `end` being where it is (B7); none if it cannot
    /// be.
    pub(super) fn longer(self, start: u64, end: u64) -> Option<Self> {
        let base = self.round_start(start);
        let segments = self.segments.saturating_mul(GROWTH).min(self.most_segments);
        let is_one_round = end - base <= self.bytes();
        let longer = Self { base, segments, ..self };
        (is_one_round && segments > self.segments).then_some(longer)
    }

    /// As short as it may be, and where it begins, the log being empty and at its end at `at`; none if it stays as it is.
    pub(super) fn shortest(self, at: u64) -> Option<(Self, u64)> {
        let (segments, base) = (self.fewest_segments, self.next_segment(at));
        let may_grow = segments < self.most_segments;
        may_grow.then_some((Self { base, segments, ..self }, base))
    }

    pub(super) fn batch_bytes(self) -> u64 {
        self.batch_bytes
    }

    pub(super) fn batch_blocks(self) -> usize {
        (self.batch_bytes / BLOCK) as usize
    }

    /// A batch that has only the rest of the last block has room for two such records, one of them the
    /// room that the other leaves in a segment, and a mark; a segment has room for one.
    pub(super) fn largest_payload_bytes(self) -> usize {
        let of_batch = (self.batch_bytes - BLOCK - WITNESS_RECORD_BYTES - MARK_ROOM) / 2;
        let of_segment = self.segment_bytes - WITNESS_RECORD_BYTES;
        let bytes = of_batch.min(of_segment).min(u32::MAX.into()) - RECORD_HEADER_BYTES;
        (bytes - bytes % ALIGNMENT) as usize
    }

    /// The most that records with so many bytes of payload take, marks and all. See [`Ring::end_of`].
    pub(super) fn room_for(records: u64, payload_bytes: u64) -> u64 {
        let own = RECORD_HEADER_BYTES + ALIGNMENT;
        let most_each = 2 * own + WITNESS_RECORD_BYTES + MARK_ROOM;
        payload_bytes.saturating_mul(2).saturating_add(records.saturating_mul(most_each))
    }

    /// Where the ring may be written up to if what begins at `start` is retained (B5).
    pub(super) fn limit(self, start: u64) -> u64 {
        start - start % BLOCK + self.bytes()
    }

    pub(super) fn is_segment_start(self, at: u64) -> bool {
        at.is_multiple_of(self.segment_bytes)
    }

    /// Where the segment that `at` lies in ends.
    pub(super) fn segment_end(self, at: u64) -> u64 {
        at - at % self.segment_bytes + self.segment_bytes
    }

    /// Where a record begins that comes next after what ends at `end`.
    pub(super) fn settle(self, end: u64) -> u64 {
        let segment_end = self.segment_end(end);
        if segment_end - end < RECORD_HEADER_BYTES { segment_end } else { end }
    }

    /// Where a record of so many bytes would begin after `end` in the same segment; none if it does not
    /// fit there.
    pub(super) fn place_in_segment(self, end: u64, bytes: u64) -> Option<u64> {
        let at = self.settle(end);
        let fits = !self.is_segment_start(at) && at + bytes <= self.segment_end(at);
        fits.then_some(at)
    }

    /// Where a record with so many bytes of payload would end if it came next after `end`.
    pub(super) fn end_of(self, end: u64, payload_bytes: usize) -> u64 {
        let bytes = record_bytes(payload_bytes);
        let at = self.place_in_segment(end, bytes);
        let after_segment_record = || self.next_segment(end) + WITNESS_RECORD_BYTES;
        at.unwrap_or_else(after_segment_record) + bytes
    }

    /// The first start of a segment at or behind `end`.
    pub(super) fn next_segment(self, end: u64) -> u64 {
        end.next_multiple_of(self.segment_bytes)
    }

    /// The block of the device in which `at` lies.
    pub(super) fn block_of(self, at: u64) -> u64 {
        HEADER_BLOCKS + self.place_of(at) / BLOCK
    }

    /// The byte of the ring in which `at` lies.
    fn place_of(self, at: u64) -> u64 {
        (at - self.base) % self.bytes()
    }

    /// Writes whole units to the stream from `first` on, which begins one. Not durable before a flush.
    pub(super) fn write(
        self,
        device: &dyn BlockDevice,
        first: u64,
        units: &[u8],
    ) -> Result<(), BlockError> {
        let place = self.place_of(first);
        let before_the_end = (self.bytes() - place) as usize;
        let (one, other) = units.split_at(units.len().min(before_the_end));
        let start = HEADER_BLOCKS * BLOCK;
        device.write_units(start + place, one)?;
        if other.is_empty() {
            return Ok(());
        }
        device.write_units(start, other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(segment_bytes: u64, blocks: u64) -> Result<Ring, BlockLogError> {
        let (batch_bytes, most_bytes) = (4 * BLOCK, 16 * BLOCK);
        Ring::new(BlockLogOptions { identity: 1, segment_bytes, batch_bytes, most_bytes }, blocks)
    }

    #[test]
    fn what_is_retained_stays_where_it_is_when_a_ring_grows() {
        let mut ring = ring(2 * BLOCK, 4).unwrap();
        // In its third round.
        let (start, end) = (4 * BLOCK + 100, 6 * BLOCK);
        assert_eq!(ring.longer(4 * BLOCK - 1, end), None, "that is two rounds");
        for bytes in [8, 16] {
            let longer = ring.longer(start, end).unwrap();
            assert_eq!(longer.bytes(), bytes * BLOCK);
            for at in start..end {
                assert_eq!(longer.place_of(at), ring.place_of(at));
            }
            assert_eq!(longer.place_of(end), 2 * BLOCK, "it goes on behind");
            ring = longer;
        }
        assert_eq!(ring.longer(start, end), None, "it is as long as it may be");
        let (shortest, first) = ring.shortest(end + 5).unwrap();
        assert_eq!((shortest.bytes(), first), (2 * BLOCK, end + 2 * BLOCK));
        assert_eq!(shortest.place_of(first), 0);
    }

    #[test]
    fn a_ring_takes_whole_segments_of_what_is_behind_the_header() {
        let ring = ring(2 * BLOCK, 9).unwrap();
        assert_eq!(ring.bytes(), 6 * BLOCK);
        assert_eq!((ring.block_of(0), ring.block_of(6 * BLOCK - 1)), (2, 7));
        assert_eq!(ring.block_of(6 * BLOCK), 2);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        assert!(matches!(ring(1000, 9), Err(BlockLogError::Options { .. })));
        assert!(matches!(ring(0, 9), Err(BlockLogError::Options { .. })));
        assert!(matches!(
            ring(2 * BLOCK, 3),
            Err(BlockLogError::DeviceTooSmall { blocks: 3, needed_blocks: 4 })
        ));
        for fields in [
            [1, BLOCK, u64::MAX, 4 * BLOCK, 0, 1, u64::MAX],
            [1, BLOCK, 1, u64::MAX, 0, 1, 1],
            [1, BLOCK, 1, 0, 0, 1, 1],
            [1, BLOCK, 2, 4 * BLOCK, 0, 3, 3],
            [1, BLOCK, 2, 4 * BLOCK, 0, 1, 1],
            [1, BLOCK, 2, 4 * BLOCK, 1, 1, 2],
        ] {
            assert!(Ring::of_fields(fields, 100).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_record_that_does_not_fit_goes_to_the_next_segment_behind_its_first_record() {
        let ring = ring(BLOCK, 100).unwrap();
        assert_eq!(ring.end_of(0, 8), 64, "a segment begins with a record of its own");
        assert_eq!(ring.end_of(64, 8), 96);
        assert_eq!(ring.end_of(BLOCK - 32, 8), BLOCK);
        assert_eq!(ring.end_of(BLOCK - 24, 8), BLOCK + 64);
        assert_eq!(ring.end_of(BLOCK - 24, 0), BLOCK);
        assert_eq!(ring.settle(BLOCK - 16), BLOCK);
        assert_eq!(ring.settle(BLOCK - 24), BLOCK - 24);
    }

    #[test]
    fn no_record_takes_more_room_than_is_reserved_for_it_and_its_mark() {
        for segment_bytes in [BLOCK, 2 * BLOCK, 16 * BLOCK] {
            let ring = ring(segment_bytes, 100).unwrap();
            let largest = ring.largest_payload_bytes();
            for length in (0..64).chain([largest / 2, largest - 1, largest]) {
                let step = if cfg!(miri) { 8 * 4099 } else { 8 };
                for end in (0..3 * segment_bytes).step_by(step) {
                    let taken = ring.end_of(end, length) - end;
                    assert!(
                        taken + MARK_ROOM <= Ring::room_for(1, length as u64),
                        "{end} {length}"
                    );
                    let mark = ring.end_of(end, 8).min(ring.next_segment(end) + 32) - end;
                    assert!(mark <= MARK_ROOM, "{end}");
                    assert!(taken + MARK_ROOM + BLOCK <= ring.batch_bytes(), "{end} {length}");
                }
            }
        }
    }
}
