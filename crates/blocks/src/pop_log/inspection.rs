//! Looking at a log from outside: statistics, the check, the blocks.

use lapis_pmem::host_lock::{lock, write};
use lapis_pmem::{BlockVisitor, Domain};

use crate::log::Damage;

use super::layout::{PopLogRoot, SegmentRef};
use super::segment::Spare;
use super::{PopLog, entry, recovery};

/// What a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Entries that are retained.
    pub entries: u64,
    /// Bytes they take, with headers and padding.
    pub entry_bytes: u64,
    /// Segments in use.
    pub segments: usize,
    /// Segments kept for reuse.
    pub spare_segments: usize,
    /// Bytes of all segments.
    pub segment_bytes: u64,
}

impl<D: Domain> PopLog<D> {
    /// Reads the whole log anew and compares it with what is known of it. Empty if all is well.
    /// Appends and truncation wait meanwhile.
    pub fn check(&self) -> Vec<Damage> {
        let _retained = write(self.pool.domain(), &self.retention);
        let writer = lock(self.pool.domain(), &self.writer);
        let mut problems = Vec::new();
        let mut problem = |what, position, segment: SegmentRef| {
            problems.push(Damage { what, position, pool_offset: segment.link().offset() });
        };
        match recovery::scan(&self.pool, self.header(), self.ordinary_bytes, self.spacing) {
            Err(damage) => problems.push(damage),
            Ok(scan) => {
                let segment = scan.current.segment;
                if scan.torn.is_some() || scan.successor.is_some() {
                    problem("an end that is not clean (I5)", scan.next, segment);
                }
                if scan.next != writer.next || scan.current.used_bytes != writer.current.used_bytes
                {
                    problem("acknowledged entries are missing (I1)", scan.next, segment);
                }
                let chain = scan.earlier.iter().map(|held| held.segment).chain([segment]);
                if !chain.eq(writer.segments().map(|held| held.segment)) {
                    problem("other segments than were linked (I7)", scan.next, segment);
                }
            }
        }
        for Spare { segment, .. } in &writer.spares {
            let data_bytes = segment.data_bytes(self.ordinary_bytes);
            let zero = entry::is_zero(recovery::data(&self.pool, *segment, 0, data_bytes));
            if !zero || self.pool.at(segment.link()).next.load(self.pool.domain()) != 0 {
                let what = "a spare segment that is not zero (I3)";
                let pool_offset = segment.link().offset();
                problems.push(Damage { what, position: writer.next, pool_offset });
            }
        }
        problems
    }

    /// What the log holds.
    pub fn statistics(&self) -> Statistics {
        let writer = lock(self.pool.domain(), &self.writer);
        let used: usize = writer.segments().map(|held| held.used_bytes).sum();
        let segments = writer.segments().map(|held| held.segment);
        let spares = writer.spares.iter().map(|spare| spare.segment);
        let bytes = segments.chain(spares).map(|segment| segment.block_bytes(self.ordinary_bytes));
        Statistics {
            entries: writer.next.number() - writer.start.position.number(),
            entry_bytes: (used - writer.start.data_offset) as u64,
            segments: writer.earlier.len() + 1,
            spare_segments: writer.spares.len(),
            segment_bytes: bytes.sum::<usize>() as u64,
        }
    }

    /// Visits every block of the log: the root, the segments as they are linked in the pool, and
    /// the spares. Nobody may append or truncate meanwhile.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        let writer = lock(self.pool.domain(), &self.writer);
        let domain = self.pool.domain();
        if !visitor.visit(self.root, size_of::<PopLogRoot>()) {
            return;
        }
        let mut segment = self.header().start(domain).segment;
        while !segment.is_null()
            && visitor.visit(segment.link(), segment.block_bytes(self.ordinary_bytes))
        {
            segment = SegmentRef::from_bits(self.pool.at(segment.link()).next.load(domain));
        }
        for Spare { segment, .. } in &writer.spares {
            visitor.visit(segment.link(), segment.block_bytes(self.ordinary_bytes));
        }
    }
}
