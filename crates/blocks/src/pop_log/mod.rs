//! PopLog: a write-ahead log with one persistency barrier per append.
//!
//! After "PopLog" of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks for
//! persistent memory: How to get the most out of your new memory?*, The VLDB Journal 29 (2020),
//! section 3.3. A log that persists an entry and then something that says the entry is there pays
//! for two barriers. PopLog writes into zeroed memory and stores with each entry how many of its
//! bits are set; whether all of it has persisted can be told from the entry alone.
//!
//! # Layout
//!
//! ```text
//!  PopLogRoot (128 bytes, two lines; the caller publishes it)
//!     0   8  magic            "LAPISPOP"
//!     8   8  format_version   1
//!    16   8  segment_bytes    of an ordinary segment, header included
//!    24   8  spare_segments   how many recycled segments are kept at most
//!    32   8  checksum         CRC-32C of bytes 0..32
//!    40  24  reserved, zero
//!    64  48  starts           2 of: segment (8), position (8), data offset (8)
//!   112   8  start_selector   bit 0: which of the two counts
//!   120   8  reserved, zero
//!
//!  segments, from the one that the start names to the current one
//!  +----------------+-------+---------+-----------+       +----------------+-------+------
//!  | next (8), zero | entry | entry   |  zero     |       | next = 0, zero | entry | zero
//!  |    64 bytes    |       |         |           |       |                |       |
//!  +---|------------+-------+---------+-----------+       +----------------+-------+------
//!      +------------------------------------------- … --->
//!
//!  entry (starts on a line)
//!     0   4  length           of the payload in bytes, 1 to 64 Mi  \  one word: "seal"
//!     4   4  ones             bits set in bytes 0..4 and 8..       /
//!     8   4  position         low half of the entry's position     \  one word: "identity"
//!    12   4  crc              CRC-32C of position, length, payload /
//!    16   n  payload
//!  16+n      zero to the end of the line, so that no line is persisted twice in a row
//! ```
//!
//! An entry lies in one segment. If it does not fit behind the last one, the rest of the segment
//! stays zero and the entry starts the next. One that is larger than an ordinary segment gets a
//! segment of its own of as many 64 KiB chunks as it needs (what is over is used for the entries
//! that follow): spanning would break the payload in pieces that no reader could borrow, and save
//! nothing, because such a segment is given back whole.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. An acknowledged entry is durable, all its lines and the link that leads to its segment.
//! * I2. No line of an entry is written again until the entry has been truncated, durably.
//! * I3. A segment is zero, durably, its header included, before anything refers to it.
//! * I4. Everything behind the last acknowledged entry, up to the end of its segment, is zero, but
//!   for the one entry that is being appended, each bit of which is either zero or as it will be.
//!   Or that entry is in a segment behind this one, linked for it; then what is behind the
//!   last acknowledged entry in its own segment is all zero. `next` of the last segment is null.
//! * I5. Appends start from a clean end: open zeroes a torn entry and unlinks a segment that
//!   was linked for one, durably, before it returns.
//! * I6. The start is the old one or the new one, never a mixture, and segments before it are
//!   recycled only when it is durable.
//! * I7. Every segment is reachable from the root, or was allocated, or truncated, since the pool
//!   was opened. The latter are given back when the log is closed, or found by the pool's trace
//!   after a crash; so nothing leaks.
//!
//! # Why counting bits is enough
//!
//! Let the memory of an entry be zero, durably (I3, I4, I5), and be stored to once per byte. Whatever
//! subset of those stores persists, by aligned eight bytes or in any other grain, by flush or
//! eviction and in any order, each bit that is one in memory is one in the entry. Therefore memory
//! holds the entry if and only if it holds as many ones as the entry. That is exact: no torn state
//! passes, and no whole one is refused. It remains to know that number, and where to count:
//!
//! * Length and count share the seal, an aligned word, which persists whole or not at all. Not at
//!   all: it is zero, and since a length is never zero, no entry is seen. Whole: both are right,
//!   and the ones are counted in exactly the bytes that the writer counted. There is no state in
//!   which the count has persisted and the length has not.
//! * The other header word is counted like payload. A position or CRC that did not persist lacks
//!   its ones; one without ones (zero) is the same persisted or not.
//! * So is a payload of zeroes: memory holds it before it is written. If the seal and the identity
//!   have persisted, the entry is there, whole, whatever was flushed.
//! * An entry that is not the last acknowledged one was durable before the next was begun (one
//!   fence per append, appends take turns) and is not written since (I2): what it was then it is
//!   now. A torn entry can only be the last; I5 sees to that across crashes: would an append
//!   overwrite a torn entry, bits of the older could make up for missing bits of the newer; would
//!   it leave one behind, later entries might be taken for its remains. A payload that looks
//!   like an entry is never taken for one: its bytes belong to an entry that was whole, or are zeroed.
//!
//! # Why there is a CRC as well
//!
//! Counting proves that nothing is missing, provided the memory does what it says. A medium that
//! flips bits may keep the count. The CRC finds that, with probability, as the count finds tearing,
//! with certainty. Together they tell the two apart, which neither can alone: fewer ones than
//! counted at the very end of the log is a crash, and the entry was never acknowledged; anything
//! else that does not match is damage, and is reported ([`LogError::Damaged`]) and never taken
//! for the end of the log. What remains: damage that only clears bits, in the last entry, looks like
//! a tear.
//!
//! # Recycling
//!
//! Truncated segments of ordinary size become spares, up to a limit; the others are freed. A spare
//! is zeroed past the caches and fenced when it is truncated, and not linked from anywhere until an
//! append needs it (I3). So old entries cannot come back, and should a zero ever be lost,
//! their positions are of the past and they are refused.
//!
//! # Order of stores, and cost
//!
//! * Append: entry stored; its lines flushed; fence. As many flushes as the entry has lines.
//! * Append that needs a segment, and there is a spare: link stored, its line flushed; then as
//!   above, one fence for both: a link without the entry leads to a segment of zeroes, an entry
//!   without the link does not exist. No spare: before that, a block is allocated, zeroed, fenced.
//! * Truncate: the start that does not count stored, then the selector, all in one line in order
//!   (rule R2 of [`lapis_pmem::domain`]); flush; fence. If segments are recycled: zeroed; fence.
//! * Open: reads all entries; what it read last flushed, torn entry zeroed, link to an unfinished
//!   segment cleared and flushed; one fence. Each of these alone leaves a state that open reads as
//!   the same entries, so a crash in between does no harm.

mod entry;
mod layout;
mod reader;
mod recovery;
mod segment;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use lapis_pmem::{Committed, Domain, InFlight, LINE_BYTES, Link, Owned, Pool, Tracer};
use parking_lot::{Mutex, RwLock};

use crate::log::{Damage, LARGEST_ENTRY_BYTES, LogError, Position};

pub use entry::{count_ones, write_entry};
pub use layout::{ENTRY_HEADER_BYTES, PopLogRoot};
use layout::{FORMAT_VERSION, MAGIC, SEGMENT_HEADER_BYTES, Segment, SegmentRef, Start};
pub use reader::Iter;
use recovery::Held;
use segment::Spare;

/// The smallest ordinary segment.
pub const SMALLEST_SEGMENT_BYTES: usize = 4096;
/// The largest ordinary segment.
pub const LARGEST_SEGMENT_BYTES: usize = 1 << 30;

/// How to lay out a new log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopLogOptions {
    /// Bytes of an ordinary segment, its header line included: a multiple of 64 from
    /// [`SMALLEST_SEGMENT_BYTES`] to [`LARGEST_SEGMENT_BYTES`].
    pub segment_bytes: usize,
    /// How many truncated segments are kept for reuse; more go back to the pool.
    pub spare_segments: usize,
}

impl Default for PopLogOptions {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, spare_segments: 2 }
    }
}

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

/// A log in a pool. See the [module documentation](self).
///
/// All methods may be called from several threads; appends take turns.
#[derive(Debug)]
pub struct PopLog<D: Domain> {
    pool: Arc<Pool<D>>,
    root: Link<PopLogRoot>,
    ordinary_bytes: usize,
    spare_limit: usize,
    /// Taken before `writer`. Shared by readers of entries, exclusive while segments go away.
    retention: RwLock<()>,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    start: Start,
    /// Segments before the current one, oldest first.
    earlier: VecDeque<Held>,
    current: Held,
    /// Bytes for entries in the current segment.
    data_bytes: usize,
    /// The position of the next entry.
    next: Position,
    spares: Vec<Spare>,
}

impl Writer {
    /// The segment that the entry at `position` is in, or will be if it fits.
    fn holding(&self, position: Position) -> Held {
        if position >= self.current.first {
            return self.current;
        }
        let after = self.earlier.partition_point(|held| held.first <= position);
        self.earlier[after.saturating_sub(1)]
    }

    fn segments(&self) -> impl Iterator<Item = Held> + '_ {
        self.earlier.iter().copied().chain([self.current])
    }
}

fn check_segment_bytes(segment_bytes: usize) -> Result<(), LogError> {
    if !segment_bytes.is_multiple_of(LINE_BYTES)
        || !(SMALLEST_SEGMENT_BYTES..=LARGEST_SEGMENT_BYTES).contains(&segment_bytes)
    {
        return Err(LogError::BadSegmentSize {
            segment_bytes,
            smallest_bytes: SMALLEST_SEGMENT_BYTES,
            largest_bytes: LARGEST_SEGMENT_BYTES,
        });
    }
    Ok(())
}

impl<D: Domain> PopLog<D> {
    /// Lays out an empty log. It is durable with the caller's next fence; then the caller publishes
    /// it where he likes and calls [`PopLog::open`] with its link. No fence but the allocator's.
    ///
    /// # Errors
    /// [`LogError::BadSegmentSize`], [`LogError::Full`].
    pub fn create(
        pool: &Pool<D>,
        options: PopLogOptions,
    ) -> Result<Owned<'_, D, PopLogRoot, InFlight>, LogError> {
        check_segment_bytes(options.segment_bytes)?;
        let domain = pool.domain();
        // I3: unlike in `extend` one fence may cover the segment and the reference to it, since
        // nothing refers to the root yet.
        let segment = pool
            .allocate_with_tail::<Segment>(options.segment_bytes - SEGMENT_HEADER_BYTES)?
            .zero_nontemporal();
        let mut root = pool.allocate::<PopLogRoot>()?;
        root.zero();
        root.magic.store(domain, MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.segment_bytes.store(domain, options.segment_bytes as u64);
        root.spare_segments.store(domain, options.spare_segments as u64);
        root.checksum.store(domain, root.expected_checksum(domain));
        root.starts[0].position.store(domain, Position::FIRST.number());
        root.link_child(|root| &root.starts[0].segment, segment);
        Ok(root.flush())
    }

    /// Opens the log at `root`, after a crash or not: reads all of it, finds the end of what was
    /// acknowledged (an entry that was being appended at the crash is there if all of it had
    /// persisted) and makes the end clean. One fence. One log may be open on a root at a time.
    ///
    /// # Errors
    /// [`LogError::NotALog`], [`LogError::NewerVersion`], [`LogError::Damaged`]: nothing was
    /// written. [`LogError::Fault`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<PopLogRoot>) -> Result<Self, LogError> {
        let not_a_log = LogError::NotALog { pool_offset: root.offset() };
        let Some(header) = pool.try_at(root) else { return Err(not_a_log) };
        let domain = pool.domain();
        if !root.offset().is_multiple_of(LINE_BYTES as u64) || header.magic.load(domain) != MAGIC {
            return Err(not_a_log);
        }
        let found = header.format_version.load(domain);
        if found > FORMAT_VERSION {
            return Err(LogError::NewerVersion { found, supported: FORMAT_VERSION });
        }
        let ordinary_bytes = header.segment_bytes.load(domain) as usize;
        if header.checksum.load(domain) != header.expected_checksum(domain)
            || found == 0
            || check_segment_bytes(ordinary_bytes).is_err()
        {
            return Err(LogError::Damaged(Damage {
                what: "a root with a wrong checksum or impossible sizes",
                position: Position::FIRST,
                pool_offset: root.offset(),
            }));
        }
        let scan = recovery::scan(&pool, header, ordinary_bytes).map_err(LogError::Damaged)?;
        scan.repair(&pool, header);
        domain.health()?;
        if let Some(successor) = scan.successor {
            let unlinked = Committed::nothing_to_do(); // `repair` has fenced.
            segment::free(&pool, successor, ordinary_bytes, unlinked);
        }
        let writer = Writer {
            start: header.start(domain),
            earlier: scan.earlier.into(),
            current: scan.current,
            data_bytes: scan.current.segment.data_bytes(ordinary_bytes),
            next: scan.next,
            spares: Vec::new(),
        };
        let spare_limit = header.spare_segments.load(domain) as usize;
        Ok(Self {
            root,
            ordinary_bytes,
            spare_limit,
            retention: RwLock::new(()),
            writer: Mutex::new(writer),
            pool,
        })
    }

    /// The pool the log lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// The root the log was opened with.
    pub fn root(&self) -> Link<PopLogRoot> {
        self.root
    }

    fn header(&self) -> &PopLogRoot {
        self.pool.at(self.root)
    }

    /// Appends an entry. It is durable on return. One fence; one flush per line of the entry
    /// (payload and [`ENTRY_HEADER_BYTES`]). Once per segment one flush more, and if there is no
    /// spare segment also a fence and what the allocation costs.
    ///
    /// # Errors
    /// [`LogError::EmptyEntry`], [`LogError::EntryTooLarge`], [`LogError::Full`]: nothing was
    /// appended. [`LogError::Fault`].
    #[inline]
    pub fn append(&self, payload: &[u8]) -> Result<Position, LogError> {
        self.append_parts(&[payload])
    }

    /// Appends one entry whose payload is `parts` end to end. As [`PopLog::append`].
    ///
    /// # Errors
    /// As [`PopLog::append`].
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, LogError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length == 0 {
            return Err(LogError::EmptyEntry);
        }
        if length > LARGEST_ENTRY_BYTES {
            return Err(LogError::EntryTooLarge { asked_bytes: length });
        }
        let bytes = layout::entry_bytes(length);
        let domain = self.pool.domain();
        let mut writer = self.writer.lock();
        if bytes > writer.data_bytes - writer.current.used_bytes {
            self.extend(&mut writer, bytes)?;
        }
        let Held { segment, used_bytes, .. } = writer.current;
        let position = writer.next;
        let destination = layout::address(&self.pool, segment.pool_offset(used_bytes));
        // SAFETY: `bytes` bytes from there are in the segment (just checked, or extended), start on
        // a line and are zero (I4); the lock keeps other writers away, and readers stay before
        // `used_bytes`.
        unsafe { write_entry(domain, destination, position, length, parts) };
        // I1: the entry, and the link to its segment if that is new.
        domain.fence();
        writer.current.used_bytes = used_bytes + bytes;
        writer.next = position.next();
        drop(writer);
        domain.health()?;
        Ok(position)
    }

    /// Links a segment with room for an entry of `bytes` behind the current one. The link is
    /// flushed; the fence of the append makes it durable.
    #[cold]
    fn extend(&self, writer: &mut Writer, bytes: usize) -> Result<(), LogError> {
        writer.earlier.reserve(1);
        let ordinary_suffices = SEGMENT_HEADER_BYTES + bytes <= self.ordinary_bytes;
        let spare = if ordinary_suffices { writer.spares.pop() } else { None };
        let segment = match spare {
            Some(spare) => spare.segment,
            None => segment::allocate(&self.pool, self.ordinary_bytes, bytes)?,
        };
        let last = self.pool.at(writer.current.segment.link());
        // I3 holds for `segment`. I4: from here on the entry is in the segment behind.
        let _shared_fence = last.next.publish(self.pool.domain(), segment.bits()).flush();
        let next = Held { segment, first: writer.next, used_bytes: 0 };
        writer.earlier.push_back(mem::replace(&mut writer.current, next));
        writer.data_bytes = segment.data_bytes(self.ordinary_bytes);
        Ok(())
    }

    /// Stocks spare segments up to the limit that the log was created with, so that appends find
    /// them ready: for whoever cannot bear an append that allocates and zeroes one.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::Fault`]; spares that were had until then are kept.
    pub fn prepare_spares(&self) -> Result<(), LogError> {
        let _retained = self.retention.write();
        while self.writer.lock().spares.len() < self.spare_limit {
            let segment = segment::allocate(&self.pool, self.ordinary_bytes, LINE_BYTES)?;
            let spare = Spare { segment, unlinked: Committed::nothing_to_do() };
            self.writer.lock().spares.push(spare);
        }
        Ok(self.pool.domain().health()?)
    }

    /// The position of the oldest retained entry; equal to [`PopLog::end`] if there is none.
    pub fn start(&self) -> Position {
        self.writer.lock().start.position
    }

    /// The position that the next entry will have.
    pub fn end(&self) -> Position {
        self.writer.lock().next
    }

    /// Drops every entry before `up_to`, which becomes the oldest retained one; `truncate(end())`
    /// drops all. Durable on return; nothing happens if the entries are gone already. Appends and
    /// truncation go on side by side.
    ///
    /// Cost: one flush and one fence. If whole segments become free, the zeroing of those that are
    /// kept as spares and one fence more, and what the allocator needs to take back the others.
    ///
    /// # Errors
    /// [`LogError::BeyondEnd`], [`LogError::Fault`].
    pub fn truncate(&self, up_to: Position) -> Result<Committed, LogError> {
        let _exclusive = self.retention.write();
        let (old, held) = {
            let writer = self.writer.lock();
            if up_to > writer.next {
                return Err(LogError::BeyondEnd { asked: up_to, end: writer.next });
            }
            if up_to <= writer.start.position {
                return Ok(Committed::nothing_to_do());
            }
            (writer.start, writer.holding(up_to))
        };
        let (mut at, mut data_offset) = if held.segment == old.segment {
            (old.position, old.data_offset)
        } else {
            (held.first, 0)
        };
        while at < up_to {
            data_offset += entry::whole_entry_bytes(&self.pool, held.segment, data_offset);
            at = at.next();
        }
        let start = Start { segment: held.segment, position: up_to, data_offset };
        let unlinked = self.persist_start(start);
        self.pool.domain().health()?;
        let (dropped, room) = {
            let mut writer = self.writer.lock();
            writer.start = start;
            let count =
                writer.earlier.iter().take_while(|held| held.segment != start.segment).count();
            let dropped: Vec<Held> = writer.earlier.drain(..count).collect();
            (dropped, self.spare_limit.saturating_sub(writer.spares.len()))
        };
        self.recycle(dropped, room, unlinked);
        Ok(unlinked)
    }

    /// I6: all in one line, the selector last, so that what it selects is there whenever it is.
    fn persist_start(&self, start: Start) -> Committed {
        let (header, domain) = (self.header(), self.pool.domain());
        let selector = header.start_selector.load(domain).wrapping_add(1);
        let record = &header.starts[(selector & 1) as usize];
        record.segment.word().store_ordered(domain, start.segment.bits());
        record.position.store_ordered(domain, start.position.number());
        record.data_offset.store_ordered(domain, start.data_offset as u64);
        header.start_selector.publish(domain, selector).persist()
    }

    /// Makes spares of up to `room` segments and frees the others. The writer's lock is not held.
    fn recycle(&self, dropped: Vec<Held>, room: usize, unlinked: Committed) {
        let mut spares = Vec::new();
        for Held { segment, .. } in dropped {
            if segment.is_ordinary() && spares.len() < room {
                // SAFETY: behind the start, durably (`unlinked`); readers are locked out, and
                // the writer knows it no more.
                unsafe { segment::zero(&self.pool, segment, self.ordinary_bytes) };
                spares.push(Spare { segment, unlinked });
            } else {
                segment::free(&self.pool, segment, self.ordinary_bytes, unlinked);
            }
        }
        if !spares.is_empty() {
            // I3. Here, not at the append that takes the spare: that may be another thread's.
            self.pool.domain().fence();
            self.writer.lock().spares.append(&mut spares);
        }
    }

    /// The retained entries, oldest first.
    pub fn iter(&self) -> Iter<'_, D> {
        Iter::new(self)
    }

    /// Reads the whole log anew and compares it with what is known of it. Empty if all is well.
    /// Appends and truncation wait meanwhile.
    pub fn check(&self) -> Vec<Damage> {
        let _retained = self.retention.write();
        let writer = self.writer.lock();
        let mut problems = Vec::new();
        let mut problem = |what, position, segment: SegmentRef| {
            problems.push(Damage { what, position, pool_offset: segment.link().offset() });
        };
        match recovery::scan(&self.pool, self.header(), self.ordinary_bytes) {
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
        let writer = self.writer.lock();
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
    pub fn trace(&self, tracer: &mut Tracer<'_, D>) {
        let writer = self.writer.lock();
        let domain = self.pool.domain();
        if !tracer.visit(self.root, size_of::<PopLogRoot>()) {
            return;
        }
        let mut segment = self.header().start(domain).segment;
        while !segment.is_null()
            && tracer.visit(segment.link(), segment.block_bytes(self.ordinary_bytes))
        {
            segment = SegmentRef::from_bits(self.pool.at(segment.link()).next.load(domain));
        }
        for Spare { segment, .. } in &writer.spares {
            tracer.visit(segment.link(), segment.block_bytes(self.ordinary_bytes));
        }
    }
}

impl<D: Domain> Drop for PopLog<D> {
    fn drop(&mut self) {
        // I7: nothing durable refers to them.
        for Spare { segment, unlinked } in self.writer.get_mut().spares.drain(..) {
            segment::free(&self.pool, segment, self.ordinary_bytes, unlinked);
        }
    }
}
