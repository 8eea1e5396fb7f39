//! Store buffers: what a hardware thread has executed and the others do not see yet.
//!
//! A buffer holds stores, non-temporal stores, flushes, store fences and acknowledgements in program
//! order. An entry may leave, and thereby take effect, as soon as no earlier entry is ordered before
//! it. This is the order that Px86 preserves (Raad, Wickerson, Neis, Vafeiadis: "Persistency
//! Semantics of the Intel-x86 Architecture", POPL 2020, with synchronous flushes as in Khyzha and
//! Lahav: "Taming x86-TSO Persistency", POPL 2021), to which non-temporal stores are added as the
//! weakest thing the manuals allow:
//!
//! ```text
//!  earlier \ later   store    non-temporal  clwb       clflush    sfence   acknowledgement
//!  store             yes      same bytes    same line  yes        yes      yes
//!  non-temporal      same bytes             no         no         yes      no
//!  clwb              no       no            no         same line  yes      no
//!  clflush           yes      no            same line  yes        yes      yes
//!  sfence            yes      yes           yes        yes        yes      yes
//!  acknowledgement   yes      no            no         yes        yes      yes
//! ```
//!
//! Of these, the litmus suite finds a wrong entry for every pair but four, of which no program can
//! tell the outcomes apart: `clwb` before a store or another `clwb` (a late flush promises only
//! what eviction may do anyway), and `clwb` and `clflush` of one line in either order.
//!
//! `clflushopt` orders as `clwb` does. Loads are not in the buffer: they may overtake everything in
//! it, and see what it holds for their bytes. Locked instructions and `mfence` wait until it is empty.

use std::collections::VecDeque;

use lapis_pmem::LINE_BYTES;

/// What an entry does when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    Store,
    NonTemporal,
    /// `clwb` and `clflushopt`.
    Flush,
    /// `clflush`.
    StrongFlush,
    Fence,
    /// Something is told to the outside: a store that no memory holds.
    Acknowledgement,
}

/// An entry: its kind, the bytes it concerns, and what the owner of the buffer needs to perform it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry<E> {
    pub(crate) kind: EntryKind,
    /// Offset in the region.
    pub(crate) start: usize,
    /// Zero if it concerns none.
    pub(crate) bytes: usize,
    pub(crate) effect: E,
}

impl<E> Entry<E> {
    /// Whether the entry concerns any of these bytes.
    pub(crate) fn touches(&self, start: usize, bytes: usize) -> bool {
        self.start < start + bytes && start < self.start + self.bytes
    }

    fn shares_line(&self, other: &Self) -> bool {
        let lines = |entry: &Self| {
            let last = entry.start + entry.bytes.max(1) - 1;
            (entry.start / LINE_BYTES, last / LINE_BYTES)
        };
        let ((first, last), (other_first, other_last)) = (lines(self), lines(other));
        first <= other_last && other_first <= last
    }

    /// Whether this entry, earlier in program order, takes effect before `later`.
    fn precedes(&self, later: &Self) -> bool {
        use EntryKind::{Acknowledgement, Fence, Flush, NonTemporal, Store, StrongFlush};
        match (self.kind, later.kind) {
            (Fence, _) | (_, Fence) => true,
            (Store | NonTemporal, NonTemporal) | (NonTemporal, Store) => {
                self.touches(later.start, later.bytes)
            }
            (Store | StrongFlush, Flush) | (Flush, StrongFlush) => self.shares_line(later),
            (Store | StrongFlush | Acknowledgement, Store | StrongFlush | Acknowledgement) => true,
            (Flush, Store | NonTemporal | Flush | Acknowledgement)
            | (NonTemporal, Flush | StrongFlush | Acknowledgement)
            | (StrongFlush | Acknowledgement, NonTemporal)
            | (Acknowledgement, Flush) => false,
        }
    }
}

/// The store buffer of one worker, oldest entry first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreBuffer<E> {
    entries: VecDeque<Entry<E>>,
}

impl<E> Default for StoreBuffer<E> {
    fn default() -> Self {
        Self { entries: VecDeque::new() }
    }
}

impl<E> StoreBuffer<E> {
    pub(crate) fn push(&mut self, entry: Entry<E>) {
        self.entries.push_back(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, oldest first.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry<E>> {
        self.entries.iter()
    }

    /// The places of the entries that may leave now.
    pub(crate) fn leavable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.entries.len()).filter(|&at| self.may_leave(at))
    }

    pub(crate) fn may_leave(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        self.entries.iter().take(at).all(|earlier| !earlier.precedes(entry))
    }

    /// Removes the entry at a place from which it may leave.
    pub(crate) fn take(&mut self, at: usize) -> Option<Entry<E>> {
        self.entries.remove(at)
    }

    /// The place of the newest entry that concerns any of these bytes.
    pub(crate) fn newest_touching(&self, start: usize, bytes: usize) -> Option<usize> {
        self.entries.iter().rposition(|entry| {
            matches!(entry.kind, EntryKind::Store | EntryKind::NonTemporal)
                && entry.touches(start, bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(entries: &[(EntryKind, usize)]) -> StoreBuffer<()> {
        let mut buffer = StoreBuffer::default();
        for &(kind, start) in entries {
            buffer.push(Entry { kind, start, bytes: 8, effect: () });
        }
        buffer
    }

    fn leavable(entries: &[(EntryKind, usize)]) -> Vec<usize> {
        buffer(entries).leavable().collect()
    }

    #[test]
    fn stores_leave_in_program_order() {
        assert_eq!(leavable(&[(EntryKind::Store, 0), (EntryKind::Store, 64)]), [0]);
    }

    #[test]
    fn a_clwb_overtakes_stores_to_other_lines_only() {
        use EntryKind::{Flush, Store};
        assert_eq!(leavable(&[(Store, 0), (Flush, 64)]), [0, 1]);
        assert_eq!(leavable(&[(Store, 0), (Flush, 8)]), [0]);
        assert_eq!(leavable(&[(Flush, 0), (Store, 8)]), [0, 1]);
    }

    #[test]
    fn a_clflush_overtakes_no_store_and_is_overtaken_by_none() {
        use EntryKind::{Store, StrongFlush};
        assert_eq!(leavable(&[(Store, 0), (StrongFlush, 64)]), [0]);
        assert_eq!(leavable(&[(StrongFlush, 0), (Store, 64)]), [0]);
    }

    #[test]
    fn non_temporal_stores_leave_in_any_order_but_that_of_their_bytes() {
        use EntryKind::{NonTemporal, Store};
        assert_eq!(leavable(&[(NonTemporal, 0), (NonTemporal, 8), (Store, 16)]), [0, 1, 2]);
        assert_eq!(leavable(&[(Store, 0), (NonTemporal, 0)]), [0]);
        assert_eq!(leavable(&[(NonTemporal, 4), (Store, 8)]), [0]);
    }

    #[test]
    fn nothing_passes_a_fence() {
        use EntryKind::{Fence, Flush, NonTemporal, Store};
        for kind in [Store, NonTemporal, Flush] {
            assert_eq!(leavable(&[(kind, 0), (Fence, 0)]), [0]);
            assert_eq!(leavable(&[(Fence, 0), (kind, 0)]), [0]);
        }
    }

    #[test]
    fn an_acknowledgement_waits_for_stores_but_not_for_flushes_without_a_fence() {
        use EntryKind::{Acknowledgement, Flush, Store};
        assert_eq!(leavable(&[(Flush, 0), (Acknowledgement, 0)]), [0, 1]);
        assert_eq!(leavable(&[(Store, 0), (Acknowledgement, 0)]), [0]);
    }
}
