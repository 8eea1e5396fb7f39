//! Nodes: what a page of a tree holds.
//!
//! Slotted pages after G. Graefe, *Modern B-tree techniques* (2011): heads of keys beside the slots
//! (section 3.5), fence keys (4.2), truncated prefixes and separators (3.5, after R. Bayer, K. Unterauer,
//! *Prefix B-trees*, TODS 1977).
//!
//! # Layout
//!
//! ```text
//!   0 32  header of the page; kind 16: leaf, 17: inner node
//!  32  2  count      keys
//!  34  2  heap       bytes from the first record in use to the end of the page
//!  36  2  garbage    bytes among them that are nobody's
//!  38  1  level      0: leaf
//!  39  1  flags      bit 0: there is an upper fence, 1: a hashed leaf, 2: its slots are a table (`table.rs`)
//!  40  2  lower      bytes of the lower fence
//!  42  2  upper      bytes of the upper fence
//!  44  2  prefix     bytes that the fences, and so all keys, have in common
//!  46  2  tree       the last bits of its root's number: whose it is, should all above it be lost
//!  48  …  a slot for each key, in ascending order
//!      …  inner node: count + 1 references to children, which the page's header names (P2)
//!      …  free
//!      …  heap: records, in any order
//!      …  lower fence, upper fence, to the end of the page
//!
//!  slot   63            32 31        16 15         0
//!        +----------------+------------+------------+     head: the first four bytes of the key behind
//!        | head           | key bytes  | offset     |     the prefix, big-endian, zero behind the end
//!        +----------------+------------+------------+
//!
//!  record of a leaf    value bytes (2) │ key without prefix │ value
//!  record of an inner  key without prefix
//! ```
//!
//! Child `i` of an inner node has the keys from key `i - 1` (or the lower fence) on, up to key `i` (or the
//! upper fence).
//!
//! The slots of a hashed leaf are a table where it is looked up (`table.rs`).
//!
//! # Invariants
//!
//! * N1. All keys lie at or behind the lower fence and before the upper one, and ascend without a
//!   duplicate. The lower fence of the first page of a level is empty, and its last has no upper one.
//! * N2. Prefix is what the fences have in common; without an upper one, nothing.
//! * N3. Slots and references end before the heap begins; records and fences fill the heap but for the
//!   garbage.
//! * N4. In a leaf that puts have filled, [`fence_reserve`] bytes are free. So its upper fence may be
//!   replaced by one that is longer by as many, whenever the leaf was written.

mod builder;
mod edit;
mod entries;
mod source;
mod table;

pub(crate) use builder::{Builder, Contents, Overfull};
pub(crate) use edit::{insert_child, insert_record, remove_child, remove_record, replace_record};
pub(crate) use entries::{Entries, fence_reserve};
pub use entries::{LeafLayout, largest_record};
pub(crate) use source::Source;
pub(crate) use table::{check_table, fill_hole, put_in_order};

use core::cmp::Ordering;
use core::ops::Range;

use lapis_buffer::page::PAGE_HEADER_BYTES;
use lapis_buffer::{PageKind, PageNumber};

/// A leaf.
pub(crate) const LEAF: PageKind = PageKind(16);
/// A node that refers to others.
pub(crate) const INNER: PageKind = PageKind(17);

pub(crate) const COUNTS_AT: usize = PAGE_HEADER_BYTES;
pub(crate) const FENCES_AT: usize = COUNTS_AT + 8;
/// Where the slots are.
pub(crate) const SLOTS_AT: usize = FENCES_AT + 8;
/// Bytes of a slot, and of a reference.
pub(crate) const WORD: usize = 8;
/// Before the key in a leaf's record.
pub(crate) const VALUE_BYTES: usize = 2;
const HAS_UPPER: u64 = 1 << 56;
/// Of a leaf whose slots are a table on its page.
const IS_HASHED: u64 = 1 << 57;
/// Of a leaf whose slots are a table here.
const HAS_TABLE: u64 = 1 << 58;
const _: () = assert!(SLOTS_AT == 48 && SLOTS_AT.is_multiple_of(WORD));

/// The mark that nodes of a tree have.
pub(crate) fn mark_of(root: PageNumber) -> u16 {
    root.get() as u16
}

/// What all slots of keys begin with.
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            let mut head = [0; 4];
            head[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(head)
        }
    }
}

/// A slot of a node whose slots are in order.
pub(crate) fn slot_of(suffix: &[u8], offset: usize) -> u64 {
    slot(head_of(suffix), suffix.len(), offset)
}

/// A slot.
fn slot(mark: u32, suffix_bytes: usize, offset: usize) -> u64 {
    u64::from(mark) << 32 | (suffix_bytes as u64) << 16 | (offset as u64 & 0xffff)
}

/// How many bytes two keys have in common.
pub(crate) fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The shortest key behind `left` that is not behind `right`, which is behind `left`.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common_bytes(left, right) + 1).min(right.len())]
}

/// A node, to be read. Of a page that others change, everything may be nonsense, and nothing panics.
#[derive(Clone, Copy)]
pub(crate) struct Node<S> {
    source: S,
    counts: u64,
    fences: u64,
}

impl<S: Source> Node<S> {
    #[inline]
    pub(crate) fn new(source: S) -> Self {
        Self { source, counts: source.word(COUNTS_AT), fences: source.word(FENCES_AT) }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        (self.counts & 0xffff) as usize
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        (self.counts >> 16 & 0xffff) as usize
    }

    pub(crate) fn garbage(&self) -> usize {
        (self.counts >> 32 & 0xffff) as usize
    }

    #[inline]
    pub(crate) fn level(&self) -> u8 {
        (self.counts >> 48) as u8
    }

    pub(crate) fn has_upper(&self) -> bool {
        self.counts & HAS_UPPER != 0
    }

    /// What its entries are, and so what they take.
    pub(crate) fn entries(&self) -> Entries {
        match self.level() {
            0 if self.counts & IS_HASHED != 0 => Entries::Hashed,
            0 => Entries::Sorted,
            _ => Entries::Children,
        }
    }

    pub(crate) fn lower_bytes(&self) -> usize {
        (self.fences & 0xffff) as usize
    }

    pub(crate) fn upper_bytes(&self) -> usize {
        (self.fences >> 16 & 0xffff) as usize
    }

    #[inline]
    pub(crate) fn prefix_bytes(&self) -> usize {
        (self.fences >> 32 & 0xffff) as usize
    }

    /// The mark of its tree.
    pub(crate) fn tree(&self) -> u16 {
        (self.fences >> 48) as u16
    }

    pub(crate) fn source(&self) -> S {
        self.source
    }

    fn references(&self) -> usize {
        if self.level() == 0 { 0 } else { self.count() + 1 }
    }

    pub(crate) fn slots_end(&self) -> usize {
        match self.has_table() {
            true => self.table_end(),
            false => SLOTS_AT + WORD * (self.count() + self.references()),
        }
    }

    /// Bytes that its slots and references count for.
    fn slot_bytes(&self) -> usize {
        match self.entries() {
            Entries::Hashed => Entries::Hashed.bytes(0) * self.count(),
            _ => self.slots_end() - SLOTS_AT,
        }
    }

    /// Whether nothing that its header says is outside of the page.
    pub(crate) fn is_sound(&self) -> bool {
        self.slots_end() + self.heap_bytes() <= self.source.bytes()
            && self.lower_bytes() + self.upper_bytes() <= self.heap_bytes()
            && self.prefix_bytes() <= self.lower_bytes().min(self.upper_bytes())
            && (self.has_upper() || self.upper_bytes() == 0)
            && (self.counts & (IS_HASHED | HAS_TABLE) == 0 || self.is_table_sound())
    }

    /// Whether it refers to pages, and not to frames.
    pub(crate) fn refers_to_pages(&self) -> bool {
        let reference = |child| self.source.word(self.child_offset(child));
        (0..self.references()).all(|child| PageNumber::new(reference(child)).is_some())
    }

    /// Bytes of its entries: slots, references and records.
    pub(crate) fn entry_bytes(&self) -> usize {
        let nobodys = self.lower_bytes() + self.upper_bytes() + self.garbage();
        self.slot_bytes() + self.heap_bytes().saturating_sub(nobodys)
    }

    /// Bytes between the slots and the heap.
    pub(crate) fn gap(&self) -> usize {
        self.source.bytes().saturating_sub(self.slots_end() + self.heap_bytes())
    }

    /// Bytes that entries may still take (N4).
    pub(crate) fn free(&self) -> usize {
        let page_bytes = self.source.bytes();
        let taken = self.slot_bytes() + self.heap_bytes() + fence_reserve(page_bytes);
        (self.entries().room(page_bytes) + self.garbage()).saturating_sub(taken)
    }

    /// Whether an entry can be added, with a record of so many bytes, and the node be left as it is otherwise.
    pub(crate) fn takes(&self, record: usize) -> bool {
        if self.has_table() {
            return self.gap() >= record && self.has_slot();
        }
        let taken = self.slot_bytes() + self.heap_bytes() + self.entries().bytes(record);
        taken <= self.entries().room(self.source.bytes())
    }

    #[inline]
    pub(crate) fn slot(&self, at: usize) -> u64 {
        self.source.word(SLOTS_AT + WORD * at)
    }

    /// Where the key of a slot is, without the prefix.
    #[inline]
    fn suffix_range(&self, slot: u64) -> Range<usize> {
        let skipped = if self.level() == 0 { VALUE_BYTES } else { 0 };
        let start = (slot & 0xffff) as usize + skipped;
        start..start + (slot >> 16 & 0xffff) as usize
    }

    /// The part of a key behind the prefix; none if it is too short to belong here.
    #[inline]
    pub(crate) fn suffix_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(self.prefix_bytes()..)
    }

    /// Where `is_before` ends, which holds for the first slots of `range`.
    #[inline]
    fn partition(&self, range: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        const FIRST: usize = SLOTS_AT / WORD;
        let words = FIRST + range.start..FIRST + range.end;
        range.start + self.source.partition_words(words, is_before)
    }

    /// Where the slot of a key is, and whether it is there, or would have to be put: in order, behind those of all keys
    /// before it.
    #[inline]
    pub(crate) fn search(&self, suffix: &[u8]) -> (usize, bool) {
        match self.level() > 0 || self.counts >> 48 == HAS_UPPER >> 48 {
            true => self.search_in_order(suffix),
            false => self.search_other_leaf(suffix),
        }
    }

    /// The same in a leaf that is hashed, or the last.
    #[inline(never)]
    fn search_other_leaf(&self, suffix: &[u8]) -> (usize, bool) {
        if self.has_table() {
            return self.search_table(suffix);
        }
        // The last leaf has no prefix, so heads may say little there; and it is where ascending keys go.
        let is_behind = |last| self.source.compare(self.suffix_range(last), suffix).is_lt();
        match self.count() {
            count if count > 0 && !self.has_upper() && is_behind(self.slot(count - 1)) => {
                (count, false)
            }
            _ => self.search_in_order(suffix),
        }
    }

    /// The same where slots are in order, as those of inner nodes are.
    pub(crate) fn search_in_order(&self, suffix: &[u8]) -> (usize, bool) {
        let (count, head) = (self.count(), u64::from(head_of(suffix)));
        let first = self.partition(0..count, |slot| slot >> 32 < head);
        let is_tied = |at: usize| at < count && self.slot(at) >> 32 == head;
        if !is_tied(first) {
            return (first, false);
        }
        let mut end = first + 1;
        if is_tied(end) {
            end = self.partition(end..count, |slot| slot >> 32 == head);
        }
        let mut start = first;
        while start < end {
            let half = start + (end - start) / 2;
            match self.source.compare(self.suffix_range(self.slot(half)), suffix) {
                Ordering::Less => start = half + 1,
                Ordering::Equal => return (half, true),
                Ordering::Greater => end = half,
            }
        }
        (start, false)
    }

    /// Where the reference to a child is.
    #[inline]
    pub(crate) fn child_offset(&self, child: usize) -> usize {
        SLOTS_AT + WORD * (self.count() + child)
    }

    /// Where the value of a leaf's record is; none if that is not within the page.
    #[inline]
    pub(crate) fn value_range(&self, at: usize) -> Option<Range<usize>> {
        let slot = self.slot(at);
        let start = self.suffix_range(slot).end;
        let bytes = (self.source.word((slot & 0xffff) as usize) & 0xffff) as usize;
        (start + bytes <= self.source.bytes()).then_some(start..start + bytes)
    }

    /// Bytes of a record in the heap; none if it is not within the page.
    pub(crate) fn record_bytes(&self, at: usize) -> Option<usize> {
        let suffix = self.suffix_range(self.slot(at));
        match self.level() {
            0 => self.value_range(at).map(|value| VALUE_BYTES + suffix.len() + value.len()),
            _ => (suffix.end <= self.source.bytes()).then_some(suffix.len()),
        }
    }

    /// Where a record begins.
    pub(crate) fn record_offset(&self, at: usize) -> usize {
        (self.slot(at) & 0xffff) as usize
    }

    /// Whether a key is one that the node has or may get (N1).
    pub(crate) fn is_within_fences(&self, key: &[u8]) -> bool {
        self.source.compare(self.lower_range(), key) != Ordering::Greater
            && self.is_before_upper(key)
    }

    /// Whether a key comes before the upper fence, if there is one.
    #[inline]
    pub(crate) fn is_before_upper(&self, key: &[u8]) -> bool {
        !self.has_upper() || self.source.compare(self.upper_range(), key) == Ordering::Greater
    }

    fn lower_range(&self) -> Range<usize> {
        let end = self.source.bytes().saturating_sub(self.upper_bytes());
        end.saturating_sub(self.lower_bytes())..end
    }

    fn upper_range(&self) -> Range<usize> {
        let end = self.source.bytes();
        end.saturating_sub(self.upper_bytes())..end
    }
}

/// A node in a copy of one's own.
impl<'a> Node<&'a [u8]> {
    pub(crate) fn lower(&self) -> &'a [u8] {
        self.source.get(self.lower_range()).unwrap_or_default()
    }

    /// The upper fence; none if there is no end.
    pub(crate) fn upper(&self) -> Option<&'a [u8]> {
        self.has_upper().then(|| self.source.get(self.upper_range()).unwrap_or_default())
    }

    #[inline]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.lower().get(..self.prefix_bytes()).unwrap_or_default()
    }

    /// A key without its prefix; none if it is not within the page.
    pub(crate) fn suffix(&self, at: usize) -> Option<&'a [u8]> {
        self.source.get(self.suffix_range(self.slot(at)))
    }

    /// Key without its prefix, and value, of a leaf's record; none if it is not within the page.
    #[inline]
    pub(crate) fn record(&self, at: usize) -> Option<(&'a [u8], &'a [u8])> {
        let slot = self.slot(at);
        let record = self.source.get((slot & 0xffff) as usize..)?;
        let (value_bytes, record) = record.split_first_chunk()?;
        let (suffix, rest) = record.split_at_checked((slot >> 16 & 0xffff) as usize)?;
        Some((suffix, rest.get(..usize::from(u16::from_le_bytes(*value_bytes)))?))
    }

    /// Makes `key` the key of a slot.
    pub(crate) fn key_into(&self, at: usize, key: &mut Vec<u8>) -> Option<()> {
        let suffix = self.suffix(at)?;
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(suffix);
        Some(())
    }

    pub(crate) fn key(&self, at: usize) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        self.key_into(at, &mut key).map(|()| key)
    }

    pub(crate) fn child(&self, at: usize) -> u64 {
        self.source.word(self.child_offset(at))
    }
}

#[cfg(test)]
mod tests;
