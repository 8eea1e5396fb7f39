//! Walks over everything: check, statistics, blocks.
//!
//! What lies below a node is a part of a walk ([`lapis_pmem::parts`]): the node's word is its name,
//! its first and its last leaf are its ends. In what a walk compares there, two things reach beyond
//! it, and both are done with the ends when it is passed over. The leaf before it and its first one
//! are to part at the right node. And a leaf is to be in the slots that its key takes above, to which
//! the headers there are to be true: the first leaf will do, for leaves that follow each other below a
//! node agree up to its position at least. The same goes for the stretches of a node's children.

use lapis_pmem::parts::PartEnds;
use lapis_pmem::{BlockVisitor, Link, PCell};

use super::descent::Descending;
use super::digits::{Digits, Span};
use super::header::Header;
use super::leaf::{Leaf, leaf_bytes};
use super::stretches::{Stretch, ends_of, leaves_at};
use super::tree::{HeaderOf, KeyOf, RadixTree};
use super::visitor::{Visitor, measure, problems_of, visit_everything};
use super::word::SlotWord;
use crate::index::{Direction, OnValue, Statistics};

/// A node on the way down.
struct Frame<T: RadixTree> {
    node: T::Word,
    position: usize,
    /// Its header, until a leaf below has been compared with it.
    header: Option<HeaderOf<T>>,
    /// The first leaf below it; null before it has been visited.
    first_leaf: Link<Leaf>,
    /// The rank of the child that is being visited.
    current: usize,
    /// The rank to look for the next one from.
    next: usize,
    children: usize,
    /// How many ranks are a stretch, if there are stretches.
    stretch_ranks: Option<usize>,
    stretch: OpenStretch,
}

/// The stretch of a node's children that a walk is in.
struct OpenStretch {
    /// The rank behind it; none if the next one has not been begun.
    end: Option<usize>,
    /// The first leaf below it; null before it has been visited. Without stretches, that of the node.
    first_leaf: Link<Leaf>,
    /// Children of the node before it.
    children_before: usize,
}

impl<T: RadixTree> Frame<T> {
    /// The slot that is being visited.
    fn slot(&self) -> usize {
        T::Span::slot_of(self.current)
    }
}

/// Walks over everything of every radix tree.
pub trait Walking: RadixTree {
    /// See [`crate::Index::check`].
    fn problems(&self) -> Vec<String> {
        problems_of(&self.handle().pool, |visitor| self.visit_everything(visitor, &mut |_, _| ()))
    }

    /// See [`crate::Index::visit_blocks`].
    fn visit_everything(
        &self,
        visitor: &mut BlockVisitor<'_, Self::Domain>,
        value: OnValue<'_, Self::Domain>,
    ) {
        visit_everything(self.handle(), visitor, value, |visiting| walk(self, visiting));
    }

    /// See [`crate::Index::statistics`].
    fn measure(&self) -> Statistics {
        measure(|measuring| walk(self, measuring))
    }
}

impl<T: RadixTree> Walking for T {}

/// Visits every node and leaf in key order and checks I2 to I4 and I8. Survives any bytes; ends
/// because positions increase, and soon because the visitor refuses what it has seen.
fn walk<T: RadixTree>(tree: &T, visitor: &mut impl Visitor) {
    let mut stack: Vec<Frame<T>> = Vec::with_capacity(8);
    // The leaf before, and the shallowest node at which the walk has gone to another slot
    // since: where the two leaves have to differ first.
    let mut last = LastVisited::<T>::at(None, Link::NULL);
    let mut child = tree.child_at(tree.handle().top);
    loop {
        if !child.is_none() {
            if child.is_malformed::<T::Key>() {
                visitor.problem(format!(
                    "the word {:#x} is neither a leaf's nor a node's",
                    child.bits()
                ));
            } else if child.is_leaf() {
                if let Some(key) = walk_leaf(tree, child.as_leaf(), &mut stack, visitor) {
                    compare::<T>(last.key.as_ref(), &key, last.branch, visitor);
                    last = LastVisited::at(Some(key), child.as_leaf());
                }
            } else {
                match walk_node(tree, child, &stack, visitor) {
                    Below::Nothing => {}
                    Below::Children(frame) => stack.push(frame),
                    Below::Known([first, end]) => {
                        let (first, end) = (Link::from_bits(first), Link::from_bits(end));
                        if let Some(key) = tree.key_of_leaf(first) {
                            compare_above(&key, first, &mut stack, visitor);
                            compare::<T>(last.key.as_ref(), &key, last.branch, visitor);
                        }
                        last = LastVisited::at(tree.key_of_leaf(end), end);
                    }
                }
            }
        }
        // The next child: of the deepest node, or of one above it when that is done.
        child = loop {
            let Some(frame) = stack.last_mut() else { return };
            match next_in_node(tree, frame, last.leaf, visitor) {
                Next::Child(rank, below) => {
                    (frame.current, frame.next) = (rank, rank + 1);
                    frame.children += 1;
                    last.branch = last.branch.min(frame.position);
                    break below;
                }
                Next::Known(first, end) => {
                    last.branch = last.branch.min(frame.position);
                    if let Some(key) = tree.key_of_leaf(first) {
                        // That it is in a slot of the stretch, its own, is known, too.
                        if let Some(slot) = key.slot_at(frame.position) {
                            frame.current = T::Span::rank_of(slot);
                        }
                        compare_above(&key, first, &mut stack, visitor);
                        compare::<T>(last.key.as_ref(), &key, last.branch, visitor);
                    }
                    last = LastVisited::at(tree.key_of_leaf(end), end);
                    continue;
                }
                Next::Nothing => {}
            }
            if frame.children < 2 {
                visitor.problem(format!(
                    "I4: the node at {:?} has {} children",
                    frame.node.header_place(),
                    frame.children
                ));
            }
            let first = frame.first_leaf;
            visitor.end_part((!first.is_null()).then(|| [first.bits(), last.leaf.bits()]));
            stack.pop();
        };
    }
}

/// The leaf visited last.
struct LastVisited<'t, T: RadixTree> {
    key: Option<KeyOf<'t, T>>,
    /// The position of the shallowest node at which the walk has gone to another slot since: where
    /// its key has to differ first from that of the next one.
    branch: usize,
    leaf: Link<Leaf>,
}

impl<'t, T: RadixTree> LastVisited<'t, T> {
    fn at(key: Option<KeyOf<'t, T>>, leaf: Link<Leaf>) -> Self {
        Self { key, branch: usize::MAX, leaf }
    }
}

/// What comes next in a node.
enum Next<W> {
    /// A child, and its rank.
    Child(usize, W),
    /// Children that are known, with the first and the last leaf below them.
    Known(Link<Leaf>, Link<Leaf>),
    Nothing,
}

/// Goes on in a node, of which `last_leaf` may be the last one visited: by stretches, if it has any.
fn next_in_node<T: RadixTree>(
    tree: &T,
    frame: &mut Frame<T>,
    last_leaf: Link<Leaf>,
    visitor: &mut impl Visitor,
) -> Next<T::Word> {
    let Some(ranks) = frame.stretch_ranks else {
        let next = tree.next_child(frame.node, frame.next, Direction::Forward);
        return next.map_or(Next::Nothing, |(rank, child)| Next::Child(rank, child));
    };
    loop {
        if let Some(end) = frame.stretch.end {
            if let Some((rank, child)) = tree.next_child_before(frame.node, frame.next, end) {
                return Next::Child(rank, child);
            }
            let children = frame.children - frame.stretch.children_before;
            visitor.end_part(ends_of(frame.stretch.first_leaf, last_leaf, children));
            (frame.next, frame.stretch.end) = (end, None);
        }
        if frame.next > T::Span::SLOTS {
            return Next::Nothing;
        }
        let stretch = Stretch::beginning_at(frame.next, ranks);
        match visitor.begin_part(stretch.name_below(frame.node)) {
            None => {
                let (end, children_before) = (Some(stretch.end), frame.children);
                frame.stretch = OpenStretch { end, first_leaf: Link::NULL, children_before };
            }
            Some(ends) => {
                frame.next = stretch.end;
                if let Some((first, last, children)) = leaves_at(ends) {
                    frame.children += children;
                    frame.stretch.first_leaf = Link::NULL;
                    return Next::Known(first, last);
                }
            }
        }
    }
}

/// What there is to visit below a node.
enum Below<T: RadixTree> {
    /// Nothing that can be trusted.
    Nothing,
    /// Nothing more: it is known.
    Known(PartEnds),
    Children(Frame<T>),
}

/// Looks at a node before its children.
fn walk_node<T: RadixTree>(
    tree: &T,
    node: T::Word,
    stack: &[Frame<T>],
    visitor: &mut impl Visitor,
) -> Below<T> {
    let (link, position) = (node.header_place(), node.position::<T::Key>());
    let floor = stack.last().map_or(0, |frame| frame.position + 1);
    let last = T::Span::last_position::<T::Key>();
    if position < floor || position > last {
        visitor.problem(format!(
            "I2: the node at {link:?} branches at digit {position}, not between {floor} and {last}"
        ));
        return Below::Nothing;
    }
    if let Some(ends) = visitor.begin_part(node.bits().into()) {
        return Below::Known(ends);
    }
    let pool = &tree.handle().pool;
    let block_bytes = tree.node_bytes(node);
    // Nodes consist of words.
    let Some(block) = pool.try_slice::<PCell<u64>>(link, block_bytes / 8) else {
        visitor.problem(format!("the node at {link:?} is outside the pool"));
        visitor.end_part(None);
        return Below::Nothing;
    };
    let header = Header::from_bits(block[0].load(pool.domain()));
    if !visitor.node(link, block_bytes) {
        visitor.end_part(None);
        return Below::Nothing;
    }
    tree.node_problems(node, &mut |what| visitor.problem(what));
    let first = T::first_rank(position, Direction::Forward);
    let (current, next) = (first, first);
    let first_leaf = Link::NULL;
    let stretch_ranks = if visitor.goes_by_parts() { tree.stretch_ranks(node) } else { None };
    let stretch = OpenStretch { end: None, first_leaf, children_before: 0 };
    Below::Children(Frame {
        node,
        position,
        header: Some(header),
        first_leaf,
        current,
        next,
        children: 0,
        stretch_ranks,
        stretch,
    })
}

/// Looks at a leaf.
fn walk_leaf<'t, T: RadixTree>(
    tree: &'t T,
    link: Link<Leaf>,
    stack: &mut [Frame<T>],
    visitor: &mut impl Visitor,
) -> Option<KeyOf<'t, T>> {
    let Some(key) = tree.key_of_leaf(link) else {
        visitor.problem(format!("there is no leaf at {link:?}"));
        return None;
    };
    if !visitor.leaf(link, leaf_bytes(&key), stack.len()) {
        return None;
    }
    compare_above(&key, link, stack, visitor);
    let pool = &tree.handle().pool;
    visitor.value(pool.at(link).value.load(pool.domain()));
    Some(key)
}

/// Compares a leaf with the nodes above: its key takes the slots that lead to it (I3), and their
/// headers are true of it (I8). Since all keys below a node share its prefix (I3), one will do.
fn compare_above<T: RadixTree>(
    key: &KeyOf<'_, T>,
    link: Link<Leaf>,
    stack: &mut [Frame<T>],
    visitor: &mut impl Visitor,
) {
    if let Some(frame) =
        stack.iter().find(|frame| key.slot_at(frame.position) != Some(frame.slot()))
    {
        visitor.problem(format!(
            "I3: the key of the leaf at {link:?} does not take slot {} at digit {}",
            frame.slot(),
            frame.position
        ));
    }
    for frame in stack.iter_mut().rev().take_while(|frame| frame.stretch.first_leaf.is_null()) {
        frame.stretch.first_leaf = link;
        if frame.first_leaf.is_null() {
            frame.first_leaf = link;
        }
    }
    for frame in stack {
        let Some(header) = frame.header.take() else { continue };
        if !header.is_true_of(key, frame.position) {
            visitor.problem(format!(
                "I8: the header {:#x} of the node at {:?}, which branches at digit {}, is neither \
                 right nor stale",
                header.bits(),
                frame.node.header_place(),
                frame.position
            ));
        }
    }
}

/// Checks that two leaves that follow each other agree up to the node at which the ways to them
/// part (I3); there they take different slots.
fn compare<T: RadixTree>(
    before: Option<&KeyOf<'_, T>>,
    key: &Digits<'_, T::Key, T::Span>,
    branch: usize,
    visitor: &mut impl Visitor,
) {
    let Some(before) = before else { return };
    match before.first_difference(key) {
        Some(found) if found == branch => {}
        Some(found) => visitor.problem(format!(
            "I3: neighbouring keys differ at digit {found}, but their node branches at {branch}"
        )),
        None => visitor.problem("I3: a key is there twice".into()),
    }
}
