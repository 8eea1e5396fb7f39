//! The inner nodes: a volatile B+-tree over the leaves, which readers never wait for. [`node`] says what is in one.
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
mod node;
mod separators;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lapis_pmem::{AllocError, BlockVisitor, Domain, Link, Pool};
use parking_lot::Mutex;

use super::leaf::LeafHeader;
use crate::index::InnerNodes;
use crate::key::IndexKey;
use crate::leaf_locks::LOCK_BYTES;

use memory::Memory;
pub(super) use node::CAPACITY;
use node::{Columns, Header, Node};
pub(super) use separators::Separator;
use separators::Separators;
use state::State;

/// Nodes of the first chunk.
const FIRST_NODES: usize = 16;

/// The volatile part of the tree.
#[derive(Debug)]
pub(super) struct InnerTree {
    nodes: Memory,
    separators: Separators,
    capacity: usize,
    columns: Columns,
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
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    pub(super) leaf: Link<LeafHeader>,
    /// The leaf's number among the children of the node.
    pub(super) index: usize,
    node: Node<'t>,
    header: Header,
}

/// The range of a leaf: from the first separator up to the second.
#[derive(Clone, Debug)]
pub(super) struct Range<B> {
    pub(super) lower: Option<B>,
    pub(super) upper: Option<B>,
}

/// A separator, and the node that it was read from, as it was.
type Edge = Option<(Separator, u32, Header)>;

/// A step of a descent: a node, as it was validated, and the child chosen.
struct Step<'a> {
    node: Node<'a>,
    number: u32,
    header: Header,
    index: usize,
    is_root: bool,
}

impl InnerTree {
    /// A tree of no node yet, with so many separators to a node, [`CAPACITY`] at most.
    pub(super) fn new<K: IndexKey + ?Sized>(placement: InnerNodes, capacity: usize) -> Self {
        let columns = Columns::of::<K>(capacity);
        // The arena's chunks are counted in powers of two.
        let first_words = (FIRST_NODES * columns.node_words).next_power_of_two();
        // The locks come first among what a modelled machine is told of.
        let next_place = Arc::new(AtomicUsize::new(LOCK_BYTES));
        Self {
            nodes: Memory::new(placement, first_words, &next_place),
            separators: Separators::new(placement, &next_place),
            capacity,
            columns,
            root: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    #[inline(always)]
    fn try_node<'a, D: Domain>(&'a self, pool: &'a Pool<D>, number: u32) -> Option<Node<'a>> {
        let columns = self.columns;
        let first = number as usize * columns.node_words;
        let words = self.nodes.words(pool, first, columns.node_words)?;
        Some(Node { words, columns })
    }

    /// Goes down to a leaf. The caller does what it does with the leaf's lock and then asks whether
    /// the place [is current](InnerTree::is_current).
    #[inline]
    pub(super) fn descend<'t, D: Domain, K: IndexKey + ?Sized>(
        &'t self,
        pool: &'t Pool<D>,
        target: Target<'_, K>,
    ) -> Place<'t> {
        self.descend_noting(pool, target, &mut |_| ())
    }

    /// Goes down; `note` is told of each step.
    #[inline(always)]
    fn descend_noting<'t, D: Domain, K: IndexKey + ?Sized>(
        &'t self,
        pool: &'t Pool<D>,
        target: Target<'_, K>,
        note: &mut impl FnMut(Step<'_>),
    ) -> Place<'t> {
        let domain = pool.domain();
        let prefix = match target {
            Target::Of(key) | Target::Before(key) => key.prefix(),
            _ => 0,
        };
        'anew: loop {
            let mut number = self.root.load(Ordering::Acquire);
            let Some(mut node) = self.try_node(pool, number) else { continue };
            let mut header = node.header(domain);
            if !header.is_in_tree() || self.root.load(Ordering::Acquire) != number {
                continue;
            }
            let mut is_root = true;
            loop {
                let index = node.search(pool, &self.separators, header.count(), target, prefix);
                let child = node.child(domain, index);
                note(Step { node, number, header, index, is_root });
                is_root = false;
                if header.level() <= 1 {
                    return Place { leaf: Link::from_bits(child), index, node, header };
                }
                let below = child as u32;
                let Some(next) = self.try_node(pool, below) else { continue 'anew };
                next.prefetch_pivots(domain);
                let next_header = next.header(domain);
                // In this order: it was the child when its header was read.
                if !next_header.is_in_tree()
                    || node.child(domain, index) != child
                    || node.header_again(domain) != header
                {
                    continue 'anew;
                }
                (node, number, header) = (next, below, next_header);
            }
        }
    }

    /// Goes down as [`InnerTree::descend`] does and says what the leaf's range is.
    pub(super) fn descend_with_range<'t, D: Domain, K: IndexKey + ?Sized>(
        &'t self,
        pool: &'t Pool<D>,
        target: Target<'_, K>,
    ) -> (Place<'t>, Range<K::Buf>) {
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
                    Some((separator, step.number, step.header))
                };
                if step.index > 0 {
                    lower = edge(step.index - 1);
                }
                if step.index < step.header.count() {
                    upper = edge(step.index);
                }
            });
            let copy = |edge: Edge| match edge {
                None => Some(None),
                Some((separator, number, header)) => {
                    let copy = self.separators.with(pool, separator, K::to_buf)?;
                    let node = self.try_node(pool, number)?;
                    (node.header_again(domain) == header).then_some(Some(copy))
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
    pub(super) fn is_current<D: Domain>(&self, pool: &Pool<D>, place: &Place<'_>) -> bool {
        place.node.header_again(pool.domain()) == place.header
    }

    /// The leaf at another index of the node that a place is in, if there is one. As true as the
    /// place.
    pub(super) fn neighbour<'t, D: Domain>(
        &'t self,
        pool: &'t Pool<D>,
        place: &Place<'t>,
        index: usize,
    ) -> Option<Place<'t>> {
        let leaf = || Link::from_bits(place.node.child(pool.domain(), index));
        (index <= place.header.count()).then(|| Place { leaf: leaf(), index, ..*place })
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
