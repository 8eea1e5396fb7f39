//! Nodes: where their words are, and what the control word says. The diagrams are in the
//! [module documentation](super).

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use lapis_pmem::{
    AllocError, Dirty, Domain, InFlight, LINE_BYTES, LINK_MASK, Link, Owned, PCell, Pool,
    persistent,
};

use super::node_kind::WbTreeNodes;
use crate::index::IndexError;
use crate::key::IndexKey;

/// A word of a node, and where it is.
pub(super) type Place = Link<PCell<u64>>;

persistent! {
    /// What a node with a bitmap begins with; entries follow.
    pub(super) struct BitmapHeader: 128 {
        control: PCell<u64>,
        version: PCell<u64>,
        leftmost: PCell<u64>,
        reserved: [PCell<u64>; 5],
        slots: [PCell<u64>; 8],
    }
}

persistent! {
    /// What a node without a bitmap begins with; entries follow.
    pub(super) struct SlotHeader: 16 {
        control: PCell<u64>,
        leftmost: PCell<u64>,
    }
}

/// Bytes, as words.
const fn words(bytes: usize) -> usize {
    assert!(bytes.is_multiple_of(8));
    bytes / 8
}

const VERSION: usize = words(offset_of!(BitmapHeader, version));
const SLOTS: usize = words(offset_of!(BitmapHeader, slots));
const _: () = {
    assert!(offset_of!(BitmapHeader, control) == 0 && offset_of!(SlotHeader, control) == 0);
    assert!(offset_of!(BitmapHeader, reserved) + 40 == LINE_BYTES);
    assert!(offset_of!(BitmapHeader, slots) == LINE_BYTES);
};

/// Entries of a node with a bitmap, at most: the bits beside [`VALID`].
pub(super) const MOST_ENTRIES: usize = 63;
/// Entries of a node without a bitmap.
pub(super) const SLOT_ONLY_ENTRIES: usize = 7;
/// The slot array of a node with a bitmap is right.
const VALID: u64 = 1 << 63;
/// Fewest entries of a node: so that halves of a full one are not empty.
const FEWEST_ENTRIES: usize = 4;
const LARGEST_NODE_BYTES: usize =
    (size_of::<BitmapHeader>() + MOST_ENTRIES * 24).next_multiple_of(LINE_BYTES);

/// An entry: the key's first eight bytes, big-endian; its value or child; and for byte strings the
/// key word.
pub(super) type Entry = [u64; 3];

/// The first eight bytes of a key, big-endian, with zeros behind its end: unequal ones are in the
/// order of their keys. Of an integer it is all.
#[inline(always)]
pub(super) fn ordinal_of<K: IndexKey + ?Sized>(key: &K) -> u64 {
    let mut space = [0; 8];
    let bytes = key.bytes(&mut space);
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

/// What all nodes of an index have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) nodes: WbTreeNodes,
    pub(super) node_bytes: usize,
    /// Entries of a node.
    pub(super) capacity: usize,
    entry_words: usize,
    first_entry: usize,
    leftmost: usize,
}

impl Shape {
    /// Of nodes of so many bytes, or of the default size if that is zero.
    pub(super) fn new<K: IndexKey + ?Sized>(
        nodes: WbTreeNodes,
        node_bytes: usize,
    ) -> Result<Self, IndexError> {
        let entry_words = if K::INLINE { 2 } else { 3 };
        let (header, leftmost, most) = match nodes {
            WbTreeNodes::BitmapAndSlots => {
                (size_of::<BitmapHeader>(), offset_of!(BitmapHeader, leftmost), MOST_ENTRIES)
            }
            WbTreeNodes::SlotsOnly => {
                (size_of::<SlotHeader>(), offset_of!(SlotHeader, leftmost), SLOT_ONLY_ENTRIES)
            }
        };
        let largest = (header + most * entry_words * 8).next_multiple_of(LINE_BYTES);
        let node_bytes = if node_bytes == 0 { largest } else { node_bytes };
        let capacity = most.min(node_bytes.saturating_sub(header) / (entry_words * 8));
        let fixed = nodes == WbTreeNodes::SlotsOnly && node_bytes != largest;
        if fixed
            || !node_bytes.is_multiple_of(LINE_BYTES)
            || node_bytes > largest
            || capacity < FEWEST_ENTRIES
        {
            let from = if nodes == WbTreeNodes::SlotsOnly { largest } else { 256 };
            return Err(IndexError::BadOption {
                what: format!(
                    "such a node has {from} to {largest} bytes, a multiple of 64, not {node_bytes}"
                ),
            });
        }
        let (first_entry, leftmost) = (words(header), words(leftmost));
        Ok(Self { nodes, node_bytes, capacity, entry_words, first_entry, leftmost })
    }

    #[inline(always)]
    fn has_bitmap(&self) -> bool {
        self.nodes == WbTreeNodes::BitmapAndSlots
    }

    /// The control word with the slot array, if that is not in the word itself, declared invalid.
    #[inline(always)]
    pub(super) fn disordered(&self, control: u64) -> u64 {
        if self.has_bitmap() { control & !VALID } else { control }
    }

    /// The control word that comes after `before` and says that the entries of `order` count, in
    /// that order.
    #[inline]
    pub(super) fn control_of(&self, order: &Order, before: u64) -> u64 {
        if self.has_bitmap() {
            return order.bits() | VALID;
        }
        let places = order.as_slice().iter().rev();
        let slots = places.fold(0, |slots, &index| slots << 4 | u64::from(index)) << 4;
        let version = (before >> 32).wrapping_add(1);
        version << 32 | slots | order.len() as u64
    }
}

/// Places of entries, in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    bytes: [u8; Order::ROOM],
    count: usize,
}

impl Order {
    /// No node has more entries.
    pub(super) const ROOM: usize = 64;
    pub(super) const EMPTY: Self = Self { bytes: [0; Self::ROOM], count: 0 };

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    /// The place of the entry at `position`.
    #[inline(always)]
    pub(super) fn at(&self, position: usize) -> usize {
        usize::from(self.as_slice()[position])
    }

    /// Which places are taken, one bit for each.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.as_slice().iter().fold(0, |bits, &index| bits | 1 << (index & 63))
    }

    pub(super) fn push(&mut self, index: usize) {
        self.bytes[self.count] = index as u8;
        self.count += 1;
    }

    /// With an entry more.
    #[inline]
    pub(super) fn with(mut self, position: usize, index: usize) -> Self {
        self.bytes.copy_within(position..self.count, position + 1);
        self.bytes[position] = index as u8;
        self.count += 1;
        self
    }

    /// With an entry less.
    #[inline]
    pub(super) fn without(mut self, position: usize) -> Self {
        self.bytes.copy_within(position + 1..self.count, position);
        self.count -= 1;
        self
    }

    /// The first entries only.
    pub(super) fn first(mut self, count: usize) -> Self {
        self.count = self.count.min(count);
        self
    }
}

/// What a reader goes by: a node whose control word and version are the same later has not changed
/// meanwhile, but for values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) control: u64,
    version: u64,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'p> {
    pub(super) link: Place,
    pub(super) words: &'p [PCell<u64>],
    pub(super) shape: &'p Shape,
}

impl<'p> Node<'p> {
    /// The node at `link`, if it lies within the pool.
    #[inline(always)]
    pub(super) fn find<D: Domain>(
        pool: &'p Pool<D>,
        shape: &'p Shape,
        link: Place,
    ) -> Option<Self> {
        let words = pool.try_slice(link, shape.node_bytes / 8)?;
        Some(Self { link, words, shape })
    }

    /// Where the word of this number is.
    pub(super) fn place(&self, word: usize) -> Place {
        Link::from_bits(self.link.offset() + 8 * word as u64)
    }

    #[inline(always)]
    pub(super) fn control_place(&self) -> Place {
        self.link
    }

    /// Where the version is, if the control word has none.
    #[inline(always)]
    pub(super) fn version_place(&self) -> Option<Place> {
        self.shape.has_bitmap().then(|| self.place(VERSION))
    }

    #[inline(always)]
    fn entry_word(&self, index: usize) -> usize {
        self.shape.first_entry + index * self.shape.entry_words
    }

    #[inline(always)]
    pub(super) fn value_place(&self, index: usize) -> Place {
        self.place(self.entry_word(index) + 1)
    }

    /// The words of an entry.
    #[inline(always)]
    pub(super) fn entry_cells(&self, index: usize) -> &'p [PCell<u64>] {
        &self.words[self.entry_word(index)..][..self.shape.entry_words]
    }

    /// Where the words of an entry are.
    pub(super) fn entry_places(&self, index: usize) -> impl Iterator<Item = Place> + use<'_, 'p> {
        let first = self.entry_word(index);
        (first..first + self.shape.entry_words).map(|word| self.place(word))
    }

    /// Whether an entry is in the line of the control word.
    #[inline(always)]
    pub(super) fn is_beside_control(&self, index: usize) -> bool {
        (self.entry_word(index) + self.shape.entry_words) * 8 <= LINE_BYTES
    }

    #[inline(always)]
    pub(super) fn control<D: Domain>(&self, domain: &D) -> u64 {
        self.words[0].load_acquire(domain)
    }

    #[inline(always)]
    pub(super) fn version<D: Domain>(&self, domain: &D) -> u64 {
        if self.shape.has_bitmap() { self.words[VERSION].load_acquire(domain) } else { 0 }
    }

    /// Counts one more change of the control word, before it: the version differs then whenever the
    /// control word is what it was before.
    #[inline(always)]
    pub(super) fn count_change<D: Domain>(&self, domain: &D) {
        if self.shape.has_bitmap() {
            let version = self.words[VERSION].load(domain).wrapping_add(1);
            self.words[VERSION].store_ordered(domain, version);
        }
    }

    /// Tells readers who have read this node that it is no longer what it was, although its entries
    /// are: it has been taken out of the tree. Nothing that persists.
    pub(super) fn disown<D: Domain>(&self, domain: &D) {
        if self.shape.has_bitmap() {
            self.count_change(domain);
        } else {
            let control = self.control(domain).wrapping_add(1 << 32);
            self.words[0].store_ordered(domain, control);
        }
    }

    #[inline(always)]
    pub(super) fn snapshot<D: Domain>(&self, domain: &D) -> Snapshot {
        let version = self.version(domain);
        Snapshot { version, control: self.control(domain) }
    }

    /// Whether nothing has changed since. The control word is looked at first, because the version
    /// is stored first.
    #[inline(always)]
    pub(super) fn is_still<D: Domain>(&self, domain: &D, snapshot: Snapshot) -> bool {
        // Loads are not reordered with loads on x86-64; elsewhere the fence orders them.
        std::sync::atomic::fence(Ordering::Acquire);
        self.control(domain) == snapshot.control && self.version(domain) == snapshot.version
    }

    #[inline(always)]
    pub(super) fn leftmost<D: Domain>(&self, domain: &D) -> u64 {
        self.words[self.shape.leftmost].load(domain)
    }

    #[inline(always)]
    pub(super) fn ordinal<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        self.words[self.entry_word(index)].load(domain)
    }

    #[inline(always)]
    pub(super) fn value<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        self.words[self.entry_word(index) + 1].load_acquire(domain)
    }

    /// The key word: for integers the ordinal.
    #[inline(always)]
    pub(super) fn key_word<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        let at = self.entry_word(index);
        self.words[if self.shape.entry_words == 3 { at + 2 } else { at }].load(domain)
    }

    pub(super) fn entry<D: Domain>(&self, domain: &D, index: usize) -> Entry {
        [self.ordinal(domain, index), self.value(domain, index), self.key_word(domain, index)]
    }

    /// Writes an entry that does not count. Not flushed.
    #[inline]
    pub(super) fn write_entry<D: Domain>(&self, domain: &D, index: usize, entry: &Entry) {
        for (cell, &word) in self.entry_cells(index).iter().zip(entry) {
            cell.store_ordered(domain, word);
        }
    }

    /// Writes entries that do not count into free places, flushes their lines, and adds them behind
    /// the last one of `order`.
    #[track_caller]
    pub(super) fn append_entries<D: Domain>(
        &self,
        domain: &D,
        order: &mut Order,
        entries: &[Entry],
    ) {
        const WORDS_OF_A_LINE: usize = words(LINE_BYTES);
        let mut lines = 0u64;
        for entry in entries {
            let index = self.free_index(order);
            self.write_entry(domain, index, entry);
            let first = self.entry_word(index);
            lines |= 1 << (first / WORDS_OF_A_LINE);
            lines |= 1 << ((first + self.shape.entry_words - 1) / WORDS_OF_A_LINE);
            order.push(index);
        }
        while lines != 0 {
            domain.flush(&self.words[lines.trailing_zeros() as usize * WORDS_OF_A_LINE]);
            lines &= lines - 1;
        }
    }

    /// How many entries count.
    #[inline(always)]
    pub(super) fn count(&self, control: u64) -> usize {
        if self.shape.has_bitmap() {
            ((control & !VALID).count_ones() as usize).min(self.shape.capacity)
        } else {
            (control as usize & 15).min(self.shape.capacity)
        }
    }

    /// Whether the order of the entries is at hand; if not, the bitmap says which ones count.
    #[inline(always)]
    pub(super) fn is_ordered(&self, control: u64) -> bool {
        !self.shape.has_bitmap() || control & VALID != 0
    }

    /// The place of the entry at `position`, of a node that is ordered. Never beyond the node's
    /// end, whatever the bytes.
    #[inline(always)]
    pub(super) fn index_at<D: Domain>(&self, domain: &D, control: u64, position: usize) -> usize {
        let index = if self.shape.has_bitmap() {
            self.words[SLOTS + position / 8].load(domain) >> (8 * (position % 8)) & 0xFF
        } else {
            control >> (4 + 4 * position) & 15
        };
        (index as usize).min(self.shape.capacity - 1)
    }

    /// The places of the entries that count, of a node that is not ordered.
    #[inline]
    pub(super) fn places(&self, control: u64) -> impl Iterator<Item = usize> + use<> {
        let capacity = self.shape.capacity;
        (0..capacity).filter(move |&index| control >> index & 1 != 0)
    }

    /// The slot array of a node that is ordered. No place in it is beyond the node's end.
    #[inline]
    pub(super) fn slots<D: Domain>(&self, domain: &D, control: u64) -> Order {
        let mut order = Order { bytes: [0; 64], count: self.count(control) };
        if self.shape.has_bitmap() {
            let cells = &self.words[SLOTS..SLOTS + 8];
            for (bytes, cell) in order.bytes.chunks_exact_mut(8).zip(cells) {
                bytes.copy_from_slice(&cell.load(domain).to_le_bytes());
            }
            let last = self.shape.capacity as u8 - 1;
            for byte in &mut order.bytes {
                *byte = (*byte).min(last);
            }
        } else {
            for position in 0..order.count {
                order.bytes[position] = self.index_at(domain, control, position) as u8;
            }
        }
        order
    }

    /// The words of the slot array that differ from what `order` asks for: their numbers in the node,
    /// and what they should be. What is behind the end of `order` stays as it is.
    #[inline]
    pub(super) fn differing_slots<D: Domain>(
        &self,
        domain: &D,
        order: &Order,
    ) -> impl Iterator<Item = (usize, u64)> {
        let wanted = *order;
        let words = if self.shape.has_bitmap() { wanted.count.div_ceil(8) } else { 0 };
        (0..words).filter_map(move |number| {
            let now = self.words[SLOTS + number].load(domain);
            let mut bytes = now.to_le_bytes();
            let here = (wanted.count - 8 * number).min(8);
            bytes[..here].copy_from_slice(&wanted.bytes[8 * number..][..here]);
            let word = u64::from_le_bytes(bytes);
            (word != now).then_some((SLOTS + number, word))
        })
    }

    /// Makes the slot array that of `order`. Returns whether it was another. Not flushed.
    #[inline]
    pub(super) fn write_slots<D: Domain>(&self, domain: &D, order: &Order) -> bool {
        let mut changed = false;
        for (number, word) in self.differing_slots(domain, order) {
            self.words[number].store_ordered(domain, word);
            changed = true;
        }
        changed
    }

    /// The slot array of a node that has a bitmap.
    pub(super) fn slot_cells(&self) -> &'p [PCell<u64>] {
        &self.words[SLOTS..SLOTS + 8]
    }

    /// What is wrong with the control word, or with the slot array that it says is valid.
    pub(super) fn control_problem<D: Domain>(&self, domain: &D) -> Option<&'static str> {
        let control = self.control(domain);
        let capacity = self.shape.capacity;
        let count = if self.shape.has_bitmap() {
            if (control & !VALID) >> capacity != 0 {
                return Some("has entries beyond its end");
            }
            self.count(control)
        } else {
            control as usize & 15
        };
        if count > capacity {
            return Some("has more entries than it has room for");
        }
        if !self.is_ordered(control) {
            return None;
        }
        let bits = self.slots(domain, control).bits();
        if bits.count_ones() as usize != count {
            return Some("names an entry twice");
        }
        let named = if self.shape.has_bitmap() { control & !VALID } else { bits };
        (bits != named).then_some("has a slot array that its bitmap contradicts")
    }

    /// A place that no entry of `order` has, in a node that is not full: of a node without bitmap
    /// beside its control word if there is one.
    #[inline]
    pub(super) fn free_index(&self, order: &Order) -> usize {
        (!order.bits()).trailing_zeros() as usize
    }
}

/// Allocates and writes a node with these entries, in this order. The caller flushes it.
pub(super) fn build<'p, D: Domain>(
    pool: &'p Pool<D>,
    shape: &Shape,
    leftmost: u64,
    entries: &[Entry],
) -> Result<Owned<'p, D, PCell<u64>, Dirty>, AllocError> {
    let mut image = [0u64; LARGEST_NODE_BYTES / 8];
    let mut order = Order::EMPTY;
    for (index, entry) in entries.iter().enumerate() {
        order.push(index);
        let at = shape.first_entry + index * shape.entry_words;
        image[at..at + shape.entry_words].copy_from_slice(&entry[..shape.entry_words]);
    }
    image[0] = shape.control_of(&order, 0);
    image[shape.leftmost] = leftmost;
    if shape.has_bitmap() {
        for (word, bytes) in image[SLOTS..SLOTS + 8].iter_mut().zip(order.bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
    }
    let words = shape.node_bytes / 8;
    let mut bytes = [0u8; LARGEST_NODE_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(&image[1..words]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let mut node = pool.allocate_with_tail::<PCell<u64>>(shape.node_bytes - 8)?;
    node.store(pool.domain(), image[0]);
    node.write_tail(0, &bytes[..shape.node_bytes - 8]);
    Ok(node)
}

/// A node that has been flushed and that nobody can reach.
pub(super) type Fresh<'p, D> = Owned<'p, D, PCell<u64>, InFlight>;

/// The root's `top`: the top node and, above its 48 bits, the number of inner levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Top(pub(super) u64);

impl Top {
    pub(super) fn new(link: Place, levels: usize) -> Self {
        Self(link.bits() | (levels as u64) << LINK_MASK.count_ones())
    }
    #[inline(always)]
    pub(super) fn link(self) -> Place {
        Link::from_bits(self.0)
    }
    #[inline(always)]
    pub(super) fn levels(self) -> usize {
        (self.0 >> LINK_MASK.count_ones()) as usize
    }
}
