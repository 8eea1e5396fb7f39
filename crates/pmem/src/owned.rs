//! Blocks on their way into a structure: ordering typestates.
//!
//! ```text
//!  Pool::allocate ──▶ Owned<Dirty> ──flush──▶ Owned<InFlight> ──fence──▶ Owned<Durable>
//!                      │  write fields            │                          │
//!                      │  link(child: InFlight) ◀─┘                          ▼
//!                      │                                             Slot::publish ──▶ Visible
//!                      └─ dropped in any state: the block goes back        │ persist
//!                                                                          ▼
//!                                                                      Committed
//! ```
//!
//! The states are types, so a wrong order does not compile (the idea of SquirrelFS, LeBlanc et al.,
//! OSDI 2024): a dirty or in-flight node cannot be published, a node cannot be written after its
//! flush, a child must have been flushed before its parent links it, and an `Owned` does not leave
//! the thread that flushes it, because a flush is completed by the fence of that thread only
//! (rule R4 of [`crate::domain`]).
//!
//! Writing after the flush is a compile error:
//!
//! ```compile_fail
//! # use lapis_pmem::*;
//! # fn f<D: Domain>(pool: &Pool<D>) {
//! let node = pool.allocate::<PCell<u64>>().unwrap();
//! let in_flight = node.flush();
//! node.store(pool.domain(), 1);
//! # }
//! ```
//! ```compile_fail
//! # use lapis_pmem::*;
//! # fn f<D: Domain>(pool: &Pool<D>) {
//! let in_flight = pool.allocate::<PCell<u64>>().unwrap().flush();
//! in_flight.store(pool.domain(), 1);
//! # }
//! ```
//!
//! So is fencing on another thread:
//!
//! ```compile_fail
//! # use lapis_pmem::*;
//! # fn f<D: Domain>(pool: &Pool<D>) {
//! let in_flight = pool.allocate::<PCell<u64>>().unwrap().flush();
//! std::thread::scope(|s| { s.spawn(move || { let _ = pool.fence(in_flight); }); });
//! # }
//! ```
//!
//! And linking a child that was not flushed:
//!
//! ```compile_fail
//! # use lapis_pmem::*;
//! # fn f<D: Domain>(pool: &Pool<D>) {
//! let child = pool.allocate::<PCell<u64>>().unwrap();
//! let mut parent = pool.allocate::<Slot<PCell<u64>>>().unwrap();
//! parent.link_child(|slot| slot, child);
//! # }
//! ```
//! ```compile_fail
//! # use lapis_pmem::*;
//! # fn f<D: Domain>(pool: &Pool<D>) {
//! let child = pool.allocate::<PCell<u64>>().unwrap();
//! let mut parent = pool.allocate::<PCell<u64>>().unwrap();
//! parent.link_children(|cell| cell, child, |child| child.link().bits() | 1);
//! # }
//! ```
//!
//! The right order compiles:
//!
//! ```
//! # use lapis_pmem::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::create_anonymous(1 << 20)?;
//! let child = pool.allocate::<PCell<u64>>()?;
//! child.store(pool.domain(), 42);
//! let mut parent = pool.allocate::<Slot<PCell<u64>>>()?;
//! parent.link_child(|slot| slot, child.flush());
//! let parent = pool.fence(parent.flush());
//! let committed: Committed = pool.publish_root("example", 0, parent)?.persist();
//! # let _ = committed; Ok(()) }
//! ```

use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::Deref;

use crate::allocator::size_of_block;
use crate::blocks::{Blocks, InOrder};
use crate::cell::{Link, PCell, Persistent, Slot};
use crate::domain::Domain;
use crate::pool::Pool;
use crate::word::Word;

/// Being written; unreachable from the roots.
#[derive(Debug)]
pub enum Dirty {}
/// Flushed; this thread's next fence makes it durable.
#[derive(Debug)]
pub enum InFlight {}
/// Durable; may be published.
#[derive(Debug)]
pub enum Durable {}

/// A block that no root reaches and that this thread alone owns, in persistence state `S`
/// ([`Dirty`], [`InFlight`] or [`Durable`]): a `T` and, for blocks of variable length, a tail of
/// bytes behind it.
///
/// Dropping one gives the block back to the allocator.
#[must_use = "an owned block that is dropped goes back to the allocator"]
pub struct Owned<'p, D: Domain, T: Persistent, S> {
    pool: &'p Pool<D>,
    link: Link<T>,
    /// The block's address, which follows from the pool's and the link: kept so that a field costs
    /// no load of the pool's.
    start: *mut u8,
    tail_bytes: usize,
    /// Raw pointer: neither `Send` nor `Sync` (rule R4).
    _state: PhantomData<(S, *const ())>,
}

impl<'p, D: Domain, T: Persistent, S> Owned<'p, D, T, S> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool<D>, link: Link<T>, tail_bytes: usize) -> Self {
        let start = pool.address_of(link.offset());
        Self { pool, link, start, tail_bytes, _state: PhantomData }
    }

    /// Where the block is. Storing this somewhere reachable by other means than
    /// [`Slot::publish`] gives up the protection of the typestates.
    #[inline(always)]
    pub fn link(&self) -> Link<T> {
        self.link
    }

    /// The pool the block belongs to.
    #[inline(always)]
    pub fn pool(&self) -> &'p Pool<D> {
        self.pool
    }

    /// The domain the block lies on.
    #[inline(always)]
    pub fn domain(&self) -> &'p D {
        self.pool.domain()
    }

    /// Bytes of the block: the `T` and the tail.
    #[inline(always)]
    pub fn block_bytes(&self) -> usize {
        size_of::<T>() + self.tail_bytes
    }

    #[inline(always)]
    fn start(&self) -> *mut u8 {
        self.start
    }

    #[inline(always)]
    fn into_state<U>(self) -> Owned<'p, D, T, U> {
        let Self { pool, link, start, tail_bytes, .. } = *mem::ManuallyDrop::new(self);
        Owned { pool, link, start, tail_bytes, _state: PhantomData }
    }

    /// Gives up ownership: from here the structure is responsible for the block.
    #[inline(always)]
    pub(crate) fn into_link(self) -> Link<T> {
        let link = self.link;
        mem::forget(self);
        link
    }
}

impl<D: Domain, T: Persistent> Owned<'_, D, T, InFlight> {
    /// Hands the block to a structure that [`Owned::link_children`] and [`PCell::publish_word`] do
    /// not suit: which stores the link where it cannot be told from other numbers, or among ordered
    /// stores. It says at the call why the fence that makes the block durable comes before the link
    /// counts.
    #[inline(always)]
    pub fn release(self) -> Link<T> {
        self.into_link()
    }
}

impl<D: Domain, T: Persistent> Owned<'_, D, T, Durable> {
    /// As for a block in flight: for a link that is stored where it cannot be told from other numbers.
    #[inline(always)]
    pub fn release(self) -> Link<T> {
        self.into_link()
    }
}

impl<'p, D: Domain, T: Persistent> Owned<'p, D, T, Dirty> {
    /// Writes back the lines of the block (the `T` and the tail). It can no longer be written.
    #[inline(always)]
    #[track_caller]
    pub fn flush(self) -> Owned<'p, D, T, InFlight> {
        // SAFETY: the allocator handed out `block_bytes` mapped bytes at `start`.
        unsafe { self.domain().flush_range(self.start(), self.block_bytes()) };
        self.into_state()
    }

    /// Writes back the lines of the `T` only: for blocks whose whole tail was written with
    /// [`Owned::write_tail_nontemporal`] and so needs no flush.
    #[inline(always)]
    #[track_caller]
    pub fn flush_head(self) -> Owned<'p, D, T, InFlight> {
        self.flush_front(0)
    }

    /// Writes back the lines of the `T` and of the first `tail_bytes` of the tail: for blocks with room
    /// for more than is in them.
    ///
    /// # Panics
    /// If the tail is shorter.
    #[inline(always)]
    #[track_caller]
    pub fn flush_front(self, tail_bytes: usize) -> Owned<'p, D, T, InFlight> {
        assert!(tail_bytes <= self.tail_bytes, "tail overrun");
        self.flush_first(size_of::<T>() + tail_bytes)
    }

    /// Writes back the lines of the first `bytes` only: for blocks in which nothing counts behind them.
    ///
    /// # Panics
    /// If the block is shorter.
    #[inline(always)]
    #[track_caller]
    pub fn flush_first(self, bytes: usize) -> Owned<'p, D, T, InFlight> {
        assert!(bytes <= self.block_bytes(), "flush beyond the block");
        // SAFETY: as in `flush`; the block has so many bytes.
        unsafe { self.domain().flush_range(self.start(), bytes) };
        self.into_state()
    }

    /// Stores a link to `child` into a slot of this block. The child need only have been flushed:
    /// the fence that makes this block durable covers it, since both stay on this thread. The
    /// child belongs to this block from here on.
    #[inline(always)]
    pub fn link_child<C: Persistent>(
        &mut self,
        slot: impl FnOnce(&T) -> &Slot<C>,
        child: Owned<'p, D, C, InFlight>,
    ) {
        self.link_children(|block| slot(block).word(), child, |child| child.link().bits());
    }

    /// As [`Owned::link_child`] for a word of the structure's own making (a tagged link), which may
    /// refer to several blocks.
    #[inline(always)]
    pub fn link_children<W: Word, B: Blocks<InFlight>>(
        &mut self,
        cell: impl FnOnce(&T) -> &PCell<W>,
        children: B,
        word: impl FnOnce(&B) -> W,
    ) {
        let word = word(&children);
        children.hand_over(InOrder(()));
        cell(self).store(self.pool.domain(), word);
    }

    /// Stores a link to a block that is durable and reachable already (or null).
    #[inline(always)]
    pub fn set_link<C: Persistent>(&mut self, slot: impl FnOnce(&T) -> &Slot<C>, link: Link<C>) {
        slot(self).word().store(self.pool.domain(), link.bits());
    }

    /// Writes `bytes` into the tail, `at` bytes after its start, with ordinary stores.
    ///
    /// # Panics
    /// If `at + bytes.len()` exceeds the tail.
    #[inline]
    pub fn write_tail(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.tail_bytes && bytes.len() <= self.tail_bytes - at, "tail overrun");
        // SAFETY: in bounds of the block (checked above), which this thread alone owns.
        unsafe { self.domain().copy(self.start().add(size_of::<T>() + at), bytes) };
    }

    /// Writes `bytes` into the tail past the caches. The fence that follows [`Owned::flush`] makes
    /// them durable.
    ///
    /// # Panics
    /// If `at + bytes.len()` exceeds the tail.
    #[inline]
    #[track_caller]
    pub fn write_tail_nontemporal(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.tail_bytes && bytes.len() <= self.tail_bytes - at, "tail overrun");
        // SAFETY: as in `write_tail`.
        unsafe { self.domain().copy_nontemporal(self.start().add(size_of::<T>() + at), bytes) };
    }

    /// Zeroes the whole block, the `T` and the tail, with ordinary stores: allocated blocks hold
    /// whatever was there before.
    #[inline]
    pub fn zero(&mut self) {
        const ZEROES: [u8; 4096] = [0; 4096];
        let (start, bytes) = (self.start(), self.block_bytes());
        let mut done = 0;
        while done < bytes {
            let step = ZEROES.len().min(bytes - done);
            // SAFETY: within the block, which this thread alone owns.
            unsafe { self.domain().copy(start.add(done), &ZEROES[..step]) };
            done += step;
        }
    }

    /// Zeroes the whole block past the caches and declares it flushed: for large tables that
    /// start empty.
    #[inline]
    #[track_caller]
    pub fn zero_nontemporal(self) -> Owned<'p, D, T, InFlight> {
        // SAFETY: within the block, which this thread alone owns.
        unsafe { self.domain().zero_nontemporal(self.start(), self.block_bytes()) };
        self.into_state()
    }
}

impl<D: Domain, T: Persistent> Deref for Owned<'_, D, T, Dirty> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the allocator handed out an aligned block of at least `size_of::<T>()` bytes, any
        // bit pattern is a `T`, and nobody else reaches it.
        unsafe { &*self.start().cast::<T>() }
    }
}

impl<'p, D: Domain, T: Persistent> Owned<'p, D, T, InFlight> {
    /// Declares the block durable because this thread has fenced since the flush, in a batch.
    #[inline(always)]
    pub(crate) fn fenced(self) -> Owned<'p, D, T, Durable> {
        self.into_state()
    }
}

impl<D: Domain, T: Persistent, S> Drop for Owned<'_, D, T, S> {
    #[cold]
    fn drop(&mut self) {
        self.pool.free_block(self.link.offset(), size_of_block::<T>(self.block_bytes()));
    }
}

impl<D: Domain, T: Persistent, S> fmt::Debug for Owned<'_, D, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:?} + {} bytes)", self.link, self.tail_bytes)
    }
}
