//! Hashed leaves: slots that are found by a hash of their key.
//!
//! After section 5.5 of A. van Renen et al., *Managing non-volatile memory in database systems*, SIGMOD 2018: leaves
//! that are an open-addressing hash table, so that a point lookup of a page that is loaded line by line touches few of them.
//! Binary search looks at about as many lines of slots as the logarithm of their number, less three; here it is the
//! first line of the page, one of the table, and those of the record.
//!
//! A leaf is hashed where it can be looked up, which is in frames and on devices, and in order everywhere else: in copies and
//! in the log. Who makes a page of such a leaf makes the table ([`fill_table`]), who copies one puts the slots in
//! order ([`put_in_order`]). So what splits, merges, moves and redoes leaves, and what reads them in order, knows of
//! leaves in order alone.
//!
//! # Layout
//!
//! What differs from other leaves:
//!
//! ```text
//!  39  1  flags      bit 1, and on pages bit 2
//!  48  2  slots      of the table
//!  50 14  zero
//!  64  …  the table, 8 slots to a line; the last line may have fewer
//!
//!  slot   63            32 31        16 15         0
//!        +----------------+------------+------------+     hash: the high half of XXH3-64 of the key behind the
//!        | hash           | key bytes  | offset     |     prefix
//!        +----------------+------------+------------+     all zero: free
//!
//!  home   line ⌊hash × slots ÷ 2³²⌋ ÷ 8
//! ```
//!
//! # Invariants
//!
//! * T1. The slot of a key lies in its home line, or in one behind it, all lines before which, from the home line on, are
//!   full. Behind the last line comes the first.
//! * T2. A table has [`least_slots`] of its records, so that one slot in five is free, and one at all.
//! * T3. In a line, slots are anywhere.
//!
//! So a lookup ends in the first line with a free slot (T1), and there is one (T2). A removal from a full line may take that
//! line out of the way of slots behind it: one of these then takes the place, and so on from where it was ([`fill_hole`]).
//! A table never grows in place: a leaf whose table is full is made anew, with as many slots as a page full of records like
//! those that it has will need.

use core::ops::Range;

use lapis_buffer::PageWrite;
use lapis_pmem::{Domain, LINE_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    COUNTS_AT, Entries, HAS_TABLE, IS_HASHED, Node, SLOTS_AT, Source, VALUE_BYTES, WORD,
    fence_reserve, head_of, slot,
};

/// Where the table is.
pub(super) const TABLE_AT: usize = LINE_BYTES;
/// The number of its first slot, counted from where those of other leaves begin.
const FIRST_SLOT: usize = (TABLE_AT - SLOTS_AT) / WORD;
const LINE_SLOTS: usize = LINE_BYTES / WORD;
const MARK: u64 = 0xffff_ffff << 32;

/// What slots of a table begin with.
pub(super) fn hash_of(suffix: &[u8]) -> u32 {
    (xxh3_64(suffix) >> 32) as u32
}

fn with_mark(slot: u64, mark: u32) -> u64 {
    u64::from(mark) << 32 | slot & !MARK
}

/// The fewest slots of a table with so many records (T2).
pub(super) const fn least_slots(records: usize) -> usize {
    records + records / 4 + 1
}

/// The lines of a table.
#[derive(Clone, Copy)]
struct Lines {
    slots: usize,
}

impl Lines {
    fn count(self) -> usize {
        self.slots.div_ceil(LINE_SLOTS)
    }

    /// The home of a slot, or of a hash.
    fn home(self, slot: u64) -> usize {
        (((slot >> 32) * self.slots as u64) >> 32) as usize / LINE_SLOTS
    }

    fn behind(self, line: usize) -> usize {
        if line + 1 < self.count() { line + 1 } else { 0 }
    }

    /// How many lines further on `to` is.
    fn distance(self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.count() - from }
    }

    /// The numbers of a line's slots.
    fn slots(self, line: usize) -> Range<usize> {
        let first = line * LINE_SLOTS;
        FIRST_SLOT + first..FIRST_SLOT + self.slots.min(first + LINE_SLOTS)
    }
}

impl<S: Source> Node<S> {
    /// Whether its slots are a table.
    #[inline]
    pub(crate) fn has_table(&self) -> bool {
        self.counts & HAS_TABLE != 0
    }

    fn lines(&self) -> Lines {
        Lines { slots: (self.source.word(SLOTS_AT) & 0xffff) as usize }
    }

    pub(super) fn table_end(&self) -> usize {
        TABLE_AT + WORD * self.lines().slots
    }

    /// Of a leaf that is hashed: whether it has the table that it should have, or room for it.
    pub(super) fn is_table_sound(&self) -> bool {
        let least = least_slots(self.count());
        let is_hashed_leaf = self.counts & IS_HASHED != 0 && self.level() == 0;
        is_hashed_leaf
            && TABLE_AT + WORD * least + self.heap_bytes() <= self.source.bytes()
            && (!self.has_table() || self.lines().slots >= least)
    }

    /// Whether the table has a slot for one more record (T2).
    pub(super) fn has_slot(&self) -> bool {
        least_slots(self.count() + 1) <= self.lines().slots
    }

    /// The slot of a record here.
    pub(super) fn slot_for(&self, suffix: &[u8], offset: usize) -> u64 {
        let mark = if self.has_table() { hash_of(suffix) } else { head_of(suffix) };
        slot(mark, suffix.len(), offset)
    }

    pub(super) fn search_table(&self, suffix: &[u8]) -> (usize, bool) {
        let hash = u64::from(hash_of(suffix)) << 32;
        self.find(hash, |slot| {
            // A damaged page may have records, and say that it has none.
            slot & MARK == hash
                && self.count() > 0
                && self.source.compare(self.suffix_range(slot), suffix).is_eq()
        })
    }

    /// Where the slot with this hash is that is meant, or else where it would be put (T1).
    fn find(&self, hash: u64, is_meant: impl Fn(u64) -> bool) -> (usize, bool) {
        let lines = self.lines();
        let mut line = lines.home(hash);
        for _ in 0..lines.count() {
            let mut free = None;
            for at in lines.slots(line) {
                match self.slot(at) {
                    0 => free = free.or(Some(at)),
                    slot if is_meant(slot) => return (at, true),
                    _ => {}
                }
            }
            if let Some(free) = free {
                return (free, false);
            }
            line = lines.behind(line);
        }
        // Only in what is no table.
        (FIRST_SLOT, false)
    }
}

/// Slots for the table of a leaf that is to get a record of `room` bytes at once.
fn slots_for<S: Source>(node: &Node<S>, room: usize) -> usize {
    let page_bytes = node.source.bytes();
    let fences = node.lower_bytes() + node.upper_bytes() + fence_reserve(page_bytes);
    let for_entries = Entries::Hashed.room(page_bytes).saturating_sub(fences);
    let when_full = match node.entry_bytes() {
        0 => for_entries / LINE_BYTES,
        bytes => node.count() * for_entries / bytes,
    };
    let most = page_bytes.saturating_sub(TABLE_AT + node.heap_bytes() + room) / WORD;
    least_slots(when_full).min(most).max(least_slots(node.count() + usize::from(room > 0)))
}

/// The key that a slot refers to, without its prefix, in the end of a page, from `heap_at` on.
fn suffix_in(heap: &[u8], heap_at: usize, slot: u64) -> &[u8] {
    let start = ((slot & 0xffff) as usize + VALUE_BYTES).wrapping_sub(heap_at);
    let end = start.wrapping_add((slot >> 16 & 0xffff) as usize);
    heap.get(start..end).unwrap_or_default()
}

/// Makes `slots` the table of a hashed leaf. The page is zero where that will be, and has all else.
pub(super) fn fill_table<D: Domain>(
    page: &mut PageWrite<'_, D>,
    slots: &[u8],
    heap: &[u8],
    room: usize,
) {
    let node = Node::new(page.read());
    page.set_word(SLOTS_AT, slots_for(&node, room) as u64);
    page.set_word(COUNTS_AT, node.counts | HAS_TABLE);
    let (node, heap_at) = (Node::new(page.read()), page.read().bytes() - heap.len());
    for slot in slots.as_chunks::<WORD>().0.iter().map(|slot| u64::from_le_bytes(*slot)) {
        let hash = hash_of(suffix_in(heap, heap_at, slot));
        let slot = with_mark(slot, hash);
        let (free, _) = node.find(slot, |_| false);
        page.set_word(SLOTS_AT + WORD * free, slot);
    }
}

/// Restores T1 where a slot is free that was not.
pub(crate) fn fill_hole<D: Domain>(page: &mut PageWrite<'_, D>, mut hole: usize) {
    let node = Node::new(page.read());
    if !node.has_table() {
        return;
    }
    let lines = node.lines();
    let mut line = (hole - FIRST_SLOT) / LINE_SLOTS;
    let was_full =
        |line: usize, hole: usize| lines.slots(line).all(|at| at == hole || node.slot(at) != 0);
    let mut next = line;
    while was_full(next, hole) {
        next = lines.behind(next);
        if next == line {
            return;
        }
        let came_by = |at: &usize| {
            let slot = node.slot(*at);
            let distance = lines.distance(lines.home(slot), next);
            slot != 0 && distance >= lines.distance(line, next)
        };
        if let Some(from) = lines.slots(next).find(came_by) {
            page.set_word(SLOTS_AT + WORD * hole, node.slot(from));
            page.set_word(SLOTS_AT + WORD * from, 0);
            (hole, line) = (from, next);
        }
    }
}

/// Puts the slots of a copied page in order, if they are a table: those that there are. Nothing is what it should be in
/// a page that makes no sense, and nothing panics.
pub(crate) fn put_in_order(page: &mut [u8]) {
    let node = Node::new(&*page);
    if !node.has_table() {
        return;
    }
    let (counts, end) = (node.counts & !(HAS_TABLE | 0xffff), node.slots_end().min(page.len()));
    let (front, heap) = page.split_at_mut(end);
    let suffix_of = |slot: u64| suffix_in(heap, end, slot);
    let mut count = 0;
    for from in (TABLE_AT..end).step_by(WORD) {
        let Some(word) = front[from..].first_chunk().copied().map(u64::from_le_bytes) else {
            break;
        };
        if word != 0 {
            let slot = with_mark(word, head_of(suffix_of(word)));
            front[SLOTS_AT + WORD * count..][..WORD].copy_from_slice(&slot.to_le_bytes());
            count += 1;
        }
    }
    let (slots, _) = front[SLOTS_AT..][..WORD * count].as_chunks_mut::<WORD>();
    slots.sort_unstable_by_key(|slot| u64::from_le_bytes(*slot));
    let word = |slot: &[u8; WORD]| u64::from_le_bytes(*slot);
    for tied in slots.chunk_by_mut(|one, other| word(one) & MARK == word(other) & MARK) {
        tied.sort_unstable_by(|one, other| suffix_of(word(one)).cmp(suffix_of(word(other))));
    }
    front[COUNTS_AT..][..WORD].copy_from_slice(&(counts | count as u64).to_le_bytes());
}

/// T1, T2, and that all records are in the table. Of a page as it is, whose header makes sense.
pub(crate) fn check_table(node: &Node<&[u8]>) -> Result<(), &'static str> {
    if node.entries() != Entries::Hashed {
        return Ok(());
    }
    if !node.has_table() {
        return Err("it is hashed and has no table");
    }
    let (lines, mut count) = (node.lines(), 0);
    let is_full = |line: usize| lines.slots(line).all(|at| node.slot(at) != 0);
    for line in 0..lines.count() {
        for slot in lines.slots(line).map(|at| node.slot(at)).filter(|slot| *slot != 0) {
            count += 1;
            let suffix = node.source.get(node.suffix_range(slot)).unwrap_or_default();
            if slot & MARK != u64::from(hash_of(suffix)) << 32 {
                return Err("the hash in a slot is not that of its key");
            }
            let mut before = lines.home(slot);
            while before != line {
                if !is_full(before) {
                    return Err("a record is not found by its hash");
                }
                before = lines.behind(before);
            }
        }
    }
    if count == node.count() { Ok(()) } else { Err("its table has not as many records as it says") }
}

#[cfg(test)]
mod tests;
