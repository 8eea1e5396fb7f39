//! Appending: bodies, barrier, and what says that they are there.

use std::ops::Range;

use lapis_pmem::{Domain, LINE_BYTES};

use crate::log::{LARGEST_ENTRY_BYTES, LogError, Placement, Position};
use crate::mutants::{CLASSIC_FOOTER_WITH_PAYLOAD, HEADER_SIZE_WITH_PAYLOAD};
use crate::spacing::Spacing;

use super::RingLog;
use super::entry::{Head, payload_crc};
use super::kind::{Entry, FOOTER_BYTES, RingKind, after_body, after_footer, pad_behind};
use super::layout::Size;
use super::ring::Sink;

/// Bytes of a payload in parts.
pub(crate) fn payload_bytes(parts: &[&[u8]]) -> Result<usize, LogError> {
    let length = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
    match length {
        0 => Err(LogError::EmptyEntry),
        _ if length > LARGEST_ENTRY_BYTES => Err(LogError::EntryTooLarge { asked_bytes: length }),
        _ => Ok(length),
    }
}

/// One entry on its way: where it goes and what it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append<'e> {
    pub(crate) position: Position,
    pub(crate) joined: bool,
    pub(crate) more: bool,
    pub(crate) length: usize,
    pub(crate) parts: &'e [&'e [u8]],
}

impl Append<'_> {
    /// Stores the body, and the padding behind it.
    #[inline]
    pub(crate) fn write<D: Domain, K: RingKind>(
        &self,
        sink: &mut Sink<'_, D, K>,
        spacing: Spacing,
    ) {
        let &Self { position, joined, more, length, parts } = self;
        let head = Head { length, joined, more, payload_crc: payload_crc(parts) };
        K::write(sink, &Entry { position, head, parts });
        pad_behind(sink, spacing, K::body_bytes(length));
    }
}

/// The footer of the entry at `position`: its complement, so that no one flipped bit makes it look as
/// if it had never been written.
pub(crate) fn footer(position: Position) -> u64 {
    !position.number()
}

/// Stores the footer of the entry at `position`, flushes it and fences.
#[inline]
pub(crate) fn write_footer<D: Domain, K: RingKind>(
    sink: &mut Sink<'_, D, K>,
    spacing: Spacing,
    position: Position,
) {
    // One word: a torn footer is no footer.
    sink.word(footer(position));
    pad_behind(sink, spacing, FOOTER_BYTES);
    sink.write_back();
    // G1.
    sink.domain().fence();
}

impl<D: Domain, K: RingKind> RingLog<D, K> {
    /// What can be said of the lengths alone: bytes of the whole group.
    pub(crate) fn group_bytes<'e>(
        &self,
        tail: u64,
        group: impl Iterator<Item = &'e [&'e [u8]]>,
    ) -> Result<(u64, usize), LogError> {
        let (mut at, mut count) = (tail, 0);
        for parts in group {
            at = after_body::<K>(self.spacing, at, payload_bytes(parts)?);
            count += 1;
        }
        let bytes = after_footer::<K>(self.spacing, at) - tail;
        if bytes > self.capacity {
            let capacity_bytes = self.capacity;
            return Err(LogError::LargerThanLog { asked_bytes: bytes, capacity_bytes });
        }
        Ok((bytes, count))
    }

    /// Says whether `bytes` bytes at `tail` stay before `limit`, by whole lines.
    pub(crate) fn check_room(tail: u64, bytes: u64, limit: u64) -> Result<(), LogError> {
        // G4: the line that the end is in may be written whole.
        if (tail + bytes).next_multiple_of(LINE_BYTES as u64) > limit {
            let free_bytes = limit.saturating_sub(tail);
            return Err(LogError::NoRoom { asked_bytes: bytes, free_bytes });
        }
        Ok(())
    }

    pub(crate) fn append_group<'e>(
        &self,
        group: impl Iterator<Item = &'e [&'e [u8]]> + Clone,
    ) -> Result<Range<Position>, LogError> {
        let domain = self.pool.domain();
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        let first = writer.next;
        let (bytes, count) = self.group_bytes(writer.tail, group.clone())?;
        if count == 0 {
            return Ok(first..first);
        }
        Self::check_room(writer.tail, bytes, writer.start.limit)?;
        if count > 1 {
            domain.happens("a group of entries");
        }
        let ring = self.ring();
        let line = (self.placement == Placement::Streamed).then_some(&mut writer.line);
        // SAFETY: free space (just checked), of which the lock keeps other writers away; readers
        // stay before `tail`.
        let mut sink = unsafe { Sink::<D, K>::new(&ring, writer.tail, line) };
        let mut position = first;
        for (index, parts) in group.enumerate() {
            let length = parts.iter().map(|part| part.len()).sum();
            let (joined, more) = (index > 0, index + 1 < count);
            Append { position, joined, more, length, parts }.write(&mut sink, self.spacing);
            position = position.next();
        }
        let last = Position::from_number(position.number() - 1);
        sink.write_back();
        {
            let _footer = domain.omitting(CLASSIC_FOOTER_WITH_PAYLOAD);
            let _size = domain.omitting(HEADER_SIZE_WITH_PAYLOAD);
            // G2: what says that the entries are there follows; or G1, the only barrier.
            domain.fence();
        }
        if K::FOOTER {
            write_footer(&mut sink, self.spacing, last);
        } else if K::SIZED {
            self.publish_size(writer.next_size, writer.tail + bytes);
            writer.next_size = (writer.next_size + 1) % self.size_fields;
        }
        if writer.tail / self.capacity < (writer.tail + bytes) / self.capacity {
            domain.happens("the ring comes round");
        }
        writer.tail += bytes;
        writer.next = position;
        domain.health()?;
        Ok(first..position)
    }

    /// Stores `end` in a size field, flushes it and fences. All before `end` is durable.
    pub(crate) fn publish_size(&self, field: usize, end: u64) {
        let size = &self.size_field(field).size;
        // G1. One word: the size is the old one or the new one.
        let _: lapis_pmem::Committed = size.publish(self.pool.domain(), Size::of(end).0).persist();
    }
}
