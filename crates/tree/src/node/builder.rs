//! Nodes that are made anew: of a split, a merge, a load, or without the garbage.

use lapis_buffer::{ExclusivePage, PageWrite};
use lapis_pmem::Domain;

use super::table::fill_table;
use super::{
    COUNTS_AT, Entries, FENCES_AT, HAS_UPPER, INNER, IS_HASHED, LEAF, Node, SLOTS_AT, VALUE_BYTES,
    WORD, common_bytes, slot_of,
};

/// There is no room for an entry, or there is none of the kind that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overfull;

/// A node in the making. Entries come in ascending order.
#[derive(Debug)]
pub(crate) struct Builder {
    page: Vec<u8>,
    tree: u16,
    level: u8,
    entries: Entries,
    has_upper: bool,
    lower: usize,
    upper: usize,
    prefix: usize,
    count: usize,
    heap: usize,
    children: Vec<u64>,
}

impl Builder {
    /// A leaf.
    pub(crate) fn leaf(
        page_bytes: usize,
        (tree, entries): (u16, Entries),
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Self {
        Self::new(page_bytes, (tree, 0, entries), lower, upper)
    }

    /// An inner node; its first child has the keys from the lower fence on.
    pub(crate) fn inner(
        page_bytes: usize,
        (tree, level): (u16, u8),
        fences: (&[u8], Option<&[u8]>),
        first_child: u64,
    ) -> Self {
        let of = (tree, level, Entries::Children);
        let mut made = Self::new(page_bytes, of, fences.0, fences.1);
        made.children.push(first_child);
        made
    }

    /// An empty node like `node` in all but its upper fence.
    pub(crate) fn like(node: &Node<&[u8]>, upper: Option<&[u8]>) -> Self {
        let of = (node.tree(), node.level(), node.entries());
        let mut made = Self::new(node.source().len(), of, node.lower(), upper);
        if made.level > 0 {
            made.children.push(node.child(0));
        }
        made
    }

    fn new(
        page_bytes: usize,
        (tree, level, entries): (u16, u8, Entries),
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Self {
        let mut page = vec![0; page_bytes];
        let end = upper.unwrap_or_default();
        // The callers' fences are keys, two of which leave half of a page.
        let heap = (lower.len() + end.len()).min(page_bytes);
        let fences = page[page_bytes - heap..].split_at_mut(lower.len().min(heap));
        fences.0.copy_from_slice(&lower[..fences.0.len()]);
        fences.1.copy_from_slice(&end[..fences.1.len()]);
        Self {
            page,
            tree,
            level,
            entries,
            has_upper: upper.is_some(),
            lower: lower.len(),
            upper: end.len(),
            prefix: common_bytes(lower, end),
            count: 0,
            heap,
            children: Vec::new(),
        }
    }

    /// Bytes that its slots and references count for.
    fn slot_bytes(&self) -> usize {
        let first_child = self.children.len().saturating_sub(self.count);
        self.entries.bytes(0) * self.count + WORD * first_child
    }

    /// Bytes of its entries.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.slot_bytes() + self.heap.saturating_sub(self.lower + self.upper)
    }

    fn add(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), Overfull> {
        let suffix = key.get(self.prefix..).ok_or(Overfull)?;
        let bytes = head.len() + suffix.len() + value.len();
        let taken = self.slot_bytes() + self.heap + self.entries.bytes(bytes);
        if taken > self.entries.room(self.page.len()) {
            return Err(Overfull);
        }
        self.heap += bytes;
        let offset = self.page.len() - self.heap;
        let mut at = offset;
        for part in [head, suffix, value] {
            self.page[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let slot = SLOTS_AT + WORD * self.count;
        self.page[slot..slot + WORD].copy_from_slice(&slot_of(suffix, offset).to_le_bytes());
        self.count += 1;
        Ok(())
    }

    /// Adds a record to a leaf.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Overfull> {
        let head: [u8; VALUE_BYTES] = (value.len() as u16).to_le_bytes();
        self.add(key, &head, value)
    }

    /// Adds a child to an inner node: it has the keys from `key` on.
    pub(crate) fn push_child(&mut self, key: &[u8], child: u64) -> Result<(), Overfull> {
        self.add(key, &[], &[])?;
        self.children.push(child);
        Ok(())
    }

    /// Adds entries of another node of the level. Of an inner node, the child behind each key.
    pub(crate) fn push_all(
        &mut self,
        node: &Node<&[u8]>,
        entries: core::ops::Range<usize>,
    ) -> Result<(), Overfull> {
        let mut key = node.prefix().to_vec();
        for at in entries {
            key.truncate(node.prefix_bytes());
            if self.level == 0 {
                let (suffix, value) = node.record(at).ok_or(Overfull)?;
                key.extend_from_slice(suffix);
                self.push(&key, value)?;
            } else {
                key.extend_from_slice(node.suffix(at).ok_or(Overfull)?);
                self.push_child(&key, node.child(at + 1))?;
            }
        }
        Ok(())
    }

    /// The node as a page, the header of which is zero.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut counts = self.count as u64 | (self.heap as u64) << 16 | u64::from(self.level) << 48;
        if self.has_upper {
            counts |= HAS_UPPER;
        }
        if self.entries == Entries::Hashed {
            counts |= IS_HASHED;
        }
        let fences = self.lower as u64 | (self.upper as u64) << 16 | (self.prefix as u64) << 32;
        let fences = fences | u64::from(self.tree) << 48;
        self.page[COUNTS_AT..FENCES_AT].copy_from_slice(&counts.to_le_bytes());
        self.page[FENCES_AT..SLOTS_AT].copy_from_slice(&fences.to_le_bytes());
        let first = SLOTS_AT + WORD * self.count;
        let words = self.page[first..].chunks_exact_mut(WORD);
        words.zip(&self.children).for_each(|(word, child)| {
            word.copy_from_slice(&child.to_le_bytes());
        });
        self.page
    }
}

/// What a node consists of, without what is free between them: header and slots, which are in order, and the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents<'a> {
    pub(crate) slots: &'a [u8],
    pub(crate) heap: &'a [u8],
}

impl<'a> Contents<'a> {
    /// Those of a page; none if there is no node in it.
    pub(crate) fn of(page: &'a [u8]) -> Option<Self> {
        let node = Node::new(page);
        let (slots, heap) = (COUNTS_AT..node.slots_end(), page.len() - node.heap_bytes()..);
        (node.is_sound() && !node.has_table())
            .then(|| Self { slots: &page[slots], heap: &page[heap] })
    }

    /// Those that a record of the log holds; none if they are no node's.
    pub(crate) fn checked(self, page_bytes: usize) -> Option<Self> {
        if COUNTS_AT + self.slots.len() + self.heap.len() > page_bytes {
            return None;
        }
        let mut page = vec![0; page_bytes];
        page[COUNTS_AT..COUNTS_AT + self.slots.len()].copy_from_slice(self.slots);
        let heap = page_bytes - self.heap.len();
        page[heap..].copy_from_slice(self.heap);
        let node = Node::new(&page[..]);
        let is_whole = node.slots_end() == COUNTS_AT + self.slots.len()
            && node.heap_bytes() == self.heap.len();
        let is_node = is_whole && node.is_sound() && !node.has_table();
        (is_node && node.refers_to_pages()).then_some(self)
    }

    /// Makes a page these, by the change `lsn` of the log. It is to get an entry with a record of `room` bytes at once.
    pub(crate) fn install<D: Domain>(
        &self,
        page: &mut ExclusivePage<'_, D>,
        lsn: u64,
        room: usize,
    ) {
        let number = page.number();
        let mut into: PageWrite<'_, D> = page.write(lsn);
        let latest = into.read().lsn();
        let level = self.slots.get(6).copied().unwrap_or_default();
        into.begin(if level == 0 { LEAF } else { INNER }, number);
        into.set_lsn(latest);
        let heap = into.read().bytes() - self.heap.len();
        into.copy_from(heap, self.heap);
        let (header, slots) = self.slots.split_at(SLOTS_AT - COUNTS_AT);
        into.copy_from(COUNTS_AT, header);
        let node = Node::new(into.read());
        match node.entries() {
            Entries::Hashed => fill_table(&mut into, slots, self.heap, room),
            Entries::Sorted => into.copy_from(SLOTS_AT, slots),
            Entries::Children => {
                into.copy_from(SLOTS_AT, slots);
                into.set_references(node.child_offset(0), node.count() + 1);
            }
        }
    }
}
