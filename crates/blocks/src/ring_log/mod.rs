//! What the logs in a ring have in common: [`RingLog`], of which
//! [`ClassicLog`](crate::classic_log::ClassicLog), [`HeaderLog`](crate::header_log::HeaderLog),
//! [`Rawl`](crate::rawl::Rawl) and [`PopRing`](crate::pop_ring::PopRing) are kinds. How an entry is written, and by what it is known to be
//! there, is in the modules of the kinds, with the source; here is the ring around it.
//!
//! # Layout
//!
//! ```text
//!  RingRoot (128 bytes, two lines; the caller publishes it)
//!     0   8  magic            of the kind
//!     8   8  format_version   1
//!    16   8  capacity_bytes   of the ring, a multiple of 64
//!    24   8  placement        0 dense, 1 padded, 2 streamed
//!    32   8  size_fields      of a header log, else 0
//!    40   8  checksum         CRC-32C of bytes 0..40
//!    48  16  reserved, zero
//!    64  48  starts           2 of: position (8), offset (8), limit (8)
//!   112   8  start_selector   bit 0: which of the two counts; bits 32..64: its CRC-32C
//!   120   8  reserved, zero
//!   128      size fields, a line each: see `header_log`
//!     …      ring, capacity_bytes
//!
//!  the stream, of which the ring shows one window:
//!                start.offset             end of the last entry    start.limit
//!  ──────────────┬───────┬───────┬────────┬────────────────────────┬──────────
//!     gone       │ entry │ entry │ entry  │  free                  │ not to be written yet
//!  ──────────────┴───────┴───────┴────────┴────────────────────────┴──────────
//!                byte `x` of the stream is byte `x mod capacity_bytes` of the ring
//! ```
//!
//! Offsets count bytes of the stream and grow for ever; entries may go over the end of the ring.
//! The header of an entry (`entry.rs`) has the low half of its position, its length, a CRC of the two and
//! one of the payload, so every flipped bit in an entry is found, in the header at once.
//!
//! # Invariants, at every instant a crash may come
//!
//! * G1. An acknowledged entry is durable, whole, with what says that it is there.
//! * G2. What says that an entry is there does not persist before the entry (the kinds: how).
//! * G3. Free space, from the end of the last acknowledged entry to `limit`, is as the kind wants it:
//!   zero (classic, pop), of the polarity of the pass before (RAWL), anything (header); but for the
//!   appends that are under way, each word of which is as it was or as it will be.
//! * G4. The start is the old one or the new one, never a mixture. `limit` is at most the capacity
//!   behind the line that the oldest entry is in, so that no line of an entry is written.
//! * G5. Appends start from a clean end: open restores G3 behind a torn append, durably, before it
//!   returns.
//! * G6. An entry that was begun before the one before it was known to be durable says so
//!   (`joined`). So where an entry is missing and a later one that is not joined is there, the
//!   missing one had been acknowledged: that is damage, and not a torn end.
//!
//! # Recovery
//!
//! It walks from the start. The first entry that is not whole is the end, if it can be: G6, an entry
//! of another position, a header that does not match its checksum, a payload that does not although
//! the kind says it is there, an entry that leaves the window, are [`LogError::Damaged`], and nothing
//! is written then. What remains: damage to the last entry that looks like a tear, and a header that is zero as a whole,
//! of any entry (a block of the medium that was lost and cleared): it looks like the end. The header log knows its end, and
//! has no such case.
//!
//! A log that the process left without a power cut is written back by the pool when it is opened
//! next (invariant H6 of the pool), so recovery sees only what is durable.
//!
//! # Order of stores, and cost
//!
//! * Append, or a batch of entries: bodies stored and flushed; fence. Then what the kind adds: see
//!   there.
//! * Truncate: start stored, in one line, in order; flush; fence. The classic and the pop log then zero
//!   what became free; fence; and store the start once more with the new limit; flush; fence.
//! * Open: nothing, if the end is clean. Else restores it; fence. The limit behind, as above.

mod append;
mod entry;
mod kind;
mod layout;
mod reader;
mod recovery;
mod retention;
mod ring;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use lapis_pmem::{
    BlockVisitor, Committed, Domain, InFlight, LINE_BYTES, Link, Owned, Pool, SoleUse,
};
use parking_lot::{Mutex, RwLock};

use crate::log::{
    Damage, Layout, Log, LogError, LogStatistics, Placement, Position, forward_to_own_methods,
};
use crate::spacing::{Spacing, placement_of, placement_word};

pub use entry::ENTRY_HEADER_BYTES;
pub use kind::RingKind;
pub use layout::{LARGEST_CAPACITY_BYTES, MOST_SIZE_FIELDS, RingRoot, SMALLEST_CAPACITY_BYTES};
pub use reader::Iter;

pub(crate) use append::{Append, payload_bytes, write_footer};
pub(crate) use entry::{Head, Parsed};
pub(crate) use kind::{Entry, Seen, after_body, pad_behind, sealed, write_words, zero_dirty};
pub(crate) use ring::{LineBuffer, Ring, Sink};

use layout::{Size, SizeField, Start};

/// The format that this code writes, and the only one it reads.
const FORMAT_VERSION: u64 = 1;

/// A log in a ring of fixed size, of the kind `S`. See the [module documentation](self).
#[derive(Debug)]
pub struct RingLog<D: Domain, K: RingKind> {
    pool: Arc<Pool<D>>,
    root: Link<RingRoot>,
    placement: Placement,
    pub(crate) spacing: Spacing,
    pub(crate) capacity: u64,
    pub(crate) size_fields: usize,
    /// Taken before `writer`. Shared by readers of entries, exclusive while entries go away.
    retention: RwLock<()>,
    pub(crate) writer: Mutex<Writer>,
    kind: PhantomData<fn() -> K>,
    _alone: SoleUse<D>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) start: Start,
    /// Behind the last entry.
    pub(crate) tail: u64,
    /// The position of the next entry.
    pub(crate) next: Position,
    /// The size field that is written next.
    pub(crate) next_size: usize,
    /// The line at `tail`, if entries are streamed.
    line: LineBuffer,
}

fn spacing_of<K: RingKind>(placement: Placement) -> Spacing {
    match placement {
        Placement::Dense => Spacing::None,
        Placement::Padded => Spacing::Lines,
        Placement::Streamed => K::STREAMED,
    }
}

fn check_options<K: RingKind>(options: Layout) -> Result<(), LogError> {
    let Layout { bytes: capacity_bytes, size_fields, .. } = options;
    if !capacity_bytes.is_multiple_of(LINE_BYTES)
        || !(SMALLEST_CAPACITY_BYTES..=LARGEST_CAPACITY_BYTES).contains(&capacity_bytes)
    {
        return Err(LogError::BadCapacity {
            capacity_bytes,
            smallest_bytes: SMALLEST_CAPACITY_BYTES,
            largest_bytes: LARGEST_CAPACITY_BYTES,
        });
    }
    if K::SIZED && !(1..=MOST_SIZE_FIELDS).contains(&size_fields) {
        return Err(LogError::BadSizeFields { size_fields, most: MOST_SIZE_FIELDS });
    }
    Ok(())
}

impl<D: Domain, K: RingKind> RingLog<D, K> {
    /// Lays out an empty log. It is durable with the caller's next fence; then the caller publishes
    /// it where he likes and calls [`RingLog::open`] with its link. No fence but the allocator's.
    ///
    /// # Errors
    /// [`LogError::BadCapacity`], [`LogError::BadSizeFields`], [`LogError::Full`].
    pub fn create(
        pool: &Pool<D>,
        options: Layout,
    ) -> Result<Owned<'_, D, RingRoot, InFlight>, LogError> {
        check_options::<K>(options)?;
        let domain = pool.domain();
        let size_fields = if K::SIZED { options.size_fields } else { 0 };
        let sizes_bytes = size_fields * size_of::<SizeField>();
        let mut root = pool.allocate_with_tail::<RingRoot>(sizes_bytes + options.bytes)?;
        debug_assert!(root.link().offset().is_multiple_of(LINE_BYTES as u64));
        root.magic.store(domain, K::MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.capacity_bytes.store(domain, options.bytes as u64);
        root.placement.store(domain, placement_word(options.placement));
        root.size_fields.store(domain, size_fields as u64);
        root.checksum.store(domain, root.expected_checksum(domain));
        let limit = options.bytes as u64;
        root.init_start(domain, Start { position: Position::FIRST, offset: 0, limit });
        for word in root.reserved.iter().chain([&root.starts[1].position]) {
            word.store(domain, 0);
        }
        for word in [&root.starts[1].offset, &root.starts[1].limit, &root.reserved_start] {
            word.store(domain, 0);
        }
        let mut size = [0; LINE_BYTES];
        size[..8].copy_from_slice(&Size::of(0).0.to_ne_bytes());
        for field in 0..size_fields {
            root.write_tail_nontemporal(field * LINE_BYTES, &size);
        }
        if K::BLANK {
            const ZEROES: [u8; 4096] = [0; 4096];
            let mut done = 0;
            while done < options.bytes {
                let step = ZEROES.len().min(options.bytes - done);
                // G3: an allocated block holds anything.
                root.write_tail_nontemporal(sizes_bytes + done, &ZEROES[..step]);
                done += step;
            }
        }
        Ok(root.flush_head())
    }

    /// Opens the log at `root`, after a crash or not: reads all of it, finds the end of what was
    /// acknowledged (what was being appended at the crash is there if all of it had persisted) and
    /// makes the end clean. No fence if it is.
    ///
    /// # Errors
    /// [`LogError::NotALog`], [`LogError::NewerVersion`], [`LogError::InUse`], [`LogError::Damaged`]:
    /// nothing was written. [`LogError::Fault`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<RingRoot>) -> Result<Self, LogError> {
        let not_a_log = LogError::NotALog { pool_offset: root.offset() };
        let Some(header) = pool.try_at(root) else { return Err(not_a_log) };
        let domain = pool.domain();
        if !root.offset().is_multiple_of(LINE_BYTES as u64) || header.magic.load(domain) != K::MAGIC
        {
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
        let options = Layout {
            bytes: header.capacity_bytes.load(domain) as usize,
            placement: placement_of(header.placement.load(domain))
                .ok_or(damaged("an unknown placement of entries"))?,
            size_fields: header.size_fields.load(domain) as usize,
        };
        let checksum = header.checksum.load(domain);
        if checksum != header.expected_checksum(domain)
            || found == 0
            || check_options::<K>(options).is_err()
            || (!K::SIZED && options.size_fields != 0)
        {
            return Err(damaged("a root with a wrong checksum or impossible sizes"));
        }
        let bytes =
            size_of::<RingRoot>() + options.size_fields * size_of::<SizeField>() + options.bytes;
        if root.offset() as usize + bytes > pool.region().mapped_bytes() {
            return Err(damaged("a ring that leaves the pool"));
        }
        let start = header.start(domain).ok_or(damaged("a start with a wrong checksum"))?;
        let capacity = options.bytes as u64;
        let mut log = Self {
            root,
            placement: options.placement,
            spacing: spacing_of::<K>(options.placement),
            capacity,
            size_fields: options.size_fields,
            retention: RwLock::new(()),
            writer: Mutex::new(Writer {
                start,
                tail: start.offset,
                next: start.position,
                next_size: 0,
                line: LineBuffer::blank(),
            }),
            kind: PhantomData,
            _alone: alone,
            pool,
        };
        log.recover().map_err(LogError::Damaged)?;
        log.pool.domain().health()?;
        Ok(log)
    }

    /// The pool the log lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// The root the log was opened with.
    pub fn root(&self) -> Link<RingRoot> {
        self.root
    }

    /// How its entries lie.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    fn header(&self) -> &RingRoot {
        self.pool.at(self.root)
    }

    pub(crate) fn ring(&self) -> Ring<'_, D> {
        let head = size_of::<RingRoot>() + self.size_fields * size_of::<SizeField>();
        Ring {
            pool: &self.pool,
            data: self.root.offset() + head as u64,
            capacity: self.capacity,
            spacing: self.spacing,
        }
    }

    pub(crate) fn size_field(&self, index: usize) -> &SizeField {
        let offset = size_of::<RingRoot>() + index * size_of::<SizeField>();
        self.pool.at(Link::from_bits(self.root.offset() + offset as u64))
    }

    /// Appends an entry. It is durable on return. For the cost see the module of the kind.
    ///
    /// # Errors
    /// [`LogError::EmptyEntry`], [`LogError::EntryTooLarge`], [`LogError::LargerThanLog`],
    /// [`LogError::NoRoom`]: nothing was appended. [`LogError::Fault`].
    #[inline]
    pub fn append(&self, payload: &[u8]) -> Result<Position, LogError> {
        self.append_parts(&[payload])
    }

    /// Appends one entry whose payload is `parts` end to end.
    ///
    /// # Errors
    /// As [`RingLog::append`].
    #[inline]
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, LogError> {
        Ok(self.append_group(std::iter::once(parts))?.start)
    }

    /// Appends several entries for the barriers of one: see [`Log::append_batch`].
    ///
    /// # Errors
    /// As [`RingLog::append`]; nothing was appended then.
    pub fn append_batch(&self, payloads: &[&[u8]]) -> Result<Range<Position>, LogError> {
        self.append_group(payloads.iter().map(std::slice::from_ref))
    }

    /// The position of the oldest retained entry; equal to [`RingLog::end`] if there is none.
    pub fn start(&self) -> Position {
        self.writer.lock().start.position
    }

    /// The position that the next entry will have.
    pub fn end(&self) -> Position {
        self.writer.lock().next
    }

    /// The retained entries, oldest first.
    pub fn iter(&self) -> Iter<'_, D, K> {
        Iter::new(self)
    }

    /// What the log holds.
    pub fn statistics(&self) -> LogStatistics {
        let writer = self.writer.lock();
        LogStatistics {
            entries: writer.next.number() - writer.start.position.number(),
            entry_bytes: writer.tail - writer.start.offset,
            capacity_bytes: self.capacity,
        }
    }

    /// Visits the block of the log.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        let ring = self.ring();
        visitor.visit(self.root, (ring.data - self.root.offset() + ring.capacity) as usize);
    }
}

impl<D: Domain, K: RingKind> Log<D> for RingLog<D, K> {
    const NAME: &'static str = K::NAME;
    type Root = RingRoot;
    type Options = Layout;

    const BARRIERS: u64 = if K::FOOTER || K::SIZED { 2 } else { 1 };
    const GROWS: bool = false;

    fn options(layout: Layout) -> Layout {
        layout
    }

    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Range<Position>, LogError> {
        Self::append_batch(self, payloads)
    }

    fn log_statistics(&self) -> LogStatistics {
        self.statistics()
    }

    forward_to_own_methods!(D);
}
