//! The way of a key down the trie.

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, LINE_BYTES, Link, PCell};

use super::PHot;
use super::bits::Bits;
use super::entry::Entry;
use super::node::Node;
use crate::key::IndexKey;
use crate::radix::{Digits, Leaf, Place, damaged_word, leaf_key};

/// Lines of a node that are asked for before its shape is known.
const PREFETCHED_LINES: u64 = 4;

/// A node, and where the word is that refers to it.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Nothing if what is meant is the root.
    pub node: Entry,
    pub place: Place,
    /// The node that the word is in; nothing if it is the root's.
    pub above: Entry,
}

impl Level {
    const ROOT: Self = Self { node: Entry::NONE, place: Link::NULL, above: Entry::NONE };
}

/// Where the bits of a key lead.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// The last node on the way.
    pub level: Level,
    /// Which of its entries.
    pub index: usize,
    /// Where the entry's word is.
    pub slot: Place,
    pub entry: Entry,
}

impl<D: Domain, K: IndexKey + ?Sized> PHot<D, K> {
    /// The word at `place`; what it refers to was written before it.
    #[inline(always)]
    pub(super) fn entry_at(&self, place: Place) -> Entry {
        Entry(self.handle.pool.at(place).load_acquire(self.handle.pool.domain()))
    }

    /// The node of `entry`, which is in the node `above`, if there is one above.
    ///
    /// # Panics
    /// If it is as high: the pool is damaged, and going on might never end.
    #[inline(always)]
    fn node_below(&self, above: Entry, entry: Entry) -> Node<'_> {
        if !above.is_none() && entry.height() >= above.height() {
            damaged_word(entry.0);
        }
        Node::at(&self.handle.pool, entry)
    }

    /// The key of the leaf at `link`.
    ///
    /// # Panics
    /// If there cannot be a leaf: the pool is damaged.
    #[inline(always)]
    pub(super) fn key_of_leaf(&self, link: Link<Leaf>) -> Bits<'_, K> {
        match leaf_key(&self.handle.pool, link) {
            Some(key) => key,
            None => damaged_word(link.bits()),
        }
    }

    /// Follows `key` to a leaf or to nothing, or to the first node below the top one whose trie begins
    /// behind the position `limit`. The caller has pinned the pool.
    #[inline]
    pub(super) fn follow(&self, key: &Bits<'_, K>, limit: u32) -> Spot {
        let slot = self.handle.top;
        let mut spot = Spot { level: Level::ROOT, index: 0, slot, entry: self.entry_at(slot) };
        while spot.entry.is_node() {
            let above = spot.level.node;
            let node = self.node_below(above, spot.entry);
            if limit != u32::MAX && !above.is_none() && node.root_position() > limit {
                break;
            }
            spot.level = Level { node: spot.entry, place: spot.slot, above };
            self.step(key, &node, &mut spot);
        }
        spot
    }

    /// Goes to the entry of `node` to which `key` leads.
    #[inline(always)]
    fn step(&self, key: &Bits<'_, K>, node: &Node<'_>, spot: &mut Spot) {
        spot.index = node.index_of(key, self.instructions);
        spot.slot = node.place(spot.index);
        spot.entry = self.entry_at(spot.slot);
    }

    /// What `key` leads to from `entry` on. The caller has pinned the pool.
    pub(super) fn follow_from(&self, key: &Bits<'_, K>, mut entry: Entry) -> Entry {
        let mut above = Entry::NONE;
        while entry.is_node() {
            let node = self.node_below(above, entry);
            above = entry;
            entry = self.entry_at(node.place(node.index_of(key, self.instructions)));
        }
        entry
    }

    /// Where the word is that refers to `node`, which is on the way of `key`; none if it is not, any
    /// more. The caller has pinned the pool.
    pub(super) fn level_of(&self, key: &Bits<'_, K>, node: Entry) -> Option<Level> {
        let slot = self.handle.top;
        let mut spot = Spot { level: Level::ROOT, index: 0, slot, entry: self.entry_at(slot) };
        while spot.entry.is_node() {
            let above = spot.level.node;
            let found = self.node_below(above, spot.entry);
            spot.level = Level { node: spot.entry, place: spot.slot, above };
            if spot.entry == node {
                return Some(spot.level);
            }
            self.step(key, &found, &mut spot);
        }
        None
    }

    /// The entry to which `key` leads in the node of `entry`, which is in the node `above`.
    #[inline(always)]
    fn next(&self, key: &Bits<'_, K>, above: Entry, entry: Entry) -> Entry {
        let node = self.node_below(above, entry);
        self.entry_at(node.place(node.index_of(key, self.instructions)))
    }

    /// The value of `key`, if the leaf of `entry` is its. The caller has pinned the pool.
    #[inline(always)]
    fn value_at(&self, key: &Bits<'_, K>, entry: Entry) -> Option<u64> {
        let pool = &self.handle.pool;
        let leaf = entry.is_leaf().then(|| entry.as_leaf())?;
        self.key_of_leaf(leaf).is(key).then(|| pool.at(leaf).value.load_acquire(pool.domain()))
    }

    /// The value of `key`. The caller has pinned the pool.
    #[inline(always)]
    pub(super) fn find(&self, key: &Bits<'_, K>) -> Option<u64> {
        let (mut above, mut entry) = (Entry::NONE, self.entry_at(self.handle.top));
        while entry.is_node() {
            self.prefetch_node(entry);
            (above, entry) = (entry, self.next(key, above, entry));
        }
        self.value_at(key, entry)
    }

    /// The value of `key`, in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let mut space = [0; 8];
        let key = Digits::of(key, &mut space);
        let (mut above, mut entry) = (Entry::NONE, self.entry_at(self.handle.top));
        while entry.is_node() {
            self.prefetch_node(entry);
            turn.give_way().await;
            (above, entry) = (entry, self.next(&key, above, entry));
        }
        if entry.is_leaf() {
            self.handle.pool.prefetch(entry.as_leaf());
            turn.give_way().await;
        }
        let value = self.value_at(&key, entry);
        self.handle.persist_before_return();
        value
    }

    #[inline(always)]
    fn prefetch_node(&self, entry: Entry) {
        let pool = &self.handle.pool;
        if pool.domain().prefetches() {
            for line in 0..PREFETCHED_LINES {
                let at = entry.as_node().offset() + line * LINE_BYTES as u64;
                pool.prefetch::<PCell<u64>>(Link::from_bits(at));
            }
        }
    }
}
