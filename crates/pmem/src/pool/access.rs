//! From a link to what it refers to.

use super::Pool;
use crate::cell::{Link, Persistent};
use crate::domain::Domain;

impl<D: Domain> Pool<D> {
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
        match self.try_at(link) {
            Some(value) => value,
            None => damaged(link.offset()),
        }
    }

    /// The `T` at `link`, or `None` if the link is null, outside the pool or misaligned.
    #[inline(always)]
    pub fn try_at<T: Persistent>(&self, link: Link<T>) -> Option<&T> {
        let offset = link.offset() as usize;
        let room = self.region.mapped_bytes().wrapping_sub(size_of::<T>());
        // Offset zero is the header, never a block; wrapped around it fails the comparison too.
        if offset.wrapping_sub(1) >= room || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned (checked above; bases are page-aligned), valid for any bit
        // pattern and only mutated through its cells (`Persistent`), mapped as long as `self`.
        Some(unsafe { &*self.address_of(link.offset()).cast::<T>() })
    }

    /// The `count` values of type `T` that lie one after the other from `link` on, or `None` if
    /// they are not all inside the pool or misaligned. For arrays whose length is known only at run
    /// time.
    #[inline(always)]
    pub fn try_slice<T: Persistent>(&self, link: Link<T>, count: usize) -> Option<&[T]> {
        let offset = link.offset() as usize;
        let bytes = size_of::<T>().checked_mul(count)?;
        let room = self.region.mapped_bytes().checked_sub(bytes)?;
        if offset.wrapping_sub(1) >= room || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: all of it is in bounds and aligned (checked above), each `T` is valid for any bit
        // pattern and only mutated through its cells (`Persistent`), mapped as long as `self`.
        Some(unsafe {
            std::slice::from_raw_parts(self.address_of(link.offset()).cast::<T>(), count)
        })
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
            None => damaged(link.offset()),
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
fn damaged(offset: u64) -> ! {
    panic!("the pool is damaged: a link refers to offset {offset:#x}, where no block can be")
}
