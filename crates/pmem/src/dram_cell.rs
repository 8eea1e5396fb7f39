//! Words of ordinary memory that ask to be observed: latches, page tables, mapping tables.
//!
//! What a structure keeps in the host's memory is none of a model's business, and so are the races
//! between its workers there. A [`DramCell`] makes them its business: on hardware it is the atomic
//! and each access the instruction; on the modelled machine each access is an event of the scheduler,
//! stores go through the worker's store buffer with all others, and locked ones wait for it to be
//! empty. A power cut leaves nothing of it.

use core::fmt::{self, Debug};
use core::sync::atomic::Ordering;

use crate::domain::Domain;
use crate::hold_ups;
use crate::word::Word;

/// What a [`DramCell`] is made of on a machine. See [`Observed::DramWord`](crate::Observed::DramWord).
pub trait DramWord<W: Word, D>: Send + Sync {
    /// A word that nobody knows of yet.
    fn new(value: W) -> Self;
    /// Loads it.
    fn load(&self, domain: &D, order: Ordering) -> W;
    /// Stores to it.
    fn store(&self, domain: &D, value: W, order: Ordering);
    /// Exchanges it (a locked instruction).
    fn swap(&self, domain: &D, value: W) -> W;
    /// Compares and exchanges it (a locked instruction). `Err` holds what was found.
    fn compare_exchange(&self, domain: &D, current: W, new: W) -> Result<W, W>;
}

/// A word that nobody observes: the atomic.
#[repr(transparent)]
pub struct PlainWord<W: Word>(W::Atomic);

impl PlainWord<u64> {
    /// A word of a static.
    pub(crate) const fn of(value: u64) -> Self {
        Self(core::sync::atomic::AtomicU64::new(value))
    }
}

impl<W: Word> Debug for PlainWord<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<W: Word, D> DramWord<W, D> for PlainWord<W> {
    #[inline(always)]
    fn new(value: W) -> Self {
        Self(W::atomic(value))
    }

    #[inline(always)]
    fn load(&self, _domain: &D, order: Ordering) -> W {
        hold_ups::step();
        W::load(&self.0, order)
    }

    #[inline(always)]
    fn store(&self, _domain: &D, value: W, order: Ordering) {
        hold_ups::step();
        W::store(&self.0, value, order);
    }

    #[inline(always)]
    fn swap(&self, _domain: &D, value: W) -> W {
        hold_ups::step();
        W::swap(&self.0, value, Ordering::AcqRel)
    }

    #[inline(always)]
    fn compare_exchange(&self, _domain: &D, current: W, new: W) -> Result<W, W> {
        hold_ups::step();
        W::compare_exchange(&self.0, current, new)
    }
}

/// An atomic word of ordinary memory that is observed. See the module documentation in the source.
///
/// ```
/// use lapis_pmem::{DramCell, Hardware};
///
/// let (domain, latch) = (Hardware::detect(), DramCell::<u32, Hardware>::new(0));
/// assert_eq!(latch.compare_exchange(&domain, 0, 1), Ok(0));
/// latch.store_release(&domain, 0);
/// assert_eq!(size_of_val(&latch), 4);
/// ```
#[repr(transparent)]
pub struct DramCell<W: Word, D: Domain>(D::DramWord<W>);

impl<W: Word, D: Domain> DramCell<W, D> {
    /// A word that nobody knows of yet.
    pub fn new(value: W) -> Self {
        Self(D::DramWord::new(value))
    }

    /// Loads without ordering.
    #[inline(always)]
    pub fn load(&self, domain: &D) -> W {
        self.0.load(domain, Ordering::Relaxed)
    }

    /// Loads; what follows in program order is not moved before it.
    #[inline(always)]
    pub fn load_acquire(&self, domain: &D) -> W {
        self.0.load(domain, Ordering::Acquire)
    }

    /// Stores without ordering: while nobody else can reach the word.
    #[inline(always)]
    pub fn store(&self, domain: &D, value: W) {
        self.0.store(domain, value, Ordering::Relaxed);
    }

    /// Stores after everything earlier in program order.
    #[inline(always)]
    pub fn store_release(&self, domain: &D, value: W) {
        self.0.store(domain, value, Ordering::Release);
    }

    /// Exchanges the word (a locked instruction).
    #[inline(always)]
    pub fn swap(&self, domain: &D, value: W) -> W {
        self.0.swap(domain, value)
    }

    /// Compares and exchanges the word (a locked instruction).
    ///
    /// # Errors
    /// What was found, if that is not `current`.
    #[inline(always)]
    pub fn compare_exchange(&self, domain: &D, current: W, new: W) -> Result<W, W> {
        self.0.compare_exchange(domain, current, new)
    }
}

impl<W: Word, D: Domain> Debug for DramCell<W, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DramCell")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;

    #[test]
    fn on_hardware_a_cell_is_the_atomic() {
        let (domain, cell) = (Hardware::detect(), DramCell::<u64, Hardware>::new(1));
        assert_eq!(size_of_val(&cell), 8);
        cell.store(&domain, 2);
        assert_eq!(cell.swap(&domain, 3), 2);
        assert_eq!(cell.compare_exchange(&domain, 2, 4), Err(3));
        assert_eq!(cell.compare_exchange(&domain, 3, 4), Ok(3));
        assert_eq!(cell.load_acquire(&domain), 4);
    }
}
