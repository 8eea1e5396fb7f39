//! The ring: a stream of bytes without end, of which the last so many are there.

use lapis_pmem::{Domain, LINE_BYTES, Link, PCell, Pool};

use super::kind::RingKind;
use crate::spacing::Spacing;

const LINE: usize = LINE_BYTES;

/// The bytes of a ring in a pool. Offsets are those of the stream, and grow for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'p, D: Domain> {
    pub(crate) pool: &'p Pool<D>,
    /// Pool offset of the first byte.
    pub(crate) data: u64,
    pub(crate) capacity: u64,
    pub(crate) spacing: Spacing,
}

impl<'p, D: Domain> Ring<'p, D> {
    pub(crate) fn index(&self, at: u64) -> usize {
        (at % self.capacity) as usize
    }

    pub(crate) fn pool_offset(&self, at: u64) -> u64 {
        self.data + at % self.capacity
    }

    fn base(&self) -> *mut u8 {
        self.pool.region().base().wrapping_add(self.data as usize)
    }

    /// The word at `at`, a multiple of eight.
    pub(crate) fn word(&self, at: u64) -> &'p PCell<u64> {
        debug_assert!(at.is_multiple_of(8));
        self.pool.at(Link::from_bits(self.pool_offset(at)))
    }

    pub(crate) fn load(&self, at: u64) -> u64 {
        self.word(at).load(self.pool.domain())
    }

    /// Calls `with` for the one or two pieces that `[at, at + bytes)` consists of, as long as it
    /// says so. Nobody may write there meanwhile.
    pub(crate) fn pieces(&self, at: u64, bytes: usize, mut with: impl FnMut(&[u8])) {
        let first = bytes.min(self.capacity as usize - self.index(at));
        for (at, bytes) in [(at, first), (at + first as u64, bytes - first)] {
            if bytes > 0 {
                let start = self.base().wrapping_add(self.index(at));
                self.pool.domain().note_read(start, bytes);
                // SAFETY: inside the ring, which is inside the pool (checked at open); nobody
                // writes there (the caller's promise), and any bytes are bytes.
                with(unsafe { std::slice::from_raw_parts(start, bytes) });
            }
        }
    }

    /// The CRC of `[at, at + bytes)`.
    pub(crate) fn crc(&self, at: u64, bytes: usize) -> u32 {
        let mut crc = 0;
        self.pieces(at, bytes, |piece| crc = crc32c::crc32c_append(crc, piece));
        crc
    }

    /// Zeroes the lines of `[from, to)`, both on lines, past the caches; the caller's fence makes it
    /// durable.
    ///
    /// # Safety
    /// Nobody else reads or writes there.
    #[track_caller]
    pub(crate) unsafe fn zero(&self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let index = self.index(at);
            let bytes = (to - at).min(self.capacity - index as u64);
            // SAFETY: inside the ring; as the caller vouches.
            unsafe {
                let start = self.base().wrapping_add(index);
                self.pool.domain().zero_nontemporal(start, bytes as usize);
            }
            at += bytes;
        }
    }
}

/// The line that is not full yet, in DRAM ([`Placement::Streamed`](crate::log::Placement)).
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct LineBuffer {
    bytes: [u8; LINE],
}

impl LineBuffer {
    /// The line that `at` is in: what stands before `at`, and free space behind.
    pub(crate) fn load<D: Domain, K: RingKind>(ring: &Ring<'_, D>, at: u64) -> Self {
        let mut line = Self::blank();
        let start = super::layout::line_floor(at);
        line.fill::<K>(start / ring.capacity);
        let held = (at - start) as usize;
        ring.pieces(start, held, |piece| line.bytes[..held].copy_from_slice(piece));
        line
    }

    /// Of no use yet.
    pub(crate) fn blank() -> Self {
        Self { bytes: [0; LINE] }
    }

    fn fill<K: RingKind>(&mut self, pass: u64) {
        for word in self.bytes.as_chunks_mut::<8>().0 {
            *word = K::free_word(pass).to_ne_bytes();
        }
    }
}

/// Where an append writes: the ring from some offset on, in order.
pub(crate) struct Sink<'a, D: Domain, K> {
    domain: &'a D,
    base: *mut u8,
    capacity: usize,
    /// How often the ring has been filled before the place that is written next.
    pass: u64,
    /// That place.
    index: usize,
    /// Bytes before it that were stored and not flushed.
    pending: usize,
    line: Option<&'a mut LineBuffer>,
    kind: std::marker::PhantomData<K>,
}

impl<'a, D: Domain, K: RingKind> Sink<'a, D, K> {
    /// Writes from `at` on; through `line`, if entries are streamed.
    ///
    /// # Safety
    /// Until the sink is dropped nobody else reads or writes what is written through it.
    pub(crate) unsafe fn new(
        ring: &Ring<'a, D>,
        at: u64,
        line: Option<&'a mut LineBuffer>,
    ) -> Self {
        Self {
            domain: ring.pool.domain(),
            base: ring.base(),
            capacity: ring.capacity as usize,
            pass: at / ring.capacity,
            index: ring.index(at),
            pending: 0,
            line,
            kind: std::marker::PhantomData,
        }
    }

    pub(crate) fn domain(&self) -> &'a D {
        self.domain
    }

    /// The place in the ring that is written next.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// How often the ring has been filled before.
    pub(crate) fn pass(&self) -> u64 {
        self.pass
    }

    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        self.index += bytes;
        self.pending += bytes;
        if self.index == self.capacity {
            self.index = 0;
            self.pass += 1;
        }
    }

    /// Stores a word, whole or not at all. The place is a multiple of eight.
    #[inline]
    pub(crate) fn word(&mut self, value: u64) {
        if self.line.is_some() {
            self.buffer(&value.to_ne_bytes());
        } else {
            // SAFETY: inside the ring and aligned; others keep away (`new`). A PCell is any word.
            let cell = unsafe { &*self.base.wrapping_add(self.index).cast::<PCell<u64>>() };
            cell.store(self.domain, value);
            self.advance(8);
        }
    }

    /// Stores bytes, in no particular order.
    #[inline]
    pub(crate) fn bytes(&mut self, mut source: &[u8]) {
        if self.line.is_some() {
            return self.buffer(source);
        }
        while !source.is_empty() {
            let (piece, rest) = source.split_at(source.len().min(self.capacity - self.index));
            // SAFETY: inside the ring; others keep away (`new`).
            unsafe { self.domain.copy(self.base.wrapping_add(self.index), piece) };
            self.advance(piece.len());
            source = rest;
        }
    }

    /// Passes over bytes that stay as they are: free space behind a body.
    pub(crate) fn skip(&mut self, bytes: usize) {
        if self.line.is_some() {
            // The rest of a word, or of a line.
            return self.buffer(&[0; LINE][..bytes]);
        }
        let first = bytes.min(self.capacity - self.index);
        self.advance(first);
        self.advance(bytes - first);
    }

    fn buffer(&mut self, mut source: &[u8]) {
        while !source.is_empty() {
            let Some(line) = &mut self.line else { return };
            let within = self.index % LINE;
            let (piece, rest) = source.split_at(source.len().min(LINE - within));
            line.bytes[within..within + piece.len()].copy_from_slice(piece);
            source = rest;
            let full = within + piece.len() == LINE;
            if full {
                let start = self.base.wrapping_add(self.index - within);
                // SAFETY: a line of the ring, of which others keep away but for words that are
                // written with the value they have.
                unsafe { self.domain.copy_nontemporal(start, &line.bytes) };
            }
            self.advance(piece.len());
            if full {
                self.pending = 0;
                if let Some(line) = &mut self.line {
                    line.fill::<K>(self.pass);
                }
            }
        }
    }

    /// Flushes what was stored; the caller's fence makes it durable.
    #[track_caller]
    pub(crate) fn write_back(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let within = self.index % LINE;
        if let Some(line) = &mut self.line {
            if pending > 0 && within > 0 {
                let start = self.base.wrapping_add(self.index - within);
                // SAFETY: as in `buffer`.
                unsafe { self.domain.copy_nontemporal(start, &line.bytes) };
            }
            return;
        }
        // What was stored may have gone over the end of the ring.
        let behind = pending.min(self.index);
        let before = pending - behind;
        // SAFETY: inside the ring.
        unsafe {
            if before > 0 {
                let start = self.base.wrapping_add(self.capacity - before);
                self.domain.flush_range(start, before);
            }
            if behind > 0 {
                self.domain.flush_range(self.base.wrapping_add(self.index - behind), behind);
            }
        }
    }
}
