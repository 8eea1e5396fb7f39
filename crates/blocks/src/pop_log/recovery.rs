//! From what a crash left to a log that can be appended to: finding the end of the valid prefix and
//! making clean what lies beyond it.

use std::ops::Range;

use lapis_pmem::{BlockVisitor, Committed, Domain, LINE_BYTES, Link, PCell, Pool};

use crate::log::{Damage, Placement, Position};
use crate::spacing::Spacing;

use super::entry::{Found, examine, is_zero, zero_data};
use super::layout::{PopLogRoot, SegmentRef, address};

/// A segment that holds retained entries, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) segment: SegmentRef,
    /// The first entry that may be in it.
    pub(super) first: Position,
    /// Where its entries end.
    pub(super) used_bytes: usize,
}

/// What a scan found.
#[derive(Debug)]
pub(super) struct Scan {
    /// Every segment up to the one that the last whole entry is in, oldest first.
    pub(super) earlier: Vec<Held>,
    /// The last of them: where the next append goes.
    pub(super) current: Held,
    /// The position after the last whole entry.
    pub(super) next: Position,
    /// Offset and bytes of the last whole entry, if it is in `current`.
    last_entry: Option<(usize, usize)>,
    /// What a torn entry left behind the end of `current`.
    pub(super) torn: Option<Range<usize>>,
    /// A segment that was linked for an entry that did not become whole.
    pub(super) successor: Option<SegmentRef>,
}

/// Reads the log that `root` describes, whole. Nobody may write meanwhile. Changes nothing.
pub(super) fn scan<D: Domain>(
    pool: &Pool<D>,
    root: &PopLogRoot,
    ordinary_bytes: usize,
    spacing: Spacing,
) -> Result<Scan, Damage> {
    let mut found = None;
    let _ = pool.reachable(|segments| {
        found = Some(scan_segments(pool, root, ordinary_bytes, spacing, segments));
    });
    found.expect("a visit calls what it is given")
}

/// `segments` knows where the allocator has blocks, and which were visited: a damaged link that led
/// anywhere else would make of it the end of the log, and the next append would zero what lies there.
fn scan_segments<D: Domain>(
    pool: &Pool<D>,
    root: &PopLogRoot,
    ordinary_bytes: usize,
    spacing: Spacing,
    segments: &mut BlockVisitor<'_, D>,
) -> Result<Scan, Damage> {
    let start = root.start(pool.domain());
    let (mut position, mut data_offset) = (start.position, start.data_offset);
    let mut earlier = Vec::new();
    let mut segment = start.segment;
    let damaged = |what, segment: SegmentRef, data_offset, position| Damage {
        what,
        position,
        pool_offset: segment.pool_offset(data_offset),
    };
    if !is_new_segment(segments, segment, ordinary_bytes)
        || !data_offset.is_multiple_of(spacing.unit_bytes())
        || data_offset > segment.data_bytes(ordinary_bytes)
    {
        return Err(damaged("a start outside of any segment", segment, 0, position));
    }
    let look = |segment: SegmentRef, data_offset, position| {
        let data_end = segment.data_bytes(ordinary_bytes);
        examine(pool, segment, spacing, data_offset, data_end, position)
    };
    let mut found = look(segment, data_offset, position);
    loop {
        let (first, mut last_entry) = (position, None);
        let torn_bytes = loop {
            match found {
                Found::Whole { bytes, .. } => {
                    last_entry = Some((data_offset, bytes));
                    data_offset += bytes;
                    position = position.next();
                    found = look(segment, data_offset, position);
                }
                Found::Unsealed => break None,
                Found::Torn { bytes } => break Some(bytes),
                Found::Damaged(what) => {
                    return Err(damaged(what, segment, data_offset, position));
                }
            }
        };
        let current = Held { segment, first, used_bytes: data_offset };
        let data_end = segment.data_bytes(ordinary_bytes);
        let torn = dirty_words(data(pool, segment, data_offset, data_end))
            .map(|dirty| data_offset + dirty.start..data_offset + dirty.end);
        let follower = SegmentRef::from_bits(pool.at(segment.link()).next.load(pool.domain()));
        if let Some(torn) = &torn {
            // I4: only the one append that was under way can be torn, and nothing follows it.
            if torn_bytes.is_some_and(|bytes| torn.end > data_offset + bytes) {
                return Err(damaged("bytes after a torn entry", segment, torn.end, position));
            }
            if !follower.is_null() {
                let what = "a torn entry that is not the last";
                return Err(damaged(what, segment, data_offset, position));
            }
        }
        let done = |earlier, successor| {
            Ok(Scan { earlier, current, next: position, last_entry, torn, successor })
        };
        if follower.is_null() {
            return done(earlier, None);
        }
        if !is_new_segment(segments, follower, ordinary_bytes) {
            return Err(damaged("a link to no segment", segment, 0, position));
        }
        found = look(follower, 0, position);
        let torn_bytes = match found {
            Found::Whole { .. } => {
                earlier.push(current);
                (segment, data_offset) = (follower, 0);
                continue;
            }
            Found::Unsealed => follower.data_bytes(ordinary_bytes),
            Found::Torn { bytes } => bytes,
            Found::Damaged(what) => return Err(damaged(what, follower, 0, position)),
        };
        // I3: it was zero, durably, before it was linked.
        let beyond = data(pool, follower, torn_bytes, follower.data_bytes(ordinary_bytes));
        let header = pool.at(follower.link());
        if !is_zero(beyond) || header.next.load(pool.domain()) != 0 {
            return Err(damaged("bytes after a torn entry", follower, torn_bytes, position));
        }
        return done(earlier, Some(follower));
    }
}

impl Scan {
    /// Makes the end clean, and what was read durable. One fence. On return `successor`, if there
    /// is one, is out of reach, durably.
    pub(super) fn repair<D: Domain>(
        &self,
        pool: &Pool<D>,
        root: &PopLogRoot,
        placement: Placement,
    ) -> Committed {
        let domain = pool.domain();
        // The process may have died without a power cut: then what the scan has read may be in the
        // cache only, and whoever is told of it, or what is appended behind it, must not outlive
        // it. Of entries only the last can be in that state, with the link that leads to it.
        domain.flush(&root.start_selector);
        if let Some((data_offset, bytes)) = self.last_entry {
            let start = address(pool, self.current.segment.pool_offset(data_offset));
            if placement == Placement::Streamed {
                // A flush does not hasten what went past the caches (rule R6): once more, through
                // them.
                let end = data_offset + bytes;
                let entry = data(pool, self.current.segment, data_offset, end).to_vec();
                // SAFETY: the entry's own bytes; nobody else has the log open.
                unsafe { domain.copy(start, &entry) };
            }
            // SAFETY: the scan has read these bytes of the pool.
            unsafe { domain.flush_range(start, bytes) };
            if let (0, Some(before)) = (data_offset, self.earlier.last()) {
                domain.flush(&pool.at(before.segment.link()).next);
            }
        }
        if let Some(torn) = &self.torn {
            domain.happens("a torn entry is zeroed");
            // Whole lines past the caches, but for the line that the last entry ends in.
            let from = (torn.start / LINE_BYTES * LINE_BYTES).max(self.current.used_bytes);
            let to = torn.end.next_multiple_of(LINE_BYTES);
            // SAFETY: within the segment (scan), which ends where a line does, and behind the last
            // entry; nobody else has the log open. I5. A crash in
            // here leaves a subset of the bits of a torn entry, which is a torn entry (I4).
            unsafe { zero_data(pool, self.current.segment, from, to) };
        }
        if self.successor.is_some() {
            domain.happens("a segment without a whole entry is taken out");
            // I5. The segment holds no whole entry, so that with or without this store the log has
            // the same entries.
            let _shared_fence =
                pool.at(self.current.segment.link()).next.publish(domain, 0).flush();
        }
        Committed::after_fence(domain)
    }
}

/// Whether `segment` may be one, and has not been visited: a block of that size begins there, and ends
/// inside the pool, which a damaged word of the allocator's may deny.
fn is_new_segment<D: Domain>(
    segments: &mut BlockVisitor<'_, D>,
    segment: SegmentRef,
    ordinary_bytes: usize,
) -> bool {
    let block_bytes = segment.block_bytes(ordinary_bytes);
    let end = segment.link().offset() + block_bytes as u64;
    end <= segments.pool().region().mapped_bytes() as u64
        && segments.visit(segment.link(), block_bytes)
}

/// `[from, to)` of the data of a segment.
pub(super) fn data<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    from: usize,
    to: usize,
) -> &[u8] {
    // The word before the data is of the segment's header or of the data before.
    let word_before = segment.pool_offset(from) - size_of::<PCell<u64>>() as u64;
    pool.tail(Link::<PCell<u64>>::from_bits(word_before), to - from)
}

/// The whole words from the first to the last that has a set bit.
fn dirty_words(bytes: &[u8]) -> Option<Range<usize>> {
    const WORD_BYTES: usize = size_of::<u64>();
    const PIECE_WORDS: usize = 512;
    // Almost always there are none: look piece by piece first.
    let mut dirty: Option<Range<usize>> = None;
    for (index, piece) in bytes.chunks(PIECE_WORDS * WORD_BYTES).enumerate() {
        if is_zero(piece) {
            continue;
        }
        for (word, contents) in piece.chunks(WORD_BYTES).enumerate() {
            if !is_zero(contents) {
                let start = (index * PIECE_WORDS + word) * WORD_BYTES;
                let end = start + WORD_BYTES;
                dirty = Some(dirty.map_or(start..end, |before| before.start..end));
            }
        }
    }
    dirty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_words_span_from_the_first_to_the_last_set_bit() {
        let mut bytes = vec![0; 20_032];
        assert_eq!(dirty_words(&bytes), None);
        bytes[130] = 1;
        assert_eq!(dirty_words(&bytes), Some(128..136));
        bytes[20_031] = 1;
        assert_eq!(dirty_words(&bytes), Some(128..20_032));
    }
}
