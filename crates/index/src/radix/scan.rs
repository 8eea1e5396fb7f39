//! Ordered scans.
//!
//! A scan holds the nodes on its way on a stack and takes their slots in order. It pins the pool
//! all the while, and what it holds stays true whatever writers do: a node keeps its branch
//! position and its prefix for life (I3), so the slots of the nodes on the stack go on dividing the
//! keys into the same disjoint ranges. A node that was taken out keeps its last children, whose
//! leaves no writer moves elsewhere without leaving them reachable from there.
//!
//! Where entries of a node change hands ([`RadixTree::ENTRIES_CHANGE_HANDS`]), a scan can come upon
//! the child of another slot than the one it is at: the one that it is at was taken out meanwhile.
//! One leaf tells, for all keys below a node share its prefix; what has strayed is left out.
//!
//! What lies below a node is a part of a scan of everything ([`lapis_pmem::parts`]): the node's word is
//! its name, its first and its last leaf are its ends. So is what lies below a stretch of the children of
//! a node that has many.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::parts::{PartEnds, PartName};
use lapis_pmem::{Domain, Link, Observed, Pool};

use super::damaged_word;
use super::descent::Descending;
use super::digits::{Digits, Span};
use super::leaf::Leaf;
use super::stretches::{Stretch, ends_of, leaves_at};
use super::tree::{KeyOf, RadixTree};
use super::word::SlotWord;
use crate::entries_by_part::EntriesByPart;
use crate::index::Direction;
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf, visit_word};

/// Whom a scan tells of what it comes to.
trait Visitor<D: Domain> {
    /// Whether it is told of parts.
    const BY_PARTS: bool;

    fn entry(&mut self, pool: &Pool<D>, key_word: u64, value: u64) -> ControlFlow<()>;
    /// See [`EntriesByPart`] for these.
    fn known(&mut self, name: PartName) -> Option<PartEnds>;
    fn pass(&mut self, name: PartName) -> ControlFlow<()>;
    fn begin(&mut self, name: PartName);
    fn end(&mut self, ends: Option<PartEnds>);
}

/// Visits every entry.
struct Each<'v, D: Domain, K: IndexKey + ?Sized>(OnLeaf<'v, D, K>);

impl<D: Domain, K: IndexKey + ?Sized> Visitor<D> for Each<'_, D, K> {
    const BY_PARTS: bool = false;

    #[inline(always)]
    fn entry(&mut self, pool: &Pool<D>, key_word: u64, value: u64) -> ControlFlow<()> {
        (self.0)(LeafEntries::new(pool, &[(key_word, value)]))
    }
    fn known(&mut self, _name: PartName) -> Option<PartEnds> {
        None
    }
    fn pass(&mut self, _name: PartName) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn begin(&mut self, _name: PartName) {}
    fn end(&mut self, _ends: Option<PartEnds>) {}
}

/// Visits what is not known.
struct ByParts<'v, K: ?Sized>(&'v mut dyn EntriesByPart<K>);

impl<D: Domain, K: IndexKey + ?Sized> Visitor<D> for ByParts<'_, K> {
    const BY_PARTS: bool = true;

    fn entry(&mut self, pool: &Pool<D>, key_word: u64, value: u64) -> ControlFlow<()> {
        visit_word(pool, key_word, value, &mut |key: &K, value| self.0.entry(key, value))
    }
    fn known(&mut self, name: PartName) -> Option<PartEnds> {
        self.0.known(name)
    }
    fn pass(&mut self, name: PartName) -> ControlFlow<()> {
        self.0.pass(name)
    }
    fn begin(&mut self, name: PartName) {
        self.0.begin(name);
    }
    fn end(&mut self, ends: Option<PartEnds>) {
        self.0.end(ends);
    }
}

/// A node on the way, and what comes next in it.
struct Frame<W> {
    node: W,
    position: usize,
    /// The rank that the scan is at.
    current: usize,
    /// The rank to look for a child from; out of range when the node is done.
    next: usize,
}

/// The part below a node on the way.
struct OpenPart {
    /// The first leaf below the node; null before it has been visited.
    first_leaf: Link<Leaf>,
    /// The rank behind the stretch that the scan is in, if it is in one.
    stretch_end: Option<usize>,
    /// The first leaf below that; without stretches, that of the node.
    first_of_stretch: Link<Leaf>,
    children_of_stretch: usize,
}

impl OpenPart {
    const fn new() -> Self {
        let (first_leaf, first_of_stretch) = (Link::NULL, Link::NULL);
        Self { first_leaf, stretch_end: None, first_of_stretch, children_of_stretch: 0 }
    }
}

/// A position between two entries, and a direction.
struct Cursor<'i, T: RadixTree, V> {
    index: &'i T,
    visitor: V,
    direction: Direction,
    /// The leaf visited last, where there are parts.
    last_leaf: Link<Leaf>,
    stack: Vec<Frame<T::Word>>,
    /// Where there are parts, that of each node on the stack.
    parts: Vec<OpenPart>,
    /// Frames from here on have gone to a child of which no leaf has been seen.
    unverified: usize,
    /// A leaf that comes before everything on the stack.
    pending: Option<Link<Leaf>>,
}

/// Scans of every radix tree.
pub trait Scanning: RadixTree {
    /// See [`crate::OrderedIndex::scan_leaves`].
    fn scan_entries(
        &self,
        from: Bound<&Self::Key>,
        direction: Direction,
        visit: OnLeaf<'_, Self::Domain, Self::Key>,
    ) {
        let mut cursor = Cursor::new(self, Each(visit), direction);
        let mut space = [0; 8];
        let _pinned = self.handle().pool.pin();
        let begun = match from {
            Bound::Unbounded => cursor.enter(self.child_at(self.handle().top)),
            Bound::Included(key) => cursor.seek(&Digits::of(key, &mut space), true),
            Bound::Excluded(key) => cursor.seek(&Digits::of(key, &mut space), false),
        };
        if begun.is_continue() {
            cursor.visit_all();
        }
    }

    /// See [`crate::Index::for_each_by_part`].
    fn scan_parts(&self, visitor: &mut dyn EntriesByPart<Self::Key>) {
        let mut cursor = Cursor::new(self, ByParts(visitor), Direction::Forward);
        let _pinned = self.handle().pool.pin();
        if cursor.enter(self.child_at(self.handle().top)).is_continue() {
            cursor.visit_all();
        }
    }
}

impl<T: RadixTree> Scanning for T {}

impl<'i, T: RadixTree, V: Visitor<T::Domain>> Cursor<'i, T, V> {
    fn new(index: &'i T, visitor: V, direction: Direction) -> Self {
        let stack = Vec::with_capacity(16);
        let last_leaf = Link::NULL;
        let parts = Vec::with_capacity(if V::BY_PARTS { 16 } else { 0 });
        Self { index, visitor, direction, last_leaf, stack, parts, unverified: 0, pending: None }
    }

    /// Visits everything from here on, until the visitor breaks.
    #[inline]
    fn visit_all(&mut self) {
        let handle = self.index.handle();
        let pool = &handle.pool;
        while let Some(link) = self.next_leaf() {
            let value = pool.at(link).value.load_acquire(pool.domain());
            let Some(key) = self.index.key_of_leaf(link) else {
                damaged_word(T::Word::leaf(link).bits());
            };
            if !self.leads_to(&key) {
                continue;
            }
            if V::BY_PARTS {
                self.note_leaves(link, link);
            }
            handle.persist_before_return();
            if self.visitor.entry(pool, Leaf::key_word(link, &key), value).is_break() {
                return;
            }
        }
        handle.persist_before_return();
    }

    /// The rank after `rank` in this direction; out of range past the last.
    fn after(&self, rank: usize) -> usize {
        match self.direction {
            Direction::Forward => rank + 1,
            Direction::Backward => rank.wrapping_sub(1),
        }
    }

    /// Goes before all entries below `child`, or behind them if they are known.
    fn enter(&mut self, child: T::Word) -> ControlFlow<()> {
        if child.is_leaf() {
            self.pending = Some(child.as_leaf());
        } else if !child.is_none() {
            let floor = self.stack.last().map_or(0, |frame| frame.position + 1);
            let position = self.index.position_from(child, floor);
            if V::BY_PARTS {
                let name = child.bits().into();
                if let Some([first, last]) = self.visitor.known(name)
                    && self.leads_into(Link::from_bits(first), Link::from_bits(last), false)
                {
                    self.index.handle().persist_before_return();
                    return self.visitor.pass(name);
                }
                self.visitor.begin(name);
                self.parts.push(OpenPart::new());
            }
            let first = T::first_rank(child.position::<T::Key>(), self.direction);
            self.push_at(child, position, first, first);
            if self.index.handle().pool.domain().prefetches() {
                // They are all visited next: ask for them at once.
                self.index.prefetch_children(child, self.direction);
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the scan is where the keys of a part belong that begins and ends with these leaves:
    /// below the child that it is at, or `in_stretch` of the node's children, in which case that is
    /// where it is.
    fn leads_into(&mut self, first: Link<Leaf>, last: Link<Leaf>, in_stretch: bool) -> bool {
        let Some(key) = self.index.key_of_leaf(first) else { return false };
        if in_stretch && let Some(frame) = self.stack.last_mut() {
            let Some(slot) = key.slot_at(frame.position) else { return false };
            frame.current = T::Span::rank_of(slot);
            self.unverified = self.unverified.min(self.stack.len() - 1);
        }
        let leads = !T::ENTRIES_CHANGE_HANDS || self.strayed(&key).is_none();
        if leads {
            self.unverified = self.stack.len();
            self.note_leaves(first, last);
        }
        leads
    }

    /// The leaves from `first` to `last` are visited.
    fn note_leaves(&mut self, first: Link<Leaf>, last: Link<Leaf>) {
        let around = self.parts.iter_mut().rev();
        for part in around.take_while(|part| part.first_of_stretch.is_null()) {
            part.first_of_stretch = first;
            if part.first_leaf.is_null() {
                part.first_leaf = first;
            }
        }
        self.last_leaf = last;
    }

    fn push(&mut self, node: T::Word, current: usize, next: usize) {
        let floor = self.stack.last().map_or(0, |frame| frame.position + 1);
        let position = self.index.position_from(node, floor);
        self.push_at(node, position, current, next);
    }

    #[inline(always)]
    fn push_at(&mut self, node: T::Word, position: usize, current: usize, next: usize) {
        self.stack.push(Frame { node, position, current, next });
    }

    fn pop(&mut self) {
        self.stack.pop();
        if V::BY_PARTS
            && let Some(OpenPart { first_leaf, stretch_end, .. }) = self.parts.pop()
        {
            if stretch_end.is_some() {
                // The scan has strayed.
                self.visitor.end(None);
            }
            let ends = (!first_leaf.is_null()).then(|| [first_leaf.bits(), self.last_leaf.bits()]);
            self.visitor.end(ends);
        }
    }

    /// The next leaf in order.
    fn next_leaf(&mut self) -> Option<Link<Leaf>> {
        if let Some(leaf) = self.pending.take() {
            return Some(leaf);
        }
        loop {
            let frame = self.stack.last()?;
            let (node, from) = (frame.node, frame.next);
            let found = if V::BY_PARTS
                && let Some(ranks) = self.index.stretch_ranks(node)
            {
                self.next_by_stretches(ranks)
            } else {
                let in_range = from <= T::Span::SLOTS;
                ControlFlow::Continue(
                    in_range.then(|| self.index.next_child(node, from, self.direction)).flatten(),
                )
            };
            let ControlFlow::Continue(found) = found else { return None };
            let Some((rank, child)) = found else {
                self.pop();
                continue;
            };
            let next = self.after(rank);
            if let Some(frame) = self.stack.last_mut() {
                (frame.current, frame.next) = (rank, next);
            }
            self.unverified = self.unverified.min(self.stack.len() - 1);
            if child.is_leaf() {
                return Some(child.as_leaf());
            }
            if self.enter(child).is_break() {
                return None;
            }
        }
    }

    /// The next child of the node that the scan is in, which has stretches of so many ranks, but for
    /// those that are known.
    fn next_by_stretches(&mut self, ranks: usize) -> ControlFlow<(), Option<(usize, T::Word)>> {
        loop {
            let (Some(frame), Some(part)) = (self.stack.last_mut(), self.parts.last_mut()) else {
                return ControlFlow::Continue(None);
            };
            if let Some(end) = part.stretch_end {
                let found = self.index.next_child_before(frame.node, frame.next, end);
                if found.is_some() {
                    part.children_of_stretch += 1;
                    return ControlFlow::Continue(found);
                }
                let first = part.first_of_stretch;
                let ends = ends_of(first, self.last_leaf, part.children_of_stretch);
                (frame.next, part.stretch_end) = (end, None);
                self.visitor.end(ends);
                continue;
            }
            if frame.next > T::Span::SLOTS {
                return ControlFlow::Continue(None);
            }
            let stretch = Stretch::beginning_at(frame.next, ranks);
            let name = stretch.name_below(frame.node);
            part.first_of_stretch = Link::NULL;
            let known = self.visitor.known(name).map(leaves_at);
            let is_known = known.is_some_and(|leaves| {
                leaves.is_none_or(|(first, last, _)| self.leads_into(first, last, true))
            });
            if is_known {
                if let Some(frame) = self.stack.last_mut() {
                    frame.next = stretch.end;
                }
                self.index.handle().persist_before_return();
                self.visitor.pass(name)?;
            } else {
                self.visitor.begin(name);
                if let Some(part) = self.parts.last_mut() {
                    (part.stretch_end, part.children_of_stretch) = (Some(stretch.end), 0);
                }
            }
        }
    }

    /// Whether the scan is where `key` belongs. If it is not, goes on behind the child that strayed.
    #[inline]
    fn leads_to(&mut self, key: &KeyOf<'_, T>) -> bool {
        if !T::ENTRIES_CHANGE_HANDS {
            return true;
        }
        let Some(strayed) = self.strayed(key) else {
            self.unverified = self.stack.len();
            return true;
        };
        while self.stack.len() > strayed + 1 {
            self.pop();
        }
        self.unverified = strayed;
        false
    }

    /// The first frame, of those that have gone on since a leaf was seen, whose child is not the one
    /// on the way of `key`.
    #[inline]
    fn strayed(&self, key: &KeyOf<'_, T>) -> Option<usize> {
        let strays = |frame: &Frame<T::Word>| {
            key.slot_at(frame.position).map(T::Span::rank_of) != Some(frame.current)
        };
        let from = self.unverified.min(self.stack.len());
        self.stack[from..].iter().position(strays).map(|found| from + found)
    }

    /// Goes before the first entry that is not before `key` in this direction, or that is behind
    /// it.
    fn seek(&mut self, key: &KeyOf<'_, T>, inclusive: bool) -> ControlFlow<()> {
        // The descent skips prefixes: where the key leaves the tree is known only at the end.
        let pool = &self.index.handle().pool;
        let mut child = self.index.top_child();
        while !child.is_none() && !child.is_leaf() {
            let Some(slot) = key.slot_at(child.position::<T::Key>()) else { break };
            let rank = T::Span::rank_of(slot);
            self.push(child, rank, self.after(rank));
            let below = self.index.child_below(&pool.reach(), child, slot);
            child = below.unwrap_or_else(|| damaged_word(child.bits()));
        }
        let subtree = match (child.is_none(), self.stack.last()) {
            (true, None) => return ControlFlow::Continue(()),
            (true, Some(frame)) => frame.node,
            (false, _) => child,
        };
        let Ok((witness, known)) = self.index.leaf_below(subtree) else {
            damaged_word(subtree.bits());
        };
        let Some(position) = key.first_difference(&known) else {
            if inclusive {
                self.pending = Some(witness);
            }
            return ControlFlow::Continue(());
        };
        // Nodes that branch behind that are wholly on the side of the witness.
        let mut whole = child;
        while let Some(frame) = self.stack.pop_if(|top| top.position > position) {
            whole = frame.node;
        }
        let rank_of = |key: &KeyOf<'_, T>| key.slot_at(position).map(T::Span::rank_of);
        let greater = rank_of(&known) > rank_of(key);
        if greater == (self.direction == Direction::Forward) {
            return self.enter(whole);
        }
        ControlFlow::Continue(())
    }
}
