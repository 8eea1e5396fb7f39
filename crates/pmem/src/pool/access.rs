//! From a link to what it refers to.

use super::{MIN_POOL_BYTES, Pool};
use crate::allocator::{block_bytes_for, size_of_block};
use crate::cell::{Link, Persistent};
use crate::domain::Domain;
use crate::region::EXTENT_BYTES;

/// Every block begins at a multiple of this.
const BLOCK_ALIGN: u64 = 16;

/// How far a pool reaches, as it was when somebody asked: what it takes to follow a link, for who follows many and
/// keeps it in registers meanwhile.
#[derive(Debug)]
pub struct Reach<'p, D: Domain> {
    pool: &'p Pool<D>,
    base: *mut u8,
    bytes: usize,
}

impl<D: Domain> Clone for Reach<'_, D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for Reach<'_, D> {}

impl<'p, D: Domain> Reach<'p, D> {
    /// The pool.
    #[inline(always)]
    pub fn pool(&self) -> &'p Pool<D> {
        self.pool
    }

    /// As [`Pool::try_at`]. `None` also for what is there since the pool grew: see [`Reach::renewed`].
    #[inline(always)]
    pub fn try_at<T: Persistent>(&self, link: Link<T>) -> Option<&'p T> {
        // SAFETY: as in `Pool::try_at`: what is mapped once stays so as long as the pool is open.
        holds(self.bytes, link, size_of::<T>())
            .then(|| unsafe { &*self.base.add(link.offset() as usize).cast::<T>() })
    }

    /// How far the pool reaches now, if that is farther.
    #[cold]
    #[must_use]
    pub fn renewed(&self) -> Option<Self> {
        let now = self.pool.reach();
        (now.bytes > self.bytes).then_some(now)
    }
}

/// Whether `bytes` bytes from `link` on lie within `mapped` bytes, and are aligned for a `T`.
#[inline(always)]
fn holds<T: Persistent>(mapped: usize, link: Link<T>, bytes: usize) -> bool {
    let offset = link.offset() as usize;
    // One comparison, and what is known of a link's lowest bits where it is made leaves no other: how many
    // instructions a search takes decides how many searches' misses a processor can wait for at once.
    // Offset zero is the header, never a block: one less than it is more than there is. Pools have at least
    // MIN_POOL_BYTES, so that the difference does not wrap.
    let fits = bytes <= MIN_POOL_BYTES || bytes <= mapped;
    let is_inside = offset.wrapping_sub(1) < mapped.wrapping_sub(bytes);
    fits && is_inside && offset.is_multiple_of(align_of::<T>())
}

impl<D: Domain> Pool<D> {
    /// How far the pool reaches now.
    #[inline(always)]
    pub fn reach(&self) -> Reach<'_, D> {
        Reach { pool: self, base: self.region.base(), bytes: self.region.mapped_bytes() }
    }

    /// The address of an offset. Not checked.
    #[inline(always)]
    pub(crate) fn address_of(&self, offset: u64) -> *mut u8 {
        self.region.base().wrapping_add(offset as usize)
    }

    /// The `T` at `link`.
    ///
    /// The link is checked to lie inside the pool and to be aligned for a `T`; any bytes there are
    /// some `T`, so a wrong link yields wrong data but no undefined behaviour.
    ///
    /// # Panics
    /// If the link is null, outside the pool or misaligned: the pool is damaged. Code that must
    /// survive damage uses [`Pool::try_at`].
    #[inline(always)]
    pub fn at<T: Persistent>(&self, link: Link<T>) -> &T {
        if !self.has(link, size_of::<T>()) {
            damaged(&self.domain, link.offset());
        }
        // SAFETY: as in `try_at`.
        unsafe { &*self.found_at(link) }
    }

    /// The `T` at `link`, or `None` if the link is null, outside the pool or misaligned.
    #[inline(always)]
    pub fn try_at<T: Persistent>(&self, link: Link<T>) -> Option<&T> {
        // SAFETY: the bytes of a `T` are in bounds and aligned, since bases are page-aligned; they are valid for any
        // bit pattern and only mutated through its cells (`Persistent`), mapped as long as `self`.
        self.has(link, size_of::<T>()).then(|| unsafe { &*self.found_at(link) })
    }

    /// The `count` values of type `T` that lie one after the other from `link` on, or `None` if
    /// they are not all inside the pool or misaligned. For arrays whose length is known only at run
    /// time.
    #[inline(always)]
    pub fn try_slice<T: Persistent>(&self, link: Link<T>, count: usize) -> Option<&[T]> {
        let bytes = size_of::<T>().checked_mul(count)?;
        // SAFETY: as in `try_at`, for each of them.
        self.has(link, bytes)
            .then(|| unsafe { std::slice::from_raw_parts(self.found_at(link), count) })
    }

    /// The `T` at `link` and the `count` values of type `E` behind it: a node whose length is known
    /// only at run time, for one look at where it lies. `None` as for [`Pool::try_slice`].
    #[inline(always)]
    pub fn try_at_with<T: Persistent, E: Persistent>(
        &self,
        link: Link<T>,
        count: u16,
    ) -> Option<(&T, &[E])> {
        const {
            assert!(align_of::<E>() <= align_of::<T>());
            assert!(size_of::<T>().is_multiple_of(align_of::<E>()));
            assert!(
                size_of::<T>() <= 1 << 32 && size_of::<E>() <= 1 << 32,
                "bytes do not overflow"
            );
        }
        let count = usize::from(count);
        // SAFETY: as in `try_at`, for all of them; the second lies behind the first, and is aligned.
        self.has(link, size_of::<T>() + count * size_of::<E>()).then(|| unsafe {
            let first = self.found_at(link);
            (&*first, std::slice::from_raw_parts(first.add(1).cast(), count))
        })
    }

    /// Whether `bytes` bytes from `link` on lie inside the pool, and are aligned for a `T`.
    #[inline(always)]
    fn has<T: Persistent>(&self, link: Link<T>, bytes: usize) -> bool {
        holds(self.region.mapped_bytes(), link, bytes)
    }

    /// Whoever gives back a block of `block_bytes` bytes at `link` may have followed a damaged link. What is given out
    /// again for it lies behind the header, within the pool, and is aligned for all that blocks hold.
    ///
    /// # Panics
    /// If no such block can be there.
    #[inline]
    pub(super) fn check_block<T: Persistent>(&self, link: Link<T>, block_bytes: usize) {
        let offset = link.offset();
        let begins = offset >= EXTENT_BYTES as u64 && offset.is_multiple_of(BLOCK_ALIGN);
        let fits = self.has(link, block_bytes)
            && self.has(link, block_bytes_for(size_of_block::<T>(block_bytes)));
        if !(begins && fits) {
            damaged(&self.domain, offset);
        }
    }

    /// The place of a link. A pointer, that may be made a reference to more than a `T`.
    ///
    /// # Safety
    /// The pool [has](Self::has) as many bytes as the caller makes of it.
    #[inline(always)]
    unsafe fn found_at<T: Persistent>(&self, link: Link<T>) -> *const T {
        // SAFETY: in bounds, as the caller vouches.
        unsafe { self.region.base().add(link.offset() as usize).cast::<T>() }
    }

    /// The `bytes` bytes behind the `T` at `link`, which were written before it was published and
    /// do not change while it is reachable or pinned. `None` if they are not inside the pool.
    #[inline]
    pub fn try_tail<T: Persistent>(&self, link: Link<T>, bytes: usize) -> Option<&[u8]> {
        let start = (link.offset() as usize).checked_add(size_of::<T>())?;
        let end = start.checked_add(bytes)?;
        if link.is_null() || end > self.region.mapped_bytes() {
            return None;
        }
        let address = self.address_of(start as u64);
        self.domain.note_read(address, bytes);
        // SAFETY: in bounds; the structure keeps tails immutable from publication until the epoch
        // after retirement (the contract of this method).
        Some(unsafe { std::slice::from_raw_parts(address, bytes) })
    }

    /// As [`Pool::try_tail`].
    ///
    /// # Panics
    /// If the range is not inside the pool.
    #[inline]
    pub fn tail<T: Persistent>(&self, link: Link<T>, bytes: usize) -> &[u8] {
        match self.try_tail(link, bytes) {
            Some(tail) => tail,
            None => damaged(&self.domain, link.offset()),
        }
    }

    /// Hints that the block at `link` will be read soon.
    #[inline(always)]
    pub fn prefetch<T: Persistent>(&self, link: Link<T>) {
        self.domain.prefetch(self.address_of(link.offset()));
    }
}

#[cold]
#[inline(never)]
fn damaged<D: Domain>(domain: &D, offset: u64) -> ! {
    if let Err(fault) = domain.health() {
        // Zeroes stand where memory could not be read.
        panic!("{fault}");
    }
    panic!("the pool is damaged: a link refers to offset {offset:#x}, where no block can be")
}
