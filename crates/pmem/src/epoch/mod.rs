//! Epochs: who may still be reading what has been unlinked.
//!
//! A reader pins: it writes the epoch into its own word and reads on. A writer that has unlinked
//! something *stamps* it with the epoch, which becomes one greater. What carries a stamp is free
//! when every reader's word is zero or greater than the stamp ([`Clock::oldest`]).
//!
//! The word must be visible before the reader's first load. A fence or a locked instruction would see
//! to that, and would be the dearest thing that a look-up in a cached index does: it waits for the
//! flushes of the operation before, and no cache miss overlaps one of the next operation. Readers are
//! many and reclaiming is rare, so the reclaimer pays for both: it has the kernel put a barrier into
//! every thread of the process ([`barrier`]), and a pin is a plain store.
//!
//! # Why nothing is freed that somebody reads
//!
//! Let a reader `R` have read a link to a block that a writer unlinked, stamped `s`, and let a
//! reclaimer find it free. The reclaimer has loaded the clock, greater than `s`, then ordered all
//! threads, then looked at `R`'s word.
//!
//! * E1. The unlinking comes before the reclaimer's barrier: it came before the stamp, which the
//!   load of the clock has seen (release and acquire; each advance of the clock is a
//!   compare-exchange, so one sees all before it).
//! * E2. The barrier meets `R` somewhere in its program. If that is before `R` stores its word, all
//!   of `R`'s loads come after the barrier and see the unlinking (E1): `R` cannot have read the
//!   link. Otherwise the store is visible to the reclaimer, which finds `R`'s word, or what `R` has
//!   stored there since.
//! * E3. A word greater than `s` was loaded from the clock after the stamp. So whatever `R` loads
//!   after that comes after the unlinking (acquire).
//! * E4. Every word was stored as a release, after `R`'s last load of the pin before. So those loads
//!   come before the reuse of the block if the reclaimer has found a later word; and the next pin
//!   is one that E2 speaks of.
//! * E5. A word of at most `s` makes the reclaimer leave the block. That a reader may store an
//!   epoch that is long gone only makes others wait.
//!
//! A reader whose word the reclaimer does not know of was added to the list after the reclaimer had
//! read it, under the same lock, and so sees the unlinking.
//!
//! Where the kernel has no such barrier, each pin has a fence, and so has the reclaimer: E2 then is
//! the rule for two sequentially consistent fences.
//!
//! The same code runs on a modelled machine with store buffers, where the barrier empties those of
//! all workers ([`Observed::synchronize_all`](crate::Observed::synchronize_all)) and all schedules
//! are explored. Pools on deterministic machines count their pins instead, so that a block is freed
//! at the same instant in every run.

pub(crate) mod barrier;
#[cfg(all(test, loom))]
mod every_order;
pub mod mutants;
mod readers;

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::domain::Domain;
use crate::dram_cell::DramWord;

pub(crate) use readers::{PROCESS, ProcessReader};

/// What a reader's word says while it is not pinned. No epoch is zero.
const UNPINNED: u64 = 0;

/// The epoch. `W` is a word of ordinary memory, observed or not: see
/// [`DramWord`](crate::DramWord).
#[derive(Debug)]
pub struct Clock<W> {
    now: W,
}

/// One thread's entry, on lines of its own: the prefetcher fetches them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Reader<W> {
    /// The epoch of the outermost pin, or [`UNPINNED`].
    epoch: W,
    /// Pins that are alive. Only the thread itself looks at it.
    pins: AtomicU32,
    /// Whether a pin has to have a fence.
    fences: bool,
}

impl<W> Clock<W> {
    /// A clock that begins now.
    pub fn new<D: Domain>() -> Self
    where
        W: DramWord<u64, D>,
    {
        Self { now: W::new(1) }
    }

    /// The epoch in which the caller has unlinked what it did until now. The next pins are of a
    /// later one.
    pub fn stamp<D: Domain>(&self, domain: &D) -> u64
    where
        W: DramWord<u64, D>,
    {
        loop {
            let now = self.now.load(domain, Ordering::Relaxed);
            if self.now.compare_exchange(domain, now, now + 1).is_ok() {
                return now;
            }
        }
    }

    /// The epoch before which everything that was stamped is free. `readers` is called behind the
    /// barrier.
    pub fn oldest<'r, D: Domain, I: IntoIterator<Item = &'r Reader<W>>>(
        &self,
        domain: &D,
        readers: impl FnOnce() -> I,
    ) -> u64
    where
        W: DramWord<u64, D> + 'r,
    {
        // E1.
        let now = self.now.load(domain, Ordering::Acquire);
        let ordered = domain.commits(mutants::NO_BARRIER) || order_all_threads(domain);
        if !ordered {
            return UNPINNED;
        }
        oldest_of(domain, readers().into_iter()).min(now)
    }

    /// As [`Clock::oldest`], but possibly too late an epoch: without the barrier, for finding out
    /// whether that is worth it.
    pub(crate) fn oldest_at_a_glance<'r, D: Domain>(
        &self,
        domain: &D,
        readers: impl Iterator<Item = &'r Reader<W>>,
    ) -> u64
    where
        W: DramWord<u64, D> + 'r,
    {
        oldest_of(domain, readers).min(self.now.load(domain, Ordering::Acquire))
    }
}

fn oldest_of<'r, D: Domain, W: DramWord<u64, D> + 'r>(
    domain: &D,
    readers: impl Iterator<Item = &'r Reader<W>>,
) -> u64 {
    // E4: acquire.
    let pinned = readers.map(|reader| reader.epoch.load(domain, Ordering::Acquire));
    pinned.filter(|&epoch| epoch != UNPINNED).min().unwrap_or(u64::MAX)
}

impl<W> Reader<W> {
    /// An entry of a thread that is not pinned. `fences` as [`barrier::pins_need_fences`] says.
    fn with_fences<D: Domain>(fences: bool) -> Self
    where
        W: DramWord<u64, D>,
    {
        Self { epoch: W::new(UNPINNED), pins: AtomicU32::new(0), fences }
    }

    /// An entry of a worker of a modelled machine.
    pub fn of_worker<D: Domain>() -> Self
    where
        W: DramWord<u64, D>,
    {
        Self::with_fences(!D::DETERMINISTIC && barrier::pins_need_fences())
    }

    /// Pins, once more if it is pinned. For the thread whose entry this is.
    #[inline(always)]
    pub fn pin<D: Domain>(&self, domain: &D, clock: &Clock<W>)
    where
        W: DramWord<u64, D>,
    {
        let pins = self.pins.load(Ordering::Relaxed);
        self.pins.store(pins + 1, Ordering::Relaxed);
        if pins > 0 {
            return;
        }
        // E3: acquire.
        let now = clock.now.load(domain, Ordering::Acquire);
        // A release as well, so that whoever finds this word finds what the pin before has read done.
        self.epoch.store(domain, now, Ordering::Release);
        // The compiler keeps the order of the program; the reclaimer sees to the processor (E2).
        compiler_fence(Ordering::SeqCst);
        if self.fences {
            domain.order(Ordering::SeqCst);
        }
    }

    /// Ends a pin. For the thread whose entry this is.
    #[inline(always)]
    pub fn unpin<D: Domain>(&self, domain: &D)
    where
        W: DramWord<u64, D>,
    {
        let pins = self.pins.load(Ordering::Relaxed) - 1;
        self.pins.store(pins, Ordering::Relaxed);
        if pins == 0 {
            // E4.
            self.epoch.store(domain, UNPINNED, Ordering::Release);
        }
    }
}

/// The barrier of E2. False if it could not be had.
fn order_all_threads<D: Domain>(domain: &D) -> bool {
    if D::DETERMINISTIC {
        domain.synchronize_all();
        true
    } else {
        barrier::order_all_threads()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hardware, PlainWord};

    type Word = PlainWord<u64>;

    fn setting() -> (Hardware, Clock<Word>, [Reader<Word>; 2]) {
        let readers = [(); 2].map(|()| Reader::of_worker::<Hardware>());
        (Hardware::detect(), Clock::new::<Hardware>(), readers)
    }

    #[test]
    fn a_stamp_is_free_when_all_who_pinned_before_it_have_gone() {
        let (domain, clock, readers) = setting();
        let oldest = || clock.oldest(&domain, || readers.iter());
        readers[0].pin(&domain, &clock);
        let first = clock.stamp(&domain);
        readers[1].pin(&domain, &clock);
        let second = clock.stamp(&domain);
        assert!(oldest() <= first);
        readers[0].unpin(&domain);
        assert!((first + 1..=second).contains(&oldest()));
        readers[1].unpin(&domain);
        assert!(oldest() > second);
    }

    #[test]
    fn what_is_stamped_later_is_not_free_yet() {
        let (domain, clock, readers) = setting();
        let oldest = clock.oldest(&domain, || readers.iter());
        assert!(clock.stamp(&domain) >= oldest);
    }

    #[test]
    fn the_outermost_pin_counts_in_whatever_order_pins_end() {
        let (domain, clock, [reader, _]) = setting();
        reader.pin(&domain, &clock);
        let stamp = clock.stamp(&domain);
        reader.pin(&domain, &clock);
        reader.unpin(&domain);
        let oldest = || clock.oldest(&domain, || std::iter::once(&reader));
        assert!(oldest() <= stamp);
        reader.unpin(&domain);
        assert!(oldest() > stamp);
    }
}
