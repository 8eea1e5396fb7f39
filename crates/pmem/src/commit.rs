//! The end of a mutation: [`Visible`] (others can see it, a power cut may still undo it) and
//! [`Committed`] (durable).

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use crate::domain::{Domain, fence_for_other_threads, lies_in_one_line};

/// A store that others can see and a power cut may still undo. It must be persisted.
///
/// Dropping one is a bug: the compiler warns (`#[must_use]`), debug builds panic, and a release
/// build persists it rather than lose it.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use lapis_pmem::*;
/// # fn f<D: Domain>(domain: &D, cell: &PCell<u64>) {
/// cell.publish(domain, 7); // never persisted
/// # }
/// ```
#[must_use = "a visible store is not durable until it is persisted"]
pub struct Visible<'a, D: Domain> {
    domain: &'a D,
    start: *const u8,
    bytes: usize,
    one_line: bool,
    _range: PhantomData<&'a [u8]>,
}

/// A visible store whose line has been flushed, waiting for this thread's next fence.
#[must_use = "a flushed store is not durable until it is fenced"]
pub struct Flushed<'a> {
    _thread: PhantomData<(*const (), &'a ())>,
}

/// Proof that a mutation is durable. Every mutating operation ends in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed(());

impl Committed {
    /// The commit of an operation that changed nothing, so that there was nothing to persist.
    #[inline(always)]
    pub fn nothing_to_do() -> Self {
        Self(())
    }

    /// The commit of an operation that used ordered stores ([`crate::PCell::store_ordered`])
    /// followed by its own flushes, ended by this fence.
    #[inline(always)]
    #[track_caller]
    pub fn after_fence<D: Domain>(domain: &D) -> Self {
        domain.fence();
        Self(())
    }
}

impl<'a, D: Domain> Visible<'a, D> {
    #[inline(always)]
    pub(crate) fn of<T: ?Sized>(domain: &'a D, what: &'a T) -> Self {
        Self {
            domain,
            start: (&raw const *what).cast(),
            bytes: size_of_val(what),
            one_line: lies_in_one_line(what),
            _range: PhantomData,
        }
    }

    /// Flushes and fences: durable on return. One flush, one fence.
    #[inline(always)]
    #[track_caller]
    pub fn persist(self) -> Committed {
        let visible = ManuallyDrop::new(self);
        // SAFETY: the range was borrowed from a live reference in `of`.
        unsafe {
            if visible.one_line {
                visible.domain.persist_line(visible.start);
            } else {
                visible.domain.flush_range(visible.start, visible.bytes);
                visible.domain.fence();
            }
        }
        Committed(())
    }

    /// Flushes only; several of these share one fence ([`Flushed::fence`]).
    #[inline(always)]
    #[track_caller]
    pub fn flush(self) -> Flushed<'a> {
        let visible = ManuallyDrop::new(self);
        // SAFETY: as in `persist`.
        unsafe {
            if visible.one_line {
                visible.domain.flush_line(visible.start);
            } else {
                visible.domain.flush_range(visible.start, visible.bytes);
            }
        }
        Flushed { _thread: PhantomData }
    }
}

impl<'a> Flushed<'a> {
    /// Fences: this and every other store that this thread has flushed is durable on return.
    #[inline(always)]
    #[track_caller]
    pub fn fence<D: Domain>(self, domain: &D) -> Committed {
        domain.fence();
        Committed(())
    }

    /// Fences as [`Flushed::fence`] does, where only other threads could tell if it did not: see
    /// [`fence_for_other_threads`].
    #[inline(always)]
    pub fn fence_for_other_threads<D: Domain>(self, domain: &D) -> Committed {
        fence_for_other_threads(domain);
        Committed(())
    }

    /// Joins another flushed store, so that one fence covers both.
    #[inline(always)]
    pub fn and(self, _other: Flushed<'a>) -> Flushed<'a> {
        self
    }
}

impl<D: Domain> Drop for Visible<'_, D> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: as in `persist`.
        unsafe { self.domain.flush_range(self.start, self.bytes) };
        self.domain.fence();
        debug_assert!(
            std::thread::panicking(),
            "a visible store was dropped without being persisted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hardware, PCell};

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "without being persisted")]
    fn dropping_a_visible_store_panics_in_debug_builds() {
        let domain = Hardware::detect();
        let cell = PCell::new(0u64);
        drop(cell.publish(&domain, 1));
    }

    #[test]
    fn two_visible_stores_share_one_fence() {
        let domain = Hardware::detect();
        let (a, b) = (PCell::new(0u64), PCell::new(0u64));
        let first = a.publish(&domain, 1).flush();
        let second = b.publish(&domain, 2).flush();
        let _: Committed = first.and(second).fence(&domain);
        assert_eq!((a.load(&domain), b.load(&domain)), (1, 2));
    }
}
