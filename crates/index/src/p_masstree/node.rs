//! Nodes as they lie in the pool, slices of keys, and the words of entries.

use std::cmp::Ordering;
use std::mem::offset_of;

use lapis_pmem::{Dirty, Domain, GenerationLock, LINE_BYTES, LINK_MASK, Link, LockWord, Owned};
use lapis_pmem::{PCell, Pool, persistent};

use super::mutants;
use super::permutation::{Permutation, WIDTH};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::{Byte, Digits, LOW_BITS, Leaf, Place};

/// A key that is looked at in slices.
pub type Key<'k, K> = Digits<'k, K, Byte>;

persistent! {
    /// An entry. See the diagram in the [parent module](super).
    pub struct Entry: 16 {
        pub bits: PCell<u64>,
        pub word: PCell<u64>,
    }
}

persistent! {
    /// A node, border or interior.
    pub struct Node: 256 {
        pub lock: GenerationLock,
        pub permutation: PCell<u64>,
        pub height: PCell<u64>,
        pub layer: PCell<u64>,
        pub entries: [Entry; 14],
    }
}

/// The height of a border node. No node has none.
pub const BORDER: u64 = 1;
const HEAD_BYTES: usize = offset_of!(Node, entries);
const _: () = assert!(HEAD_BYTES == 32 && WIDTH == 14);
const _: () = assert!(offset_of!(Node, lock) == 0 && offset_of!(Node, permutation) == 8);
const _: () = assert!(LINE_BYTES.is_multiple_of(size_of::<Entry>()), "no entry straddles a line");

/// Whether a slot lies in the line of the permutation.
#[inline(always)]
pub const fn is_beside_permutation(slot: usize) -> bool {
    HEAD_BYTES + slot * size_of::<Entry>() < LINE_BYTES
}

/// Eight bytes of a key, big-endian and filled up with zeros, and what becomes of the key there: it ends after 0 to
/// 8 of them, or goes on ([`Slice::LONG`]). Ordered as keys are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slice {
    pub bits: u64,
    /// A whole word: what has gaps is copied in pieces that overlap, and a load of two pieces waits until
    /// they have left the store buffer, behind what the change before has flushed.
    pub class: u64,
}

impl Slice {
    /// The class of all keys that go on.
    pub const LONG: u64 = 9;
    /// Behind all others.
    pub const LAST: Self = Self { bits: u64::MAX, class: u64::MAX };

    /// The first slice of a byte string.
    #[inline(always)]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        if let Some(first) = bytes.first_chunk::<8>() {
            let class = if bytes.len() > 8 { Self::LONG } else { 8 };
            return Self { bits: u64::from_be_bytes(*first), class };
        }
        let mut space = [0; 8];
        space[..bytes.len()].copy_from_slice(bytes);
        Self { bits: u64::from_be_bytes(space), class: bytes.len() as u64 }
    }

    /// The slice of `key` in a layer, which is not behind its end.
    #[inline(always)]
    pub fn of<K: IndexKey + ?Sized>(key: &Key<'_, K>, layer: usize) -> Self {
        if K::INLINE {
            return Self { bits: key.integer(), class: 8 };
        }
        Self::of_bytes(key.bytes().get(8 * layer..).unwrap_or_default())
    }

    /// Whether nothing is set behind the bytes that belong to the key.
    pub fn is_canonical(self) -> bool {
        self.bits.checked_shl(8 * self.class.min(8) as u32).unwrap_or(0) == 0
    }

    #[inline(always)]
    pub fn is_long(self) -> bool {
        self.class == Self::LONG
    }

    /// Appends those of the eight bytes that belong to the key.
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(&self.bits.to_be_bytes()[..self.class.min(8) as usize]);
    }
}

/// The word of an entry, where that is no integer key's value.
///
/// ```text
///  63  52 51      48 47                       4 3    0
/// +------+----------+--------------------------+------+
/// | zero |   tag    |  link                    | zero |
/// +------+----------+--------------------------+------+
///  tag in a border node: 0 to 8 a leaf of a key that ends there, 9 a leaf of one that goes on, 10 the next layer
///  tag in an interior node: the class of the separator; of the word above the first layer: zero
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

const TAG_SHIFT: u32 = 48;
const LAYER_TAG: u64 = 10;

impl Word {
    /// Of a leaf, or of a child behind a separator, of that class.
    #[inline(always)]
    pub fn new<T>(link: Link<T>, class: u64) -> Self {
        Self(link.bits() | class << TAG_SHIFT)
    }

    pub fn layer(link: Link<Node>) -> Self {
        Self(link.bits() | LAYER_TAG << TAG_SHIFT)
    }

    /// The same with another node.
    pub fn with_node(self, link: Link<Node>) -> Self {
        Self(self.0 & !LINK_MASK | link.bits())
    }

    #[inline(always)]
    pub fn is_layer(self) -> bool {
        self.0 >> TAG_SHIFT == LAYER_TAG
    }

    #[inline(always)]
    fn class(self) -> u64 {
        (self.0 >> TAG_SHIFT).min(Slice::LONG)
    }

    #[inline(always)]
    pub fn node(self) -> Link<Node> {
        Link::from_bits(self.0)
    }

    #[inline(always)]
    pub fn leaf(self) -> Link<Leaf> {
        Link::from_bits(self.0)
    }

    /// Whether it is no word of an entry that may have such tags.
    pub fn is_malformed(self, greatest_tag: u64) -> bool {
        self.0 & LOW_BITS != 0 || self.0 >> TAG_SHIFT > greatest_tag
    }

    /// The greatest tag of an entry, by whether its node is an interior one.
    pub fn greatest_tag(is_interior: bool) -> u64 {
        if is_interior { Slice::LONG } else { LAYER_TAG }
    }
}

/// A node as somebody has read it.
#[derive(Clone, Copy)]
pub struct View<'t> {
    pub link: Link<Node>,
    pub node: &'t Node,
    pub lock: LockWord,
    pub permutation: Permutation,
    pub height: u64,
    /// Whether words have a class: not those of integers.
    has_classes: bool,
    /// The separator before the node, and the one behind it, if there are any in its layer.
    pub lower: Option<Slice>,
    pub upper: Option<Slice>,
}

impl<'t> View<'t> {
    #[inline(always)]
    pub fn of<D: Domain>(
        domain: &D,
        node: &'t Node,
        link: Link<Node>,
        integers: bool,
        [lower, upper]: [Option<Slice>; 2],
    ) -> Self {
        let lock = node.lock.read(domain);
        let permutation = Permutation(node.permutation.load_acquire(domain));
        let height = node.height.load(domain);
        let has_classes = !integers;
        Self { link, node, lock, permutation, height, has_classes, lower, upper }
    }

    #[inline(always)]
    pub fn is_interior(&self) -> bool {
        self.height > BORDER
    }

    /// Whether what lies in the slots that counted is what lay there when the permutation was read.
    #[inline(always)]
    pub fn has_its_entries<D: Domain>(&self, domain: &D) -> bool {
        self.node.lock.reread(domain).is_same_section(self.lock)
    }

    /// The same, and whether they still count.
    #[inline(always)]
    pub fn is_unchanged<D: Domain>(&self, domain: &D) -> bool {
        self.has_its_entries(domain)
            && self.node.permutation.load_acquire(domain) == self.permutation.0
    }

    pub fn permutation_place(&self) -> Place {
        Link::from_bits(self.link.offset() + offset_of!(Node, permutation) as u64)
    }

    /// Where the word of the entry in `slot` is.
    #[inline(always)]
    pub fn place(&self, slot: usize) -> Place {
        let entry = HEAD_BYTES + slot * size_of::<Entry>();
        Link::from_bits(self.link.offset() + (entry + offset_of!(Entry, word)) as u64)
    }

    #[inline(always)]
    pub fn word<D: Domain>(&self, domain: &D, slot: usize) -> Word {
        Word(self.node.entries[slot].word.load_acquire(domain))
    }

    #[inline(always)]
    fn class<D: Domain>(&self, domain: &D, slot: usize) -> u64 {
        if self.has_classes { self.word(domain, slot).class() } else { 8 }
    }

    /// The slice, or separator, of the entry at `index`.
    #[inline(always)]
    pub fn slice<D: Domain>(&self, domain: &D, index: usize) -> Slice {
        let slot = self.permutation.slot(index);
        let bits = self.node.entries[slot].bits.load_acquire(domain);
        Slice { bits, class: self.class(domain, slot) }
    }

    #[inline(always)]
    fn compare<D: Domain>(&self, domain: &D, index: usize, slice: Slice) -> Ordering {
        let slot = self.permutation.slot(index);
        let bits = self.node.entries[slot].bits.load_acquire(domain);
        bits.cmp(&slice.bits).then_with(|| self.class(domain, slot).cmp(&slice.class))
    }

    /// The first entry, from the one at `from` on, that is behind `slice`, or at it unless `passes_equal`.
    #[inline(always)]
    fn rank<D: Domain>(&self, domain: &D, from: usize, slice: Slice, passes_equal: bool) -> usize {
        let (mut low, mut high) = (from, self.permutation.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare(domain, middle, slice) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal if passes_equal => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Where the entry of `slice` is in a border node, or would be, and its slot if it is there.
    #[inline(always)]
    pub fn search<D: Domain>(&self, domain: &D, slice: Slice) -> (usize, Option<usize>) {
        let index = self.rank(domain, 0, slice, false);
        let is_there = index < self.permutation.count()
            && self.compare(domain, index, slice) == Ordering::Equal;
        (index, is_there.then(|| self.permutation.slot(index)))
    }

    /// The child of an interior node for `slice`, or for what comes right before it. M3: the first separator
    /// says nothing.
    #[inline(always)]
    pub fn child_index<D: Domain>(&self, domain: &D, slice: Slice, strictly_below: bool) -> usize {
        self.rank(domain, 1, slice, !strictly_below) - 1
    }

    /// The entries that are not beyond the node's bound (M4).
    pub fn live_count<D: Domain>(&self, domain: &D) -> usize {
        let count = self.permutation.count();
        let first = usize::from(self.is_interior()).min(count);
        self.upper.map_or(count, |upper| self.rank(domain, first, upper, false))
    }

    /// The node's range below the child at `index` of the entries that are not beyond its bound.
    #[inline(always)]
    pub fn bounds_below<D: Domain>(&self, domain: &D, index: usize) -> [Option<Slice>; 2] {
        let begins_behind = index > 0 && !domain.commits(mutants::PARENTS_LOWER_BOUND);
        let lower = if begins_behind { Some(self.slice(domain, index)) } else { self.lower };
        let next = (index + 1 < self.permutation.count()).then(|| self.slice(domain, index + 1));
        let upper = match (next, self.upper) {
            (Some(next), Some(upper)) => Some(next.min(upper)),
            (next, upper) => next.or(upper),
        };
        [lower, upper]
    }

    /// Bits and words of the entries at these indices.
    pub fn entries<D: Domain>(
        &self,
        domain: &D,
        indices: std::ops::Range<usize>,
    ) -> Vec<(u64, u64)> {
        let slots = indices.map(|index| &self.node.entries[self.permutation.slot(index)]);
        slots.map(|entry| (entry.bits.load(domain), entry.word.load(domain))).collect()
    }

    /// Writes an entry to a slot that does not count. Readers that have seen it count notice.
    #[inline(always)]
    pub fn write_entry<D: Domain>(&self, domain: &D, slot: usize, (bits, word): (u64, u64)) {
        let entry = &self.node.entries[slot];
        entry.bits.store_ordered(domain, bits);
        entry.word.store_ordered(domain, word);
    }
}

/// Writes a node that nobody can reach, with these entries; the lock is `lock`.
pub fn write_node<'p, D: Domain>(
    pool: &'p Pool<D>,
    lock: LockWord,
    [height, layer]: [u64; 2],
    entries: &[(u64, u64)],
) -> Result<Owned<'p, D, Node, Dirty>, IndexError> {
    let domain = pool.domain();
    let node = pool.allocate::<Node>()?;
    node.lock.word().store(domain, lock.bits());
    node.permutation.store(domain, Permutation::of_first(entries.len()).0);
    node.height.store(domain, height);
    node.layer.store(domain, layer);
    for (entry, &(bits, word)) in node.entries.iter().zip(entries) {
        entry.bits.store(domain, bits);
        entry.word.store(domain, word);
    }
    Ok(node)
}

/// Bytes of a node that has so many entries from the first slot on.
pub const fn written_bytes(entries: usize) -> usize {
    HEAD_BYTES + entries * size_of::<Entry>()
}
