//! The readers of this process: one entry for each thread that has ever pinned, used again when the
//! thread has ended.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Clock, Reader, UNPINNED, barrier};
use crate::domain::Domain;
use crate::dram_cell::{DramWord, PlainWord};
use crate::hardware::Hardware;

type Word = PlainWord<u64>;

/// The epochs of this process.
pub(crate) struct Process {
    clock: Clock<Word>,
    /// Few, and never given back: readers refer to theirs for as long as they live.
    entries: Mutex<Vec<&'static Entry>>,
}

/// The epochs of this process: of all pools on machines that are not deterministic.
pub(crate) static PROCESS: Process =
    Process { clock: Clock { now: PlainWord::of(1) }, entries: Mutex::new(Vec::new()) };

/// A thread of this process that reads.
pub(crate) type ProcessReader = &'static Reader<Word>;

struct Entry {
    reader: Reader<Word>,
    /// Whether a thread has it. Changes to true under the lock of the entries.
    taken: AtomicBool,
}

thread_local! {
    /// Apart from what gives it back, so that reading it is one load: it needs no destructor.
    static MINE: Cell<Option<ProcessReader>> = const { Cell::new(None) };
    static GIVES_BACK: GivesBack = const { GivesBack(Cell::new(None)) };
}

struct GivesBack(Cell<Option<&'static Entry>>);

impl Drop for GivesBack {
    fn drop(&mut self) {
        // A guard may outlive this, in another local of the thread, or for ever: it keeps the entry.
        if let Some(entry) = self.0.get()
            && entry.reader.pins.load(Ordering::Relaxed) == 0
        {
            MINE.set(None);
            entry.taken.store(false, Ordering::Release);
        }
    }
}

impl Process {
    /// Pins the calling thread. It has to end the pin itself.
    #[inline(always)]
    pub(crate) fn pin<D: Domain>(&self, domain: &D) -> ProcessReader {
        let mine = match MINE.get() {
            Some(mine) => mine,
            None => self.enter(),
        };
        mine.pin(domain, &self.clock);
        mine
    }

    /// Takes an entry for the calling thread.
    #[cold]
    #[inline(never)]
    fn enter(&self) -> ProcessReader {
        let mut entries = self.entries.lock();
        let free = entries.iter().find(|entry| !entry.taken.load(Ordering::Acquire)).copied();
        let entry = free.unwrap_or_else(|| {
            let reader = Reader::with_fences::<Hardware>(barrier::pins_need_fences());
            let entry = Box::leak(Box::new(Entry { reader, taken: AtomicBool::new(true) }));
            entries.push(entry);
            entry
        });
        entry.taken.store(true, Ordering::Relaxed);
        drop(entries);
        MINE.set(Some(&entry.reader));
        // A thread that pins while its locals are being dropped keeps the entry for ever.
        let _ = GIVES_BACK.try_with(|gives_back| gives_back.0.set(Some(entry)));
        &entry.reader
    }

    /// [`Clock::stamp`].
    pub(crate) fn stamp<D: Domain>(&self, domain: &D) -> u64 {
        self.clock.stamp(domain)
    }

    /// Whether the calling thread itself has been pinned since before what was stamped so was unlinked.
    pub(crate) fn is_kept_here<D: Domain>(&self, domain: &D, stamp: u64) -> bool {
        let pinned = MINE.get().map_or(UNPINNED, |mine| mine.epoch.load(domain, Ordering::Relaxed));
        pinned != UNPINNED && pinned <= stamp
    }

    /// What [`Clock::oldest`] says, if what was stamped `first`, before anything else that waits, may
    /// be free.
    pub(crate) fn oldest_if_beyond<D: Domain>(&self, domain: &D, first: u64) -> Option<u64> {
        let entries = || self.entries.lock().clone().into_iter().map(|entry| &entry.reader);
        (first < self.clock.oldest_at_a_glance(domain, entries()))
            .then(|| self.clock.oldest(domain, entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_leave_their_entries_to_others() {
        let domain = Hardware::detect();
        for _ in 0..100 {
            std::thread::spawn({
                let domain = domain.clone();
                move || PROCESS.pin(&domain).unpin(&domain)
            })
            .join()
            .unwrap();
        }
        // Other tests have threads too.
        assert!(PROCESS.entries.lock().len() < 100);
    }

    #[test]
    fn a_thread_that_ends_pinned_keeps_what_it_may_see() {
        let domain = Hardware::detect();
        let reader = std::thread::spawn({
            let domain = domain.clone();
            move || PROCESS.pin(&domain)
        })
        .join()
        .unwrap();
        let stamp = PROCESS.stamp(&domain);
        assert_eq!(PROCESS.oldest_if_beyond(&domain, stamp), None);
        reader.unpin(&domain);
        while PROCESS.oldest_if_beyond(&domain, stamp).is_none_or(|oldest| oldest <= stamp) {
            std::thread::yield_now();
        }
    }
}
