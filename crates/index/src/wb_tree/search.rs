//! Searching: one node, and the way down. Readers look at a node between two looks at its control
//! word, and at a child only as long as its parent is what it was.

use std::cmp::Ordering;

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, Link};

use super::node::{Node, Order, Place, Snapshot, Top, ordinal_of};
use super::{WbTree, WbTreeNodeKind};
use crate::key::IndexKey;

/// More levels of inner nodes than this no index can have: each multiplies the leaves at least by
/// two.
pub(super) const MOST_LEVELS: usize = 32;

/// Tries of one search before the index must be damaged: each stands for a change that somebody has
/// finished meanwhile.
const MOST_TRIES: u32 = 1 << 20;

/// What to look for: the last entry that is not beyond a key.
#[derive(Debug)]
pub(super) struct Target<'k, K: ?Sized> {
    pub(super) ordinal: u64,
    key: Option<&'k K>,
    /// The entry may be equal to the key.
    inclusive: bool,
}

impl<K: ?Sized> Clone for Target<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: ?Sized> Copy for Target<'_, K> {}

impl<'k, K: IndexKey + ?Sized> Target<'k, K> {
    /// The last entry up to `key`.
    #[inline(always)]
    pub(super) fn up_to(key: &'k K) -> Self {
        Self { ordinal: ordinal_of(key), key: Some(key), inclusive: true }
    }

    /// The last entry before `key`.
    pub(super) fn below(key: &'k K) -> Self {
        Self { ordinal: ordinal_of(key), key: Some(key), inclusive: false }
    }

    /// Before all entries.
    pub(super) fn start() -> Self {
        Self { ordinal: 0, key: None, inclusive: false }
    }

    /// The last of all entries.
    pub(super) fn end() -> Self {
        Self { ordinal: u64::MAX, key: None, inclusive: true }
    }
}

/// Two neighbouring entries of a node between which a target lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The place of the last entry that is not beyond the target.
    pub(super) floor: Option<usize>,
    /// The place of the first one that is.
    pub(super) ceiling: Option<usize>,
}

/// A separator: its ordinal and its key word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Separator {
    pub(super) ordinal: u64,
    pub(super) word: u64,
}

/// Where a reader's way down has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'p> {
    pub(super) leaf: Node<'p>,
    pub(super) snapshot: Snapshot,
    /// The leaf's keys are not below this, if it was asked for and there is a bound.
    pub(super) low: Option<Separator>,
    /// They are below this.
    pub(super) high: Option<Separator>,
}

/// A writer's way down: the inner nodes, from the top.
#[derive(Debug)]
pub(super) struct Path {
    links: [Place; MOST_LEVELS],
    len: usize,
    /// One bit per inner node: the way took its last child, and that of all above.
    at_end: u32,
}

impl Path {
    fn new() -> Self {
        Self { links: [Link::NULL; MOST_LEVELS], len: 0, at_end: 0 }
    }

    /// How many inner nodes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The node at `level` from the top.
    pub(super) fn link(&self, level: usize) -> Place {
        self.links[..self.len][level]
    }

    /// Whether the node at `level` is the last one of its level, and (for inner nodes) the way took
    /// its last child.
    pub(super) fn is_at_end(&self, level: usize) -> bool {
        let above = (1u64 << level) - 1;
        u64::from(self.at_end) & above == above
            && (level >= self.len || self.at_end >> level & 1 != 0)
    }
}

#[cold]
#[inline(never)]
fn goes_in_circles() -> ! {
    panic!("the index is damaged: the way through the tree does not end")
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Place) -> ! {
    panic!("the pool is damaged: the node {link:?} does not end within it")
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    #[inline(always)]
    pub(super) fn node(&self, link: Place) -> Node<'_> {
        match Node::find(&self.pool, &self.shape, link) {
            Some(node) => node,
            None => beyond_the_end(link),
        }
    }

    /// The node at `link`, with all of its lines on their way to the cache at once: a binary search
    /// would ask for them one after the other.
    #[inline(always)]
    fn arrive(&self, link: Place) -> Node<'_> {
        let node = self.node(link);
        if self.domain().prefetches() {
            for line in node.words.chunks(8) {
                self.domain().prefetch(line.as_ptr().cast());
            }
        }
        node
    }

    #[inline(always)]
    pub(super) fn top(&self) -> Top {
        Top(self.root().top.word().load_acquire(self.domain()))
    }

    /// Whether the entry at `index` is not beyond the target.
    #[inline(always)]
    fn admits(&self, node: Node<'_>, index: usize, target: &Target<'_, K>) -> bool {
        let ordinal = node.ordinal(self.domain(), index);
        if ordinal != target.ordinal {
            return ordinal < target.ordinal;
        }
        match target.key {
            Some(key) if !K::INLINE => {
                match key.cmp_word(&self.pool, node.key_word(self.domain(), index)) {
                    Ordering::Less => false,
                    Ordering::Equal => target.inclusive,
                    Ordering::Greater => true,
                }
            }
            _ => target.inclusive,
        }
    }

    /// Compares two separators, or the keys of two entries. Equal, too, if one of them is no key.
    pub(super) fn compare(&self, left: Separator, right: Separator) -> Ordering {
        left.ordinal.cmp(&right.ordinal).then_with(|| {
            K::with_word(&self.pool, left.word, |key| key.cmp_word(&self.pool, right.word))
                .unwrap_or(Ordering::Equal)
        })
    }

    #[inline]
    pub(super) fn separator_at(&self, node: Node<'_>, index: usize) -> Separator {
        let ordinal = node.ordinal(self.domain(), index);
        let word = if K::INLINE { ordinal } else { node.key_word(self.domain(), index) };
        Separator { ordinal, word }
    }

    /// Finds the target's place in a node: by bisection, or if the slot array is invalid (I2) by
    /// looking at all entries.
    #[inline(always)]
    pub(super) fn probe(&self, node: Node<'_>, control: u64, target: &Target<'_, K>) -> Spot {
        if !node.is_ordered(control) {
            return self.probe_disordered(node, control, target);
        }
        let domain = self.domain();
        let count = node.count(control);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if self.admits(node, node.index_at(domain, control, middle), target) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Spot {
            floor: (low > 0).then(|| node.index_at(domain, control, low - 1)),
            ceiling: (low < count).then(|| node.index_at(domain, control, low)),
        }
    }

    #[cold]
    fn probe_disordered(&self, node: Node<'_>, control: u64, target: &Target<'_, K>) -> Spot {
        let mut spot = Spot { floor: None, ceiling: None };
        for index in node.places(control) {
            let here = self.separator_at(node, index);
            let (best, nearer) = if self.admits(node, index, target) {
                (&mut spot.floor, Ordering::Greater)
            } else {
                (&mut spot.ceiling, Ordering::Less)
            };
            if best.is_none_or(|best| self.compare(here, self.separator_at(node, best)) == nearer) {
                *best = Some(index);
            }
        }
        spot
    }

    /// The order of a node's entries; sorts them if the slot array is invalid.
    #[inline]
    pub(super) fn order_of(&self, node: Node<'_>, control: u64) -> Order {
        if node.is_ordered(control) {
            return node.slots(self.domain(), control);
        }
        self.sorted(node, control)
    }

    /// By insertion, which comes to some end whatever it is shown: a reader may see entries change
    /// meanwhile, and then throws the order away, but the library's sorting functions may panic.
    #[cold]
    fn sorted(&self, node: Node<'_>, control: u64) -> Order {
        let mut order = Order::EMPTY;
        for index in node.places(control) {
            let here = self.separator_at(node, index);
            let position = order.as_slice().partition_point(|&placed| {
                self.compare(self.separator_at(node, usize::from(placed)), here).is_lt()
            });
            order = order.with(position, index);
        }
        order
    }

    /// How many entries of `order` are not beyond the target.
    #[inline]
    pub(super) fn position_in(
        &self,
        node: Node<'_>,
        order: &Order,
        target: &Target<'_, K>,
    ) -> usize {
        order.as_slice().partition_point(|&index| self.admits(node, usize::from(index), target))
    }

    /// Whether the entry at `index`, the last one up to `key`, is that of `key`.
    #[inline(always)]
    pub(super) fn is_entry_of(
        &self,
        node: Node<'_>,
        index: usize,
        key: &K,
        target: &Target<'_, K>,
    ) -> bool {
        let domain = self.domain();
        node.ordinal(domain, index) == target.ordinal
            && (K::INLINE || key.cmp_word(&self.pool, node.key_word(domain, index)).is_eq())
    }

    #[inline(always)]
    fn child_of(&self, node: Node<'_>, spot: Spot) -> Place {
        Link::from_bits(match spot.floor {
            Some(index) => node.value(self.domain(), index),
            None => node.leftmost(self.domain()),
        })
    }

    /// How many levels are below the top node, that node, and what it is.
    #[inline(always)]
    fn begin(&self, tries: &mut u32) -> (usize, Node<'_>, Snapshot) {
        loop {
            *tries += 1;
            if *tries > MOST_TRIES {
                goes_in_circles();
            }
            let top = self.top();
            let node = self.arrive(top.link());
            let snapshot = node.snapshot(self.domain());
            if self.top() == top {
                return (top.levels(), node, snapshot);
            }
        }
    }

    /// The child at `spot`, all of it on its way to the cache; none if the node is no longer as it was. That only saves a
    /// miss: the reader looks at the node once more, behind the child, and whatever else was at `spot` is a node, too, as
    /// long as the pool is pinned.
    #[inline(always)]
    fn arrive_below(&self, node: Node<'_>, snapshot: Snapshot, spot: Spot) -> Option<Node<'_>> {
        let link = self.child_of(node, spot);
        node.is_still(self.domain(), snapshot).then(|| self.arrive(link))
    }

    /// A reader's way down. Never waits: it begins again only if meanwhile a writer has changed a
    /// node on its way.
    ///
    /// The parent is looked at again after the child's control word has been read. If it has not
    /// changed then, what the child holds as long as it does not change either is what the tree
    /// holds there at that moment (I6).
    #[inline(always)]
    pub(super) fn descend<const BOUNDS: bool>(&self, target: &Target<'_, K>) -> Arrival<'_> {
        let domain = self.domain();
        let mut tries = 0u32;
        'again: loop {
            let (levels, mut node, mut snapshot) = self.begin(&mut tries);
            let (mut low, mut high) = (None, None);
            for _ in 0..levels {
                let spot = self.probe(node, snapshot.control, target);
                if BOUNDS {
                    let separator = |index| self.separator_at(node, index);
                    low = spot.floor.map(separator).or(low);
                    high = spot.ceiling.map(separator).or(high);
                }
                let Some(child) = self.arrive_below(node, snapshot, spot) else { continue 'again };
                let below = child.snapshot(domain);
                if !node.is_still(domain, snapshot) {
                    continue 'again;
                }
                (node, snapshot) = (child, below);
            }
            return Arrival { leaf: node, snapshot, low, high };
        }
    }

    /// A writer's way down: nobody else changes anything meanwhile.
    #[inline]
    pub(super) fn descend_to_write(&self, target: &Target<'_, K>) -> (Path, Node<'_>) {
        let mut path = Path::new();
        let top = self.top();
        if top.levels() > MOST_LEVELS {
            goes_in_circles();
        }
        let mut node = self.arrive(top.link());
        for level in 0..top.levels() {
            let spot = self.probe(node, node.control(self.domain()), target);
            path.links[level] = node.link;
            path.len = level + 1;
            path.at_end |= u32::from(spot.ceiling.is_none()) << level;
            node = self.arrive(self.child_of(node, spot));
        }
        (path, node)
    }

    /// See [`crate::Index::get`].
    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Option<u64> {
        let target = Target::up_to(key);
        let _pinned = self.pool.pin();
        let mut tries = 0u32;
        loop {
            tries += 1;
            if tries > MOST_TRIES {
                goes_in_circles();
            }
            let Arrival { leaf, snapshot, .. } = self.descend::<false>(&target);
            if let Some(answer) = self.answer(leaf, snapshot, key, &target) {
                return answer;
            }
        }
    }

    /// As [`WbTree::lookup`], in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let (domain, target) = (self.domain(), Target::up_to(key));
        let mut tries = 0u32;
        'again: loop {
            let (levels, mut node, mut snapshot) = self.begin(&mut tries);
            for _ in 0..levels {
                let spot = self.probe(node, snapshot.control, &target);
                let Some(child) = self.arrive_below(node, snapshot, spot) else { continue 'again };
                turn.give_way().await;
                let below = child.snapshot(domain);
                if !node.is_still(domain, snapshot) {
                    continue 'again;
                }
                (node, snapshot) = (child, below);
            }
            if let Some(answer) = self.answer(node, snapshot, key, &target) {
                return answer;
            }
        }
    }

    /// The value of `key` in its leaf; nothing if that is no longer as it was.
    #[inline(always)]
    fn answer(
        &self,
        leaf: Node<'_>,
        snapshot: Snapshot,
        key: &K,
        target: &Target<'_, K>,
    ) -> Option<Option<u64>> {
        let found = self
            .probe(leaf, snapshot.control, target)
            .floor
            .filter(|&index| self.is_entry_of(leaf, index, key, target))
            .map(|index| leaf.value(self.domain(), index));
        leaf.is_still(self.domain(), snapshot).then(|| {
            self.persist_before_return();
            found
        })
    }
}
