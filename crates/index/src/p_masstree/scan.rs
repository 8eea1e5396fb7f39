//! Ordered scans.
//!
//! A scan is at a cut between keys. It goes down to the border node there, reads its entries, the keys of one moment, and
//! then has a cut further on: behind the node, behind its layer, or in the layer of an entry. It keeps
//! the cut, and where it has been on the way there, in each layer: from there it goes on, if what leads there is as it
//! was. What is split, joined or removed meanwhile does not concern it: keys that
//! stay are found where they are when the scan comes by, once.

use std::ops::Bound;

use lapis_pmem::Domain;

use super::PMasstree;
use super::node::{Slice, View, Word};
use super::permutation::WIDTH;
use super::read::{Aim, Spot, Step};
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};
use crate::radix::{Leaf, damaged_word};

/// Which side of its bytes a cut is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
    /// After all keys that begin with the bytes, which are whole slices.
    Beyond,
}

/// A place between two keys.
struct Cut {
    bytes: Vec<u8>,
    side: Side,
    forward: bool,
}

impl Cut {
    fn of<K: IndexKey + ?Sized>(from: Bound<&K>, direction: Direction) -> Self {
        let forward = direction == Direction::Forward;
        let mut space = [0; 8];
        let (key, side) = match from {
            Bound::Unbounded if forward => (None, Side::Before),
            Bound::Unbounded => (None, Side::Beyond),
            Bound::Included(key) => (Some(key), if forward { Side::Before } else { Side::After }),
            Bound::Excluded(key) => (Some(key), if forward { Side::After } else { Side::Before }),
        };
        let bytes = key.map_or(&[][..], |key| key.bytes(&mut space)).to_vec();
        Self { bytes, side, forward }
    }

    /// What is to be looked for in a layer on the way there.
    fn aim(&self, layer: usize) -> Aim {
        let rest = self.bytes.get(8 * layer..).unwrap_or_default();
        let mut slice = Slice::of_bytes(rest);
        let mut enters = slice.is_long();
        if self.side == Side::Beyond && rest.is_empty() {
            slice = Slice::LAST;
        } else if self.side == Side::Beyond && rest.len() == 8 {
            slice.class = Slice::LONG;
            enters = !self.forward;
        }
        let strictly_below = !self.forward && self.side == Side::Before && !slice.is_long();
        Aim { slice, strictly_below, enters }
    }

    /// Goes on from the `separator` beside a border node of a layer, or, if there is none there, from beside the
    /// layer. False if there is nothing more.
    ///
    /// # Panics
    /// If the separator is not further on: the pool is damaged, and going on might never end.
    fn pass_node(&mut self, layer: usize, separator: Option<Slice>) -> bool {
        let Aim { slice, strictly_below, .. } = self.aim(layer);
        self.bytes.truncate(8 * layer);
        let Some(separator) = separator else {
            self.side = if self.forward { Side::Beyond } else { Side::After };
            return layer > 0;
        };
        let is_further = separator.is_canonical()
            && match self.forward {
                true => separator > slice,
                false => separator < slice || (separator == slice && !strictly_below),
            };
        if !is_further {
            damaged_word(separator.bits);
        }
        separator.append_to(&mut self.bytes);
        self.side = match (separator.is_long(), self.forward) {
            (false, _) => Side::Before,
            // All that go on from the slice begin behind it.
            (true, true) => {
                self.bytes.push(0);
                Side::Before
            }
            (true, false) => Side::After,
        };
        true
    }

    /// Goes before, or behind, all keys of the layer below an entry.
    fn enter(&mut self, layer: usize, slice: Slice) {
        self.bytes.truncate(8 * layer);
        slice.append_to(&mut self.bytes);
        self.side = Side::Beyond;
        if self.forward {
            self.bytes.push(0);
            self.side = Side::Before;
        }
    }
}

/// Entries of a border node.
type Entries = Vec<(Slice, Word)>;

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for PMasstree<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let _pinned = self.handle.pool.pin();
        let mut cut = Cut::of(from, direction);
        let (mut entries, mut words) = (Entries::new(), Vec::with_capacity(WIDTH));
        // The border nodes on the way, one in each layer.
        let mut path: Vec<Step<'_>> = Vec::new();
        loop {
            let aim = |layer| cut.aim(layer);
            let mut back = std::iter::from_fn(|| path.pop());
            let beside = back.find_map(|last| self.way_beside(&last, aim(last.layer)));
            let Some(way) = beside.or_else(|| self.begin(aim)) else { break };
            let spot = self.descend_from::<true>(way, aim, |step| {
                if step.above.view.is_none() {
                    path.clear();
                }
                if !step.view.is_interior() {
                    path.push(*step);
                }
            });
            let Some(Spot { step, .. }) = spot else { break };
            let view = &step.view;
            if !self.collect(view, &mut entries) {
                continue;
            }
            let aim = cut.aim(step.layer);
            // A layer has come there since the way ended there: it goes on now.
            let is_layer = |&(slice, word): &(Slice, Word)| slice == aim.slice && word.is_layer();
            if !K::INLINE && aim.enters && entries.iter().any(is_layer) {
                continue;
            }
            if !cut.forward {
                entries.reverse();
            }
            let ahead = entries
                .partition_point(|&(slice, word)| !self.is_ahead(slice, word, &cut, aim, view));
            let mut entered = None;
            words.clear();
            for &(slice, word) in &entries[ahead..] {
                if !K::INLINE && word.is_layer() {
                    entered = Some(slice);
                    break;
                }
                words.extend(self.entry_of(slice, word, view));
            }
            self.handle.persist_before_return();
            let leaf = LeafEntries::new(&self.handle.pool, &words);
            if leaf.show_from(Bound::Unbounded, direction, visit).is_break() {
                return;
            }
            let separator = if cut.forward { view.upper } else { view.lower };
            match entered {
                Some(slice) => cut.enter(step.layer, slice),
                None if !cut.pass_node(step.layer, separator) => return,
                None if separator.is_none() => path.truncate(step.layer),
                None => {}
            }
        }
        self.handle.persist_before_return();
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// Reads the entries of a border node that are not beyond its bound: the keys of one moment, and of
    /// each a value of some moment meanwhile. False if the keys have changed.
    fn collect(&self, view: &View<'_>, entries: &mut Entries) -> bool {
        let domain = self.handle.pool.domain();
        entries.clear();
        entries.extend((0..view.live_count(domain)).map(|index| {
            let slot = view.permutation.slot(index);
            (view.slice(domain, index), view.word(domain, slot))
        }));
        view.has_its_entries(domain)
    }

    /// Whether an entry is on the side of the cut to which the scan goes.
    fn is_ahead(&self, slice: Slice, word: Word, cut: &Cut, aim: Aim, view: &View<'_>) -> bool {
        if slice != aim.slice {
            return (slice > aim.slice) == cut.forward;
        }
        if !slice.is_long() {
            return (cut.side == Side::Before) == cut.forward;
        }
        // The scan comes out of a layer, or is before or behind one key that goes on.
        if word.is_layer() || cut.side == Side::Beyond {
            return !word.is_layer() && !cut.forward;
        }
        let Some(key) = self.key_of_leaf(word.leaf(), view) else { return false };
        match key.bytes().cmp(&cut.bytes) {
            std::cmp::Ordering::Equal => (cut.side == Side::Before) == cut.forward,
            order => order.is_gt() == cut.forward,
        }
    }

    /// The key word and the value of an entry that is no layer; none if the node's entries are others by now.
    fn entry_of(&self, slice: Slice, word: Word, view: &View<'_>) -> Option<(u64, u64)> {
        if K::INLINE {
            return Some((slice.bits, word.0));
        }
        let leaf = word.leaf();
        let key = self.key_of_leaf(leaf, view)?;
        Some((Leaf::key_word(leaf, &key), self.value_at(leaf.cast())))
    }
}
