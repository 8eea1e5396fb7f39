//! A log in a ring that several threads fill side by side.
//!
//! ```text
//!            reserve          fill (each thread for itself)             publish, in order
//!  thread A  ├─ 7 ─┤ store, flush, fence [, footer, flush, fence] ─────┤ 7 ├─▶ returns
//!  thread B   ├─ 8 ─┤ store, flush, fence ──────┤ waits for 7          ┤ 8 ├─▶ returns
//!  thread C     ├─ 9 ─┤ store, flush, fence ───────────────────────────┤ 9 ├─▶ returns
//! ```
//!
//! A place in the ring and a position are reserved together by one compare-exchange. Filling is
//! what a single thread's append does up to and including its barriers; lines are not shared
//! (entries must be padded), so threads do not meet. Publication is in the order of positions: an
//! append returns when its entry *and all before it* are durable, because recovery takes entries up
//! to the first that is missing. Whoever finds the next entry filled publishes it and all filled
//! ones behind it: one size in the header log's case, and so group commit comes by itself.
//!
//! An entry that was reserved before the one before it was published is marked as joined
//! (invariant G6 of [`ring_log`](crate::ring_log)), so that recovery knows a hole that a crash has
//! left between entries in flight from damage.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Committed, Domain, LINE_BYTES, Pool};
use parking_lot::Mutex;

use crate::log::{LogError, LogStatistics, Placement, Position};
use crate::ring_log::{Append, Iter, RingKind, RingLog, Sink, payload_bytes, write_footer};
use crate::spacing::Spacing;

/// Appends that may be in flight at once.
const IN_FLIGHT: u64 = 1 << 10;
/// Bits of a reservation that hold the line; the others hold the position.
const LINE_BITS: u32 = 40;
const LINE_MASK: u64 = (1 << LINE_BITS) - 1;
const POSITION_MASK: u64 = (1 << (64 - LINE_BITS)) - 1;

/// A log in a ring, shared by threads. See the [module documentation](self).
pub struct SharedLog<D: Domain, K: RingKind> {
    log: RingLog<D, K>,
    /// Low bits of the line where the next entry goes, and of its position.
    reserved: AtomicU64,
    /// The line up to which entries are published, and the position of the next one.
    published_line: AtomicU64,
    published: AtomicU64,
    /// Where the ring may be written up to.
    limit: AtomicU64,
    /// For the position `p`, at `p % IN_FLIGHT`: where the entry ends, once it is filled.
    filled: Box<[Filled]>,
    /// Held while entries are published.
    publisher: Mutex<()>,
}

#[derive(Debug, Default)]
struct Filled {
    position: AtomicU64,
    end: AtomicU64,
}

impl<D: Domain, K: RingKind> fmt::Debug for SharedLog<D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedLog({}, end {})", K::NAME, self.end())
    }
}

/// The number nearest to and not below `from` whose low bits, as many as `mask` has, are `low`.
fn extend(from: u64, low: u64, mask: u64) -> u64 {
    from + (low.wrapping_sub(from) & mask)
}

fn pack(line: u64, position: u64) -> u64 {
    (position & POSITION_MASK) << LINE_BITS | line & LINE_MASK
}

impl<D: Domain, K: RingKind> SharedLog<D, K> {
    /// Shares a log that is open.
    ///
    /// # Errors
    /// [`LogError::SharedLines`] if its entries are not padded to lines.
    pub fn new(log: RingLog<D, K>) -> Result<Self, LogError> {
        if log.placement() != Placement::Padded {
            return Err(LogError::SharedLines { placement: log.placement() });
        }
        let (line, position, limit) = {
            let writer = log.writer.lock();
            (writer.tail / LINE_BYTES as u64, writer.next.number(), writer.start.limit)
        };
        Ok(Self {
            reserved: AtomicU64::new(pack(line, position)),
            published_line: AtomicU64::new(line),
            published: AtomicU64::new(position),
            limit: AtomicU64::new(limit),
            filled: (0..IN_FLIGHT).map(|_| Filled::default()).collect(),
            publisher: Mutex::new(()),
            log,
        })
    }

    /// The log, for one thread again.
    pub fn into_inner(self) -> RingLog<D, K> {
        self.log
    }

    /// The position of the oldest retained entry.
    pub fn start(&self) -> Position {
        self.log.start()
    }

    /// The published entries, oldest first: those whose appends have returned or are about to.
    pub fn iter(&self) -> Iter<'_, D, K> {
        self.log.iter()
    }

    /// What the log holds.
    pub fn statistics(&self) -> LogStatistics {
        self.log.statistics()
    }

    /// The pool the log lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        self.log.pool()
    }

    /// The position that the next published entry will have.
    pub fn end(&self) -> Position {
        Position::from_number(self.published.load(Ordering::Acquire))
    }

    /// Appends an entry. It and all before it are durable on return.
    ///
    /// # Errors
    /// As [`RingLog::append`].
    #[inline]
    pub fn append(&self, payload: &[u8]) -> Result<Position, LogError> {
        self.append_parts(&[payload])
    }

    /// Appends one entry whose payload is `parts` end to end.
    ///
    /// # Errors
    /// As [`RingLog::append`].
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, LogError> {
        let domain = self.log.pool().domain();
        let length = payload_bytes(parts)?;
        let (bytes, _) = self.log.group_bytes(0, std::iter::once(parts))?;
        let (tail, position) = self.reserve(bytes)?;
        let joined = self.published.load(Ordering::Acquire) != position.number();
        let ring = self.log.ring();
        // SAFETY: reserved for this thread alone, before the limit, by whole lines.
        let mut sink = unsafe { Sink::<D, K>::new(&ring, tail, None) };
        Append { position, joined, more: false, length, parts }.write(&mut sink, Spacing::Lines);
        sink.write_back();
        // G2, where something follows; else G1.
        domain.fence();
        if K::FOOTER {
            write_footer(&mut sink, Spacing::Lines, position);
        }
        self.publish(position.number(), tail + bytes);
        // Nobody is told of an entry that a fence did not keep.
        domain.health()?;
        Ok(position)
    }

    fn reserve(&self, bytes: u64) -> Result<(u64, Position), LogError> {
        let lines = bytes / LINE_BYTES as u64;
        loop {
            // These first: what is reserved is never behind what is published.
            let published_line = self.published_line.load(Ordering::Acquire);
            let published = self.published.load(Ordering::Acquire);
            let reserved = self.reserved.load(Ordering::Acquire);
            let line = extend(published_line, reserved & LINE_MASK, LINE_MASK);
            let position = extend(published, reserved >> LINE_BITS, POSITION_MASK);
            if position - published >= IN_FLIGHT {
                std::thread::yield_now();
                continue;
            }
            let tail = line * LINE_BYTES as u64;
            RingLog::<D, K>::check_room(tail, bytes, self.limit.load(Ordering::Acquire))?;
            let next = pack(line + lines, position + 1);
            let taken = self.reserved.compare_exchange_weak(
                reserved,
                next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Ok((tail, Position::from_number(position)));
            }
        }
    }

    /// Notes that the entry at `position` is filled, and returns when it is published.
    fn publish(&self, position: u64, end: u64) {
        let slot = &self.filled[(position % IN_FLIGHT) as usize];
        slot.end.store(end, Ordering::Relaxed);
        slot.position.store(position, Ordering::Release);
        let mut spins = 0u32;
        while self.published.load(Ordering::Acquire) <= position {
            if let Some(_turn) = self.publisher.try_lock() {
                self.publish_filled();
            } else if spins < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            spins += 1;
        }
    }

    /// Publishes the entries that are filled, up to the first that is not.
    fn publish_filled(&self) {
        let first = self.published.load(Ordering::Relaxed);
        let (mut position, mut end) = (first, None);
        loop {
            let slot = &self.filled[(position % IN_FLIGHT) as usize];
            if slot.position.load(Ordering::Acquire) != position || position - first >= IN_FLIGHT {
                break;
            }
            end = Some(slot.end.load(Ordering::Relaxed));
            position += 1;
        }
        let Some(end) = end else { return };
        let mut writer = self.log.writer.lock();
        if K::SIZED {
            // G2: every thread has fenced what it filled before it said so.
            self.log.publish_size(writer.next_size, end);
            writer.next_size = (writer.next_size + 1) % self.log.size_fields;
        }
        writer.tail = end;
        writer.next = Position::from_number(position);
        drop(writer);
        self.published_line.store(end / LINE_BYTES as u64, Ordering::Release);
        self.published.store(position, Ordering::Release);
    }

    /// Drops every published entry before `up_to`. As [`RingLog::truncate`].
    ///
    /// # Errors
    /// As [`RingLog::truncate`].
    pub fn truncate(&self, up_to: Position) -> Result<Committed, LogError> {
        let committed = self.log.truncate(up_to)?;
        let limit = self.log.writer.lock().start.limit;
        // Truncations may overtake one another here; limits only grow.
        self.limit.fetch_max(limit, Ordering::AcqRel);
        Ok(committed)
    }
}
