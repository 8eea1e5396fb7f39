//! The inner nodes: a volatile B+-tree over the leaves, which readers never wait for.
//!
//! ```text
//!  node, in words            kw: words of a separator, 1 for integers, 2 for byte strings
//!  word             words    field
//!     0                 1    version   odd: the node is part of the tree
//!     1                 1    count of separators (32 bits), level (32); leaves hang from level 1
//!     2          capacity    separators: the integers, or the prefixes of the strings
//!     .  (kw-1) x capacity   their handles
//!     .      capacity + 1    children: numbers of nodes, or links to leaves at level 1
//! ```
//!
//! The published tree leaves the concurrency of its inner nodes to hardware transactional memory,
//! which current processors no longer have (Intel's TSX is gone or switched off). Here whoever
//! changes them holds a lock and replaces nodes instead of changing them: a new node is written, one
//! word above it (a child, or the root) is turned to it, and then the old one's version becomes
//! even and its place may be used again. Separators and count of a node in the tree are therefore
//! constant, and of its children only the numbers of inner ones change, to nodes of the same range. A
//! descent validates each node after it has read the version of the next, and starts anew if that
//! fails; somebody has finished a change then. There is no wait anywhere.
//!
//! A node whose version is what it was is still in the tree, with the same range or (where the leaf
//! behind its last one went away) a larger one. So whoever locks a leaf and *then* finds the version of
//! the node above it as it was when it descended, has locked the right one: leaves are split off and
//! taken away under their locks.

mod change;
mod memory;
mod separators;
mod state;
#[cfg(test)]
mod tests;

use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use lapis_pmem::{AllocError, BlockVisitor, Domain, Link, Pool};
use parking_lot::Mutex;

use super::leaf::LeafHeader;
use super::locks::LOCK_BYTES;
use crate::index::InnerNodes;
use crate::key::IndexKey;

use memory::{Memory, Words};
pub(super) use separators::Separator;
use separators::{Separators, prefix_of};
use state::State;

/// Separators of a node: with integers a node of 4 KiB, and over leaves of 56 slots the three levels
/// that Table 1 (d) of the WORT paper states for 128 M keys.
pub(super) const CAPACITY: usize = 254;
/// Nodes of the first chunk.
const FIRST_NODES: usize = 16;
const VERSION: usize = 0;
const META: usize = 1;
const HEADER_WORDS: usize = 2;

/// The volatile part of the tree.
#[derive(Debug)]
pub(super) struct InnerTree {
    nodes: Memory,
    separators: Separators,
    capacity: usize,
    /// Words of a separator.
    key_words: usize,
    node_words: usize,
    /// The number of the root.
    root: AtomicU32,
    /// Held by whoever changes the tree.
    state: Mutex<State>,
}

/// What a descent looks for.
#[derive(Debug)]
pub(super) enum Target<'k, K: ?Sized> {
    /// The leaf whose range has this key.
    Of(&'k K),
    /// The last leaf whose range has a smaller key.
    Before(&'k K),
    /// The first leaf.
    First,
    /// The last leaf.
    Last,
}

impl<K: ?Sized> Clone for Target<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: ?Sized> Copy for Target<'_, K> {}

/// Where a descent arrived. Only true as long as [`InnerTree::is_current`] says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) leaf: Link<LeafHeader>,
    /// The leaf's number among the children of the node.
    pub(super) index: usize,
    node: u32,
    version: u64,
}

/// The range of a leaf: from the first separator up to the second.
#[derive(Clone, Debug)]
pub(super) struct Range<B> {
    pub(super) lower: Option<B>,
    pub(super) upper: Option<B>,
}

/// A separator, and the node and version that it was read from.
type Edge = Option<(Separator, u32, u64)>;

/// A step of a descent: a node, as it was validated, and the child chosen.
struct Step<'a> {
    node: Node<'a>,
    number: u32,
    version: u64,
    count: usize,
    index: usize,
    is_root: bool,
}

#[derive(Clone, Copy)]
struct Node<'a> {
    words: Words<'a>,
    handles_at: usize,
    children_at: usize,
}

impl Node<'_> {
    #[inline(always)]
    fn version<D: Domain>(&self, domain: &D) -> u64 {
        self.words.load_acquire(domain, VERSION)
    }

    /// The version after everything that was read of the node.
    #[inline(always)]
    fn version_again<D: Domain>(&self, domain: &D) -> u64 {
        fence(Ordering::Acquire);
        self.words.load(domain, VERSION)
    }

    /// Count of separators, and level.
    #[inline(always)]
    fn meta<D: Domain>(&self, domain: &D) -> (usize, usize) {
        let meta = self.words.load(domain, META);
        (meta as u32 as usize, (meta >> 32) as usize)
    }

    #[inline(always)]
    fn separator<D: Domain, K: IndexKey + ?Sized>(&self, domain: &D, index: usize) -> Separator {
        let prefix = self.words.load(domain, HEADER_WORDS + index);
        let handle = if K::INLINE { 0 } else { self.words.load(domain, self.handles_at + index) };
        Separator { prefix, handle }
    }

    #[inline(always)]
    fn child<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        self.words.load_acquire(domain, self.children_at + index)
    }
}

/// How many of `count` come before the first that `is_before` says no to. Without branches that a
/// processor could guess wrong.
#[inline(always)]
fn partition_point(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut base, mut size) = (0, count);
    while size > 1 {
        let half = size / 2;
        base += if is_before(base + half - 1) { half } else { 0 };
        size -= half;
    }
    base + usize::from(size == 1 && is_before(base))
}

impl InnerTree {
    /// A tree of no node yet, with so many separators to a node.
    pub(super) fn new<K: IndexKey + ?Sized>(placement: InnerNodes, capacity: usize) -> Self {
        let key_words = if K::INLINE { 1 } else { 2 };
        let node_words = (HEADER_WORDS + capacity * key_words + capacity + 1).next_multiple_of(8);
        // The arena's chunks are counted in powers of two.
        let first_words = (FIRST_NODES * node_words).next_power_of_two();
        // The locks come first among what a modelled machine is told of.
        let next_place = Arc::new(AtomicUsize::new(LOCK_BYTES));
        Self {
            nodes: Memory::new(placement, first_words, &next_place),
            separators: Separators::new(placement, &next_place),
            capacity,
            key_words,
            node_words,
            root: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    #[inline(always)]
    fn try_node<'a, D: Domain>(&'a self, pool: &'a Pool<D>, number: u32) -> Option<Node<'a>> {
        let words = self.nodes.words(pool, number as usize * self.node_words, self.node_words)?;
        let handles_at = HEADER_WORDS + self.capacity;
        let children_at = HEADER_WORDS + self.capacity * self.key_words;
        Some(Node { words, handles_at, children_at })
    }

    /// The child of a node to go to.
    #[inline(always)]
    fn search<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        node: Node<'_>,
        count: usize,
        target: Target<'_, K>,
        prefix: u64,
    ) -> usize {
        let domain = pool.domain();
        let compare = |index: usize, key: &K| {
            let separator = node.separator::<D, K>(domain, index);
            self.separators.compare(pool, separator, prefix, key)
        };
        match target {
            Target::Of(key) => {
                partition_point(count, |index| compare(index, key) != Order::Greater)
            }
            Target::Before(key) => {
                partition_point(count, |index| compare(index, key) == Order::Less)
            }
            Target::First => 0,
            Target::Last => count,
        }
    }

    /// Goes down to a leaf. The caller does what it does with the leaf's lock and then asks whether
    /// the place [is current](InnerTree::is_current).
    #[inline]
    pub(super) fn descend<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        target: Target<'_, K>,
    ) -> Place {
        self.descend_noting(pool, target, &mut |_| ())
    }

    /// Goes down; `note` is told of each step.
    #[inline(always)]
    fn descend_noting<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        target: Target<'_, K>,
        note: &mut impl FnMut(Step<'_>),
    ) -> Place {
        let domain = pool.domain();
        let prefix = match target {
            Target::Of(key) | Target::Before(key) => prefix_of(key),
            _ => 0,
        };
        'anew: loop {
            let mut number = self.root.load(Ordering::Acquire);
            let Some(mut node) = self.try_node(pool, number) else { continue };
            let mut version = node.version(domain);
            if version & 1 == 0 || self.root.load(Ordering::Acquire) != number {
                continue;
            }
            let mut is_root = true;
            loop {
                let (count, level) = node.meta(domain);
                let count = count.min(self.capacity);
                let index = self.search(pool, node, count, target, prefix);
                let child = node.child(domain, index);
                note(Step { node, number, version, count, index, is_root });
                is_root = false;
                if level <= 1 {
                    return Place { leaf: Link::from_bits(child), index, node: number, version };
                }
                let below = child as u32;
                let Some(next) = self.try_node(pool, below) else { continue 'anew };
                if level == 2 {
                    // Of the lowest nodes there are too many for the nearer caches, and each step of a search among the
                    // separators would wait for its line.
                    next.words.prefetch(domain, HEADER_WORDS + self.capacity);
                }
                let next_version = next.version(domain);
                // In this order: it was the child when its version was read.
                if next_version & 1 == 0
                    || node.child(domain, index) != child
                    || node.version_again(domain) != version
                {
                    continue 'anew;
                }
                (node, number, version) = (next, below, next_version);
            }
        }
    }

    /// Goes down as [`InnerTree::descend`] does and says what the leaf's range is.
    pub(super) fn descend_with_range<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        target: Target<'_, K>,
    ) -> (Place, Range<K::Buf>) {
        let domain = pool.domain();
        loop {
            let (mut lower, mut upper): (Edge, Edge) = (None, None);
            let place = self.descend_noting(pool, target, &mut |step| {
                // A descent may start anew.
                if step.is_root {
                    (lower, upper) = (None, None);
                }
                let edge = |index| {
                    let separator = step.node.separator::<D, K>(domain, index);
                    Some((separator, step.number, step.version))
                };
                if step.index > 0 {
                    lower = edge(step.index - 1);
                }
                if step.index < step.count {
                    upper = edge(step.index);
                }
            });
            let copy = |edge: Edge| match edge {
                None => Some(None),
                Some((separator, number, version)) => {
                    let copy = self.separators.with(pool, separator, K::to_buf)?;
                    let node = self.try_node(pool, number)?;
                    (node.version_again(domain) == version).then_some(Some(copy))
                }
            };
            if let (Some(lower), Some(upper)) = (copy(lower), copy(upper))
                && self.is_current(pool, &place)
            {
                return (place, Range { lower, upper });
            }
        }
    }

    /// Whether what a descent found is still so.
    #[inline(always)]
    pub(super) fn is_current<D: Domain>(&self, pool: &Pool<D>, place: &Place) -> bool {
        self.try_node(pool, place.node)
            .is_some_and(|node| node.version_again(pool.domain()) == place.version)
    }

    /// The leaf at another index of the node that a place is in, if there is one. As true as the
    /// place.
    pub(super) fn neighbour<D: Domain>(
        &self,
        pool: &Pool<D>,
        place: &Place,
        index: usize,
    ) -> Option<Place> {
        let domain = pool.domain();
        let node = self.try_node(pool, place.node)?;
        let (count, _) = node.meta(domain);
        let leaf = || Link::from_bits(node.child(domain, index));
        (index <= count.min(self.capacity)).then(|| Place { leaf: leaf(), index, ..*place })
    }

    /// Tells the visitor of the blocks of the pool that the nodes lie in, if they do.
    pub(super) fn visit_blocks<D: Domain>(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.nodes.visit_blocks(visitor);
        self.separators.memory().visit_blocks(visitor);
    }

    /// Blocks of the pool that the nodes lie in, and their bytes.
    pub(super) fn pool_blocks(&self) -> (u64, u64) {
        let (nodes, separators) =
            (self.nodes.pool_blocks(), self.separators.memory().pool_blocks());
        (nodes.0 + separators.0, nodes.1 + separators.1)
    }

    /// Gives those blocks back, when the tree is dropped.
    pub(super) fn give_back<D: Domain>(&self, pool: &Pool<D>) {
        self.nodes.give_back(pool);
        self.separators.memory().give_back(pool);
    }
}
