//! From what a crash left to a log that can be appended to.

use lapis_pmem::Domain;

use crate::log::{Damage, Placement, Position};
use crate::mutants::{HEADER_FIRST_SIZE_COUNTS, POP_RING_LINE_FORGOTTEN};

use super::RingLog;
use super::append::footer;
use super::entry::Head;
use super::kind::{RingKind, Seen, after_entry};
use super::layout::{Size, Start};
use super::ring::{LineBuffer, Ring};

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) tail: u64,
    pub(super) next: Position,
    pub(super) next_size: usize,
}

impl<D: Domain, K: RingKind> RingLog<D, K> {
    fn damage(&self, what: &'static str, at: u64, position: Position) -> Damage {
        Damage { what, position, pool_offset: self.ring().pool_offset(at) }
    }

    /// Walks from `start` to the end. Nobody may write meanwhile. Changes nothing.
    pub(super) fn scan(&self, start: Start) -> Result<End, Damage> {
        let widest = start.widest_limit(self.capacity);
        if !start.limit.is_multiple_of(lapis_pmem::LINE_BYTES as u64)
            || !start.offset.is_multiple_of(8)
            || start.limit < start.offset
            || start.limit > widest
        {
            return Err(self.damage("a start outside of the ring", 0, start.position));
        }
        if K::SIZED {
            let (end, next_size) = self.greatest_size(start)?;
            return self.walk_to(start, end, next_size);
        }
        let ring = self.ring();
        let mut end = End { tail: start.offset, next: start.position, next_size: 0 };
        // One group after the other: entries that are there together or not at all.
        let mut group: Vec<(u64, Head)> = Vec::new();
        loop {
            group.clear();
            let (mut at, mut position) = (end.tail, end.next);
            let seen = loop {
                let seen = K::look(&ring, at, start.limit, position);
                let Seen::Whole(head) = seen else { break seen };
                let after = after_entry::<K>(self.spacing, at, head);
                if after > start.limit {
                    break Seen::Damaged("an entry that goes on behind the end");
                }
                group.push((at, head));
                (at, position) = (after, position.next());
                if !head.more {
                    break seen;
                }
            };
            match seen {
                Seen::Whole(head) => {
                    if K::FOOTER {
                        // A group ends where its last footer does.
                        let (begin, _) = group[group.len() - 1];
                        let body_end =
                            after_entry::<K>(self.spacing, begin, Head { more: true, ..head });
                        let last = Position::from_number(position.number() - 1);
                        match ring.load(body_end) {
                            0 => {
                                self.refuse_later(at, start.limit, position)?;
                                return Ok(end);
                            }
                            found if found == footer(last) => {}
                            _ => return Err(self.damage("a wrong footer", body_end, end.next)),
                        }
                    }
                    for &(at, head) in &group {
                        if !K::is_intact(&ring, at, head) {
                            return Err(self.damage(
                                "an entry with a wrong checksum",
                                at,
                                end.next,
                            ));
                        }
                        end.next = end.next.next();
                    }
                    end.tail = at;
                }
                Seen::Torn(head) => {
                    let after = after_entry::<K>(self.spacing, at, head);
                    self.refuse_later(after, start.limit, position.next())?;
                    return Ok(end);
                }
                Seen::Nothing => return Ok(end),
                Seen::Damaged(what) => return Err(self.damage(what, at, position)),
            }
        }
    }

    /// G6: behind an entry that is not whole, only entries can stand that were begun before it was
    /// known to be.
    fn refuse_later(&self, mut at: u64, limit: u64, mut position: Position) -> Result<(), Damage> {
        let ring = self.ring();
        loop {
            match K::look(&ring, at, limit, position) {
                Seen::Whole(head) | Seen::Torn(head) if head.joined => {
                    at = after_entry::<K>(self.spacing, at, head);
                    position = position.next();
                }
                Seen::Whole(_) | Seen::Torn(_) => {
                    return Err(self.damage("an entry behind one that is missing", at, position));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Where the stream ends according to the size fields, and which is to be written next.
    fn greatest_size(&self, start: Start) -> Result<(u64, usize), Damage> {
        let domain = self.pool.domain();
        let damaged = |what| self.damage(what, start.offset, start.position);
        let mut greatest: Option<(i64, usize)> = None;
        for field in 0..self.size_fields {
            let size = Size(self.size_field(field).size.load(domain));
            let distance = size.distance(start.offset).ok_or(damaged("a damaged size field"))?;
            // Of equal ones the first: all are equal in a new log.
            if greatest.is_none_or(|(most, _)| distance > most) {
                greatest = Some((distance, field));
            }
            if domain.commits(HEADER_FIRST_SIZE_COUNTS) {
                break;
            }
        }
        let (distance, field) = greatest.ok_or(damaged("no size field"))?;
        let end = start
            .offset
            .checked_add_signed(distance)
            .filter(|end| distance >= 0 && *end <= start.limit);
        Ok((end.ok_or(damaged("a size outside of the ring"))?, (field + 1) % self.size_fields))
    }

    /// Walks over entries that are known to be there.
    fn walk_to(&self, start: Start, end: u64, next_size: usize) -> Result<End, Damage> {
        let ring = self.ring();
        let (mut at, mut position) = (start.offset, start.position);
        while at < end {
            match K::look(&ring, at, end, position) {
                Seen::Whole(head) if !K::is_intact(&ring, at, head) => {
                    return Err(self.damage("an entry with a wrong checksum", at, position));
                }
                Seen::Whole(head) => at = after_entry::<K>(self.spacing, at, head),
                Seen::Damaged(what) => return Err(self.damage(what, at, position)),
                _ => return Err(self.damage("an entry that is missing", at, position)),
            }
            position = position.next();
        }
        if at > end {
            return Err(self.damage("an end inside of an entry", at, position));
        }
        Ok(End { tail: end, next: position, next_size })
    }

    /// Finds the end, and makes it clean.
    pub(super) fn recover(&mut self) -> Result<(), Damage> {
        let start = self.writer.get_mut().start;
        let end = self.scan(start)?;
        let ring = self.ring();
        let limit = start.widest_limit(self.capacity);
        // SAFETY: nobody else has the log open.
        let cleaned = unsafe { K::clean(&ring, end.tail, start.limit) };
        // What a truncation had made free and not zeroed yet, for sure.
        let widened = start.limit < limit;
        if widened {
            // SAFETY: as above.
            unsafe { ring.zero(start.limit, limit) };
        }
        if cleaned {
            ring.pool.domain().happens("what a torn entry left is zeroed");
        }
        if widened {
            ring.pool.domain().happens("a truncation is completed");
        }
        if cleaned || widened {
            // G5; G3 before the limit says so.
            ring.pool.domain().fence();
        }
        let start = Start { limit, ..start };
        if widened {
            let _: lapis_pmem::Committed =
                self.header().store_start(self.pool.domain(), start).persist();
        }
        let line = self.line_at(&ring, end.tail);
        let mut writer = self.writer.lock();
        writer.start = start;
        (writer.tail, writer.next, writer.next_size) = (end.tail, end.next, end.next_size);
        writer.line = line;
        drop(writer);
        Ok(())
    }

    fn line_at(&self, ring: &Ring<'_, D>, at: u64) -> LineBuffer {
        match self.placement {
            Placement::Streamed if !self.pool.domain().commits(POP_RING_LINE_FORGOTTEN) => {
                LineBuffer::load::<D, K>(ring, at)
            }
            _ => LineBuffer::blank(),
        }
    }

    /// Reads the whole log anew and compares it with what is known of it. Empty if all is well.
    /// Appends and truncation wait meanwhile.
    pub fn check(&self) -> Vec<Damage> {
        let _retained = self.retention.write();
        let writer = self.writer.lock();
        let mut problems = Vec::new();
        let Some(start) = self.header().start(self.pool.domain()) else {
            return vec![self.damage("a start with a wrong checksum", 0, writer.next)];
        };
        if start != writer.start {
            problems.push(self.damage("another start than was stored (G4)", 0, writer.next));
        }
        match self.scan(start) {
            Err(damage) => problems.push(damage),
            Ok(end) if (end.tail, end.next) != (writer.tail, writer.next) => {
                let what = "acknowledged entries are missing (G1)";
                problems.push(self.damage(what, end.tail, end.next));
            }
            Ok(_) => {}
        }
        if !K::is_clean(&self.ring(), writer.tail, start.limit) {
            let what = "free space that is not clean (G3)";
            problems.push(self.damage(what, writer.tail, writer.next));
        }
        if start.limit != start.widest_limit(self.capacity) {
            problems.push(self.damage("a limit that was not moved (G4)", 0, writer.next));
        }
        problems
    }
}
