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
//!    32   8  placement        0 dense, 1 padded, 2 streamed
//!    40   8  checksum         CRC-32C of bytes 0..40
//!    48  16  reserved, zero
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
//!  entry (starts on a line, if padded; else on a multiple of 8)
//!     0   4  length           of the payload in bytes, 1 to 64 Mi  \  one word: "seal"
//!     4   4  ones             bits set in bytes 0..4 and 8..       /
//!     8   4  position         low half of the entry's position     \  one word: "identity"
//!    12   4  crc              CRC-32C of position, length, payload /
//!    16   n  payload
//!  16+n      zero: padded, to the end of the line; dense, to the next multiple of 8; streamed, to the
//!            end of the line if another entry as long would not fit into what is left of it
//! ```
//!
//! Padded entries persist no line twice in a row. Nor do streamed ones, but for those that share a
//! line whole, and that line is not loaded again: a copy of it is kept in DRAM, and lines are written
//! past the caches, whole. Dense ones take the least space.
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
//! * I2. No byte of an entry changes until the entry has been truncated, durably. (Where entries
//!   share a line, it is written again with what it holds.)
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
//!   was opened. The latter are given back when the log is closed, or found not to be reachable
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
//! a tear; a header in the last segment that is zero as a whole, of any entry, looks like one that
//! never persisted, and what is behind it goes with it; the start has no checksum of its own; and a
//! link that comes to lead to an unused block as large as a segment looks like one whose entry has
//! not persisted. One that leads anywhere else is refused: open asks the allocator.
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
//! * Append: entry stored; its lines flushed; fence. As many flushes as the entry has lines. Streamed:
//!   its lines written past the caches; fence.
//! * Append that needs a segment, and there is a spare: link stored, its line flushed; then as
//!   above, one fence for both: a link without the entry leads to a segment of zeroes, an entry
//!   without the link does not exist. No spare: before that, a block is allocated, zeroed, fenced.
//! * Truncate: the start that does not count stored, then the selector, all in one line in order
//!   (rule R2 of [`lapis_pmem::domain`]); flush; fence. If segments are recycled: zeroed; fence.
//! * Open: reads all entries; what it read last flushed (streamed: stored once more before), torn
//!   entry zeroed, link to an unfinished segment cleared and flushed; one fence. Each of these alone
//!   leaves a state that open reads as the same entries, so a crash in between does no harm.

mod entry;
mod inspection;
mod layout;
mod log_trait;
pub mod mutants;
mod reader;
mod recovery;
mod retention;
mod segment;

use crate::declaration::{Declaration, LogRun};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use lapis_pmem::host_lock::lock;
use lapis_pmem::{Domain, InFlight, LINE_BYTES, Link, Owned, Pool, SoleUse};
use parking_lot::{Mutex, RwLock};

use crate::log::{Damage, LARGEST_ENTRY_BYTES, LogError, Placement, Position};
use crate::pop_ring::Pop;
use crate::ring_log::{LineBuffer, Sink};
use crate::spacing::{Spacing, placement_of, placement_word};

pub use crate::set_bits::count_ones;
pub use entry::write_entry;
pub use inspection::Statistics;
pub use layout::{ENTRY_HEADER_BYTES, PopLogRoot};
use layout::{FORMAT_VERSION, MAGIC, SEGMENT_HEADER_BYTES, Segment, Start};
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
    /// How entries lie with respect to lines.
    pub placement: Placement,
}

impl Default for PopLogOptions {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, spare_segments: 2, placement: Placement::Padded }
    }
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
    placement: Placement,
    spacing: Spacing,
    /// Taken before `writer`. Shared by readers of entries, exclusive while segments go away.
    retention: RwLock<()>,
    writer: Mutex<Writer>,
    _alone: SoleUse<D>,
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
    /// The line that the last entry ends in, if entries are streamed.
    line: LineBuffer,
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
        root.placement.store(domain, placement_word(options.placement));
        root.checksum.store(domain, root.expected_checksum(domain));
        root.starts[0].position.store(domain, Position::FIRST.number());
        root.link_child(|root| &root.starts[0].segment, segment);
        Ok(root.flush())
    }

    /// Opens the log at `root`, after a crash or not: reads all of it, finds the end of what was
    /// acknowledged (an entry that was being appended at the crash is there if all of it had
    /// persisted) and makes the end clean. One fence.
    ///
    /// # Errors
    /// [`LogError::NotALog`], [`LogError::NewerVersion`], [`LogError::InUse`], [`LogError::Damaged`]:
    /// nothing was written. [`LogError::Fault`].
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
        let alone = pool.sole_use(root).ok_or(LogError::InUse)?;
        let damaged = |what| {
            let (position, pool_offset) = (Position::FIRST, root.offset());
            LogError::Damaged(Damage { what, position, pool_offset })
        };
        let ordinary_bytes = header.segment_bytes.load(domain) as usize;
        if header.checksum.load(domain) != header.expected_checksum(domain)
            || found == 0
            || check_segment_bytes(ordinary_bytes).is_err()
        {
            return Err(damaged("a root with a wrong checksum or impossible sizes"));
        }
        let placement = placement_of(header.placement.load(domain))
            .ok_or(damaged("an unknown placement of entries"))?;
        let spacing = layout::spacing_of(placement);
        let scan =
            recovery::scan(&pool, header, ordinary_bytes, spacing).map_err(LogError::Damaged)?;
        let unlinked = scan.repair(&pool, header, placement);
        domain.health()?;
        if let Some(successor) = scan.successor {
            segment::free(&pool, successor, ordinary_bytes, unlinked);
        }
        let (end, data_bytes) =
            (scan.current.used_bytes, scan.current.segment.data_bytes(ordinary_bytes));
        let line = match placement {
            Placement::Streamed if !domain.commits(mutants::LINE_FORGOTTEN) => {
                let ring = segment::as_ring(&pool, scan.current.segment, data_bytes, spacing);
                LineBuffer::load::<D, Pop>(&ring, end as u64)
            }
            _ => LineBuffer::blank(),
        };
        let writer = Writer {
            start: header.start(domain),
            earlier: scan.earlier.into(),
            current: scan.current,
            data_bytes,
            next: scan.next,
            spares: Vec::new(),
            line,
        };
        let spare_limit = header.spare_segments.load(domain) as usize;
        Ok(Self {
            root,
            ordinary_bytes,
            spare_limit,
            placement,
            spacing,
            retention: RwLock::new(()),
            writer: Mutex::new(writer),
            _alone: alone,
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

    /// How its entries lie.
    pub fn placement(&self) -> Placement {
        self.placement
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
        let length = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        if length == 0 {
            return Err(LogError::EmptyEntry);
        }
        if length > LARGEST_ENTRY_BYTES {
            return Err(LogError::EntryTooLarge { asked_bytes: length });
        }
        let domain = self.pool.domain();
        let mut writer = lock(self.pool.domain(), &self.writer);
        let mut bytes = layout::entry_bytes(self.spacing, writer.current.used_bytes, length);
        if bytes > writer.data_bytes - writer.current.used_bytes {
            bytes = layout::entry_bytes(self.spacing, 0, length);
            self.extend(&mut writer, bytes)?;
        }
        let Held { segment, used_bytes, .. } = writer.current;
        let position = writer.next;
        if self.placement == Placement::Streamed {
            let ring = segment::as_ring(&self.pool, segment, writer.data_bytes, self.spacing);
            let line = Some(&mut writer.line);
            // SAFETY: `bytes` bytes from there are in the segment (just checked, or extended), and
            // zero (I4); the lock keeps other writers away, and readers stay before `used_bytes`,
            // where words are written with the value they have.
            let mut sink = unsafe { Sink::new(&ring, used_bytes as u64, line) };
            entry::stream_entry(&mut sink, self.spacing, position, length, parts);
        } else {
            let destination = layout::address(&self.pool, segment.pool_offset(used_bytes));
            // SAFETY: `bytes` bytes from there are in the segment (just checked, or extended), start
            // on a word and are zero (I4); the lock keeps other writers away, and readers stay
            // before `used_bytes`.
            unsafe { write_entry(domain, destination, position, length, parts) };
        }
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
        self.pool.domain().happens(match (ordinary_suffices, &spare) {
            (true, Some(_)) => "a spare segment is taken",
            (true, None) => "a segment is allocated",
            (false, _) => "a segment for one long entry",
        });
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
        writer.line = LineBuffer::blank();
        Ok(())
    }

    /// The position of the oldest retained entry; equal to [`PopLog::end`] if there is none.
    pub fn start(&self) -> Position {
        lock(self.pool.domain(), &self.writer).start.position
    }

    /// The position that the next entry will have.
    pub fn end(&self) -> Position {
        lock(self.pool.domain(), &self.writer).next
    }

    /// The retained entries, oldest first.
    pub fn iter(&self) -> Iter<'_, D> {
        Iter::new(self)
    }
}

pub(crate) const DECLARATION: Declaration<LogRun> = Declaration {
    name: "pop-log",
    // Streamed entries go through the sink of the logs in a ring.
    sources: &["blocks/src/pop_log", "blocks/src/ring_log/ring.rs"],
    mutants: mutants::CATALOGUE,
    runs: &[
        LogRun::new("pop-log:padded", Placement::Padded, 0).compared("pop-log", 1),
        LogRun::new("pop-log:dense", Placement::Dense, 0),
        LogRun::new("pop-log:streamed", Placement::Streamed, 0),
    ],
    operations: 200,
    persist_points: (200, 3),
};
