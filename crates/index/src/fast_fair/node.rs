//! A node as it lies in the pool, and the two ways of looking at it that need no lock: its words
//! one by one, and the search of a node that nobody is changing.

use lapis_pmem::{Domain, GenerationLock, LINE_BYTES, LINK_MASK, Link, PCell, Pool, persistent};

use crate::group_search::last_admitted;
use crate::node_size::NodeSizes;

persistent! {
    /// The first half of a node's first line. See the diagram in the [parent module](super).
    pub(super) struct NodeHeader: 32 {
        /// Inner nodes: the child for keys below that of slot 0. Never changes.
        pub(super) leftmost: PCell<u64>,
        /// [`SiblingWord`].
        pub(super) sibling: PCell<u64>,
        /// Its payload says which way the latest shift went ([`LEFTWARD`]).
        pub(super) lock: GenerationLock,
        /// The least key word the node may hold; zero in the leftmost node of a level. Never
        /// changes.
        pub(super) low: PCell<u64>,
    }
}

persistent! {
    /// A slot: a key word, and a value (leaves) or a link to a child (inner nodes).
    pub(super) struct Entry: 16 {
        pub(super) key: PCell<u64>,
        pub(super) value: PCell<u64>,
    }
}

pub(super) const HEADER_BYTES: usize = size_of::<NodeHeader>();
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();
pub(super) const LARGEST_NODE_BYTES: usize = 4096;
pub(super) const NODE_SIZES: NodeSizes = NodeSizes {
    names: ["node", "nodes"],
    smallest_bytes: 256,
    largest_bytes: LARGEST_NODE_BYTES,
    default_bytes: 512,
};

const _: () =
    assert!(LINE_BYTES.is_multiple_of(ENTRY_BYTES), "without padding no entry straddles lines");
const _: () = assert!(HEADER_BYTES + 2 * ENTRY_BYTES == LINE_BYTES, "slots 0 and 1 are in line 0");

/// Lock payload: entries were last moved towards slot 0, so lock-free readers go right to left.
pub(super) const LEFTWARD: u8 = 1;
/// Lock payload: entries were last moved away from slot 0.
pub(super) const RIGHTWARD: u8 = 0;

/// Entries of a node of `node_bytes`.
pub(super) fn capacity_of<D: Domain>(domain: &D, node_bytes: usize) -> usize {
    (node_bytes - HEADER_BYTES - domain.padding_bytes()) / ENTRY_BYTES
}

/// Where `slot` begins in its line.
#[inline(always)]
fn place_in_line<D: Domain>(domain: &D, slot: usize) -> usize {
    (HEADER_BYTES + domain.padding_bytes() + slot * ENTRY_BYTES) % LINE_BYTES
}

/// Whether `slot` is the first that lies in its line.
#[inline(always)]
pub(super) fn begins_line<D: Domain>(domain: &D, slot: usize) -> bool {
    place_in_line(domain, slot) < ENTRY_BYTES
}

/// Whether the key of `slot` ends a line, and its value begins the next: with padding only.
#[inline(always)]
pub(super) fn straddles<D: Domain>(domain: &D, slot: usize) -> bool {
    domain.padding_bytes() > 0 && place_in_line(domain, slot) + ENTRY_BYTES > LINE_BYTES
}

/// The header and the slots of the node at `link`. None if it is not inside the pool.
#[inline(always)]
pub(super) fn parts<D: Domain>(
    pool: &Pool<D>,
    link: Link<NodeHeader>,
    capacity: u16,
) -> Option<(&NodeHeader, &[Entry])> {
    match pool.domain().padding_bytes() {
        0 => pool.try_at_with(link, capacity),
        padding => {
            let slots = Link::from_bits(link.bits() + (HEADER_BYTES + padding) as u64);
            Some((pool.try_at(link)?, pool.try_slice(slots, usize::from(capacity))?))
        }
    }
}

/// The link to the right neighbour, with the node's level and flags above it.
///
/// ```text
///  63     58   57       56     55     48 47                             0
/// +---------+---------+--------+---------+--------------------------------+
/// |  zero   | deleted | hidden |  level  |  link to the right neighbour   |
/// +---------+---------+--------+---------+--------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SiblingWord(pub(super) u64);

impl SiblingWord {
    const LEVEL_SHIFT: u32 = 48;
    const HIDDEN: u64 = 1 << 56;
    const DELETED: u64 = 1 << 57;

    pub(super) fn new(link: Link<NodeHeader>, level: u8, hidden: bool) -> Self {
        let flags = if hidden { Self::HIDDEN } else { 0 };
        Self(link.bits() | u64::from(level) << Self::LEVEL_SHIFT | flags)
    }

    #[inline(always)]
    pub(super) fn link(self) -> Link<NodeHeader> {
        Link::from_bits(self.0)
    }

    #[inline(always)]
    pub(super) fn level(self) -> u8 {
        (self.0 >> Self::LEVEL_SHIFT) as u8
    }

    /// Slot 0 does not count.
    #[inline(always)]
    pub(super) fn is_hidden(self) -> bool {
        self.0 & Self::HIDDEN != 0
    }

    /// The node has been unlinked.
    #[inline(always)]
    pub(super) fn is_deleted(self) -> bool {
        self.0 & Self::DELETED != 0
    }

    pub(super) fn with_link(self, link: Link<NodeHeader>) -> Self {
        Self(self.0 & !LINK_MASK | link.bits())
    }

    pub(super) fn with_hidden(self, hidden: bool) -> Self {
        Self(if hidden { self.0 | Self::HIDDEN } else { self.0 & !Self::HIDDEN })
    }

    pub(super) fn deleted(self) -> Self {
        Self(self.0 | Self::DELETED)
    }
}

/// Which key words a search admits: a prefix of all. Handed on by value, so that what it compares with stays in
/// registers.
pub(super) trait Admits: Fn(u64) -> bool + Copy {}
impl<T: Fn(u64) -> bool + Copy> Admits for T {}

/// An entry that a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) slot: usize,
    pub(super) key: u64,
    pub(super) value: u64,
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) struct Node<'p> {
    pub(super) link: Link<NodeHeader>,
    pub(super) header: &'p NodeHeader,
    pub(super) slots: &'p [Entry],
}

impl<'p> Node<'p> {
    /// The sibling word; what follows in program order is not moved before it.
    #[inline(always)]
    pub(super) fn sibling<D: Domain>(&self, domain: &D) -> SiblingWord {
        SiblingWord(self.header.sibling.load_acquire(domain))
    }

    #[inline(always)]
    pub(super) fn level<D: Domain>(&self, domain: &D) -> u8 {
        self.sibling(domain).level()
    }

    #[inline(always)]
    pub(super) fn low<D: Domain>(&self, domain: &D) -> u64 {
        self.header.low.load(domain)
    }

    #[inline(always)]
    pub(super) fn leftmost<D: Domain>(&self, domain: &D) -> Link<NodeHeader> {
        Link::from_bits(self.header.leftmost.load(domain))
    }

    #[inline(always)]
    pub(super) fn key<D: Domain>(&self, domain: &D, slot: usize) -> u64 {
        self.slots[slot].key.load_acquire(domain)
    }

    #[inline(always)]
    pub(super) fn value<D: Domain>(&self, domain: &D, slot: usize) -> u64 {
        self.slots[slot].value.load_acquire(domain)
    }

    /// Whether the node ends before `slot`, whose key word was just read as `key` (I2). Slot 1 also
    /// holds zero while it is a duplicate of integer key 0; then, and only then, slot 2 is in use.
    #[inline(always)]
    pub(super) fn ends_before<D: Domain>(&self, domain: &D, slot: usize, key: u64) -> bool {
        key == 0 && slot > 0 && !(slot == 1 && self.key(domain, 2) != 0)
    }

    /// Whether slot `slot`, which holds a key, repeats its left neighbour and so does not count
    /// (I2).
    #[inline(always)]
    pub(super) fn is_duplicate<D: Domain>(&self, domain: &D, slot: usize, hidden: bool) -> bool {
        slot > 0
            && self.slots[slot].key.load(domain) == self.slots[slot - 1].key.load(domain)
            && !(slot == 1 && hidden)
    }

    /// Slots in use, duplicates included, of a node without a stale tail.
    pub(super) fn count<D: Domain>(&self, domain: &D) -> usize {
        let (mut at, mut rest) = (0, self.slots.len() - 1);
        while rest > 0 {
            let half = rest.div_ceil(2);
            let used = self.slots[at + half].key.load(domain) != 0;
            at = if used { at + half } else { at };
            rest -= half;
        }
        if at == 0 && self.sibling(domain).is_hidden() { 0 } else { at + 1 }
    }

    /// The last entry whose key `admits` accepts (it accepts a prefix of the keys), and whether the
    /// node holds a key that it does not accept.
    ///
    /// For a node that nobody changes meanwhile; if somebody does, the answer means nothing, but every key
    /// that `admits` is asked about is whole (I8: acquire). It need not be free of what a crash leaves: with
    /// duplicates the keys still ascend, and whatever lies beyond the end is not below the
    /// sibling's low key (I2, I5), hence not accepted by a caller that has looked there first.
    #[inline(always)]
    pub(super) fn floor<D: Domain>(
        &self,
        domain: &D,
        hidden: bool,
        are_integers: bool,
        admits: impl Admits,
    ) -> (Option<Found>, bool) {
        let slots = self.slots;
        let key = |slot: usize| self.key(domain, slot);
        let counts = |slot: usize| match key(slot) {
            // Without a branch that a processor would have to guess.
            word if are_integers => (word != 0) & admits(word),
            word => word != 0 && admits(word),
        };
        // Slot 1 comes last: it may be a duplicate of the key 0 in slot 0, and so look empty before others.
        let last = last_admitted(slots.len() - 1, are_integers, |entry| counts(entry + 1)) + 1;
        let mut at = if last > 1 || counts(1) { last } else { 0 };
        let greater = at + 1 < slots.len() && key(at + 1) != 0;
        while self.is_duplicate(domain, at, hidden) {
            at -= 1;
        }
        let word = key(at);
        if at == 0 {
            if hidden {
                return (None, greater);
            }
            if !admits(word) {
                return (None, true);
            }
        }
        (Some(Found { slot: at, key: word, value: slots[at].value.load(domain) }), greater)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sibling_word_keeps_its_parts_apart() {
        let link = Link::from_bits(0x1234_5678_9A40);
        let word = SiblingWord::new(link, 7, true);
        assert_eq!((word.link(), word.level(), word.is_hidden()), (link, 7, true));
        let other = word.with_link(Link::NULL).with_hidden(false).deleted();
        assert_eq!((other.link(), other.level()), (Link::NULL, 7));
        assert!(other.is_deleted() && !other.is_hidden() && !word.is_deleted());
    }
}
