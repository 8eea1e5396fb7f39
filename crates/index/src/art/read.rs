//! What a node has: its children, one by one and in order.
//!
//! Entries of small nodes and of nodes of 48 change hands: a removal frees one and the next byte to
//! come may take it. A reader loads the word that says which entry a byte has, then the child, then
//! that word again; if it no longer says the same, it starts again. If it does, what was loaded has
//! been published, for a child is stored while no word leads to it. (It may be the child of another
//! byte if the entry has changed hands and back; keys are compared at the leaf.) Writers on their way
//! down do the same (`Descending::step`).

use lapis_pmem::{Domain, LINE_BYTES, PCell, Reach};

use super::Art;
use super::entries::{ChildIndex, Entries4, Entries16};
use super::node::{Body4, Body16, Body48, Body256, Child, Kind};
use super::policy::Policy;
use crate::index::Direction;
use crate::key::IndexKey;
use crate::radix::{Byte, SlotWord, Span, damaged_word};

/// How many children are prefetched at once.
const PREFETCHED: usize = 16;

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> Art<D, K, P> {
    #[inline(always)]
    pub(super) fn domain(&self) -> &D {
        self.handle.pool.domain()
    }

    #[inline(always)]
    fn load(&self, word: &PCell<u64>) -> u64 {
        word.load_acquire(self.domain())
    }

    #[inline(always)]
    pub(super) fn body<N: lapis_pmem::Persistent>(&self, node: Child) -> &N {
        self.handle.pool.at(node.body::<P, N>())
    }

    #[inline(always)]
    pub(super) fn entries4(&self, node: &Body4) -> Entries4 {
        Entries4(self.load(&node.entries))
    }

    /// The bitmap first: the keys that it counts were written before it.
    #[inline(always)]
    pub(super) fn entries16(&self, node: &Body16) -> Entries16 {
        let bitmap = self.load(&node.bitmap);
        Entries16 { bitmap, keys: [self.load(&node.keys[0]), self.load(&node.keys[1])] }
    }

    pub(super) fn child_index(&self, node: &Body48) -> ChildIndex {
        ChildIndex(std::array::from_fn(|at| self.load(&node.index[at])))
    }

    /// The number of the child that a node has for `byte`.
    #[inline(always)]
    pub(super) fn entry_of(&self, node: Child, byte: u8) -> Option<usize> {
        match node.kind() {
            Kind::Four => self.entries4(self.body(node)).find(byte),
            Kind::Sixteen => self.entries16(self.body(node)).find(byte),
            Kind::FortyEight => {
                let (word, shift) = ChildIndex::place(byte);
                let node: &Body48 = self.body(node);
                ChildIndex::child_in(self.load(&node.index[word]), shift)
            }
            Kind::Full => Some(usize::from(byte)),
        }
    }

    /// The child that a node has for `byte`, for readers; none if the node is beyond the reach.
    #[inline(always)]
    pub(super) fn child_of_byte(
        &self,
        reach: &Reach<'_, D>,
        node: Child,
        byte: u8,
    ) -> Option<Child> {
        let of_all = || {
            let body: &Body256 = reach.try_at(node.body::<P, _>())?;
            Some(Child(self.load(&body.children[usize::from(byte)])))
        };
        // What most searches meet most often, by a branch that is guessed right.
        if node.kind() == Kind::Full {
            return of_all();
        }
        let of_byte = |entry: Option<usize>| Some((byte, entry?));
        let found = match node.kind() {
            Kind::Four => {
                let body = reach.try_at(node.body::<P, _>())?;
                let find = |seen: Entries4| of_byte(seen.find(byte));
                self.child_found(reach, node, || self.entries4(body), find)
            }
            Kind::Sixteen => {
                let body = reach.try_at(node.body::<P, _>())?;
                let find = |seen: Entries16| of_byte(seen.find(byte));
                self.child_found(reach, node, || self.entries16(body), find)
            }
            Kind::FortyEight => {
                let (word, shift) = ChildIndex::place(byte);
                let body: &Body48 = reach.try_at(node.body::<P, _>())?;
                let look = || self.load(&body.index[word]);
                self.child_found(reach, node, look, |seen| {
                    of_byte(ChildIndex::child_in(seen, shift))
                })
            }
            Kind::Full => return of_all(),
        };
        Some(found?.map_or(Child::NONE, |(_, child)| child))
    }

    /// The byte and the entry that `find` finds in what `look` sees of the node, and still sees when that entry's child
    /// has been read: that byte and child. None if there is no such byte; if the node is beyond the reach, not even that.
    #[inline(always)]
    fn child_found<S: Copy + PartialEq>(
        &self,
        reach: &Reach<'_, D>,
        node: Child,
        look: impl Fn() -> S,
        find: impl Fn(S) -> Option<(u8, usize)>,
    ) -> Option<Option<(u8, Child)>> {
        let mut seen = look();
        loop {
            let Some((byte, entry)) = find(seen) else { return Some(None) };
            let child = Child(self.load(reach.try_at(node.child_place::<P>(entry))?));
            let now = look();
            if now == seen || find(now) == Some((byte, entry)) {
                return Some(Some((byte, child)));
            }
            seen = now;
        }
    }

    /// Hints that all that says which bytes a node has, and its children if it is copied, will be
    /// read soon.
    #[inline(always)]
    pub(super) fn prefetch_rest(&self, node: Child) {
        let bytes = match node.kind() {
            Kind::Sixteen if P::COPIES => Kind::Sixteen.node_bytes::<P>(),
            Kind::FortyEight => Kind::FortyEight.children_offset::<P>(),
            _ => return,
        };
        for offset in (0..bytes).step_by(LINE_BYTES) {
            self.handle.pool.prefetch(node.word_at(offset));
        }
    }

    /// The child of the key that ends at the node's branch position.
    #[inline(always)]
    pub(super) fn end_child(&self, node: Child) -> Child {
        Child(self.load(self.handle.pool.at(node.end_place())))
    }

    /// The byte from `from` on for which a node has a child, and that child.
    pub(super) fn next_byte(
        &self,
        node: Child,
        from: u8,
        direction: Direction,
    ) -> Option<(u8, Child)> {
        let reach = &self.handle.pool.reach();
        let mut from = from;
        loop {
            let of_byte = |byte| Some(Some((byte, self.child_of_byte(reach, node, byte)?)));
            let found = match node.kind() {
                Kind::Four => {
                    let look = || self.entries4(self.body(node));
                    self.child_found(reach, node, look, |seen| seen.nearest(from, direction))
                }
                Kind::Sixteen => {
                    let look = || self.entries16(self.body(node));
                    self.child_found(reach, node, look, |seen| seen.nearest(from, direction))
                }
                Kind::FortyEight => {
                    of_byte(self.next_in_index(self.body(node), from, direction)?)
                }
                Kind::Full => {
                    let children = &self.body::<Body256>(node).children;
                    let child = |&byte: &u8| self.load(&children[usize::from(byte)]) != 0;
                    of_byte(match direction {
                        Direction::Forward => (from..=u8::MAX).find(child),
                        Direction::Backward => (0..=from).rev().find(child),
                    }?)
                }
            };
            let (byte, child) = found.unwrap_or_else(|| damaged_word(node.bits()))?;
            if !child.is_none() {
                return Some((byte, child));
            }
            // Nothing there, or no more.
            from = match direction {
                Direction::Forward => byte.checked_add(1)?,
                Direction::Backward => byte.checked_sub(1)?,
            };
        }
    }

    /// The byte from `from` on to which the child index gives a child.
    fn next_in_index(&self, node: &Body48, from: u8, direction: Direction) -> Option<u8> {
        let (word, shift) = ChildIndex::place(from);
        let load = |at: usize| self.load(&node.index[at]);
        let in_word = |at: usize, bits: u64| {
            let bit = match direction {
                Direction::Forward => bits.trailing_zeros(),
                Direction::Backward => 63 - bits.leading_zeros(),
            };
            (8 * at + bit as usize / 8) as u8
        };
        match direction {
            Direction::Forward => {
                let first = load(word) >> shift << shift;
                std::iter::once((word, first))
                    .chain((word + 1..32).map(|at| (at, load(at))))
                    .find(|&(_, bits)| bits != 0)
            }
            Direction::Backward => {
                let first = load(word) << (56 - shift) >> (56 - shift);
                std::iter::once((word, first))
                    .chain((0..word).rev().map(|at| (at, load(at))))
                    .find(|&(_, bits)| bits != 0)
            }
        }
        .map(|(at, bits)| in_word(at, bits))
    }

    /// The child at a rank or the nearest behind it and before `end`, and its rank, in a node of 48 or
    /// one that has all: of others, what says which bytes they have is read as a whole.
    pub(super) fn next_ranked_before(
        &self,
        node: Child,
        rank: usize,
        end: usize,
    ) -> Option<(usize, Child)> {
        if rank == 0
            && !K::INLINE
            && let child = self.end_child(node)
            && !child.is_none()
        {
            return Some((0, child));
        }
        let mut from = rank.max(1);
        while from < end {
            let byte = (from - 1) as u8;
            if node.kind() == Kind::FortyEight && byte.is_multiple_of(8) {
                let (word, _) = ChildIndex::place(byte);
                if self.load(&self.body::<Body48>(node).index[word]) == 0 {
                    from += 8;
                    continue;
                }
            }
            let child = self.child_of_byte(&self.handle.pool.reach(), node, byte);
            let child = child.unwrap_or_else(|| damaged_word(node.bits()));
            if !child.is_none() {
                return Some((from, child));
            }
            from += 1;
        }
        None
    }

    /// The child at a rank or the nearest behind it, and its rank.
    pub(super) fn next_ranked(
        &self,
        node: Child,
        rank: usize,
        direction: Direction,
    ) -> Option<(usize, Child)> {
        let end = || {
            let child = if K::INLINE { Child::NONE } else { self.end_child(node) };
            (!child.is_none()).then_some((0, child))
        };
        let byte = |rank: usize| {
            let from = u8::try_from(rank.checked_sub(1)?).ok()?;
            let found = self.next_byte(node, from, direction);
            found.map(|(byte, child)| (Byte::rank_of(usize::from(byte)), child))
        };
        match direction {
            Direction::Forward if rank == 0 => end().or_else(|| byte(1)),
            Direction::Forward => byte(rank),
            Direction::Backward => byte(rank).or_else(end),
        }
    }

    /// How many bytes a node has children for, counted up to `most`.
    pub(super) fn count_bytes(&self, node: Child, most: usize) -> usize {
        match node.kind() {
            Kind::Four => self.entries4(self.body(node)).count(),
            Kind::Sixteen => self.entries16(self.body(node)).count(),
            Kind::FortyEight => self.child_index(self.body(node)).count(),
            Kind::Full => {
                let children = &self.body::<Body256>(node).children;
                children.iter().filter(|child| self.load(child) != 0).take(most).count()
            }
        }
    }

    /// Hints that the children of a node will be read soon: the first of them, if there are many.
    pub(super) fn prefetch_some(&self, node: Child, direction: Direction) {
        let small: &[PCell<u64>] = match node.kind() {
            Kind::Four => &self.body::<Body4>(node).children,
            Kind::Sixteen => &self.body::<Body16>(node).children,
            Kind::FortyEight | Kind::Full => &[],
        };
        if !small.is_empty() {
            let present = small.iter().map(|word| Child(self.load(word)));
            return present
                .filter(|child| !child.is_none())
                .for_each(|child| self.handle.pool.prefetch(child.head()));
        }
        let mut rank = match direction {
            Direction::Forward => 0,
            Direction::Backward => Byte::SLOTS,
        };
        for _ in 0..PREFETCHED {
            let Some((found, child)) = self.next_ranked(node, rank, direction) else { return };
            self.handle.pool.prefetch(child.head());
            rank = match direction {
                Direction::Forward => found + 1,
                Direction::Backward if found == 0 => return,
                Direction::Backward => found - 1,
            };
            if rank > Byte::SLOTS {
                return;
            }
        }
    }
}
