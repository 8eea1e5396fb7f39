//! Walks over everything: check, statistics, trace.
//!
//! What lies below a node is a part of a trace ([`lapis_pmem::parts`]): the node's word is its name,
//! its first and its last leaf are its ends. In what a walk compares there, two things reach beyond
//! it, and both are done with the ends when it is passed over. The leaf before it and its first one
//! are to part at the right node. And a leaf is to be in the slots that its key takes above, to which
//! the headers there are to be true: the first leaf will do, for leaves that follow each other below a
//! node agree up to its position at least.

use lapis_pmem::parts::PartEnds;
use lapis_pmem::{Domain, Link, PCell, Tracer};

use super::descent::Descending;
use super::digits::{Digits, Span};
use super::header::Header;
use super::leaf::{Leaf, leaf_bytes};
use super::tree::{HeaderOf, KeyOf, Place, RadixTree, SlotWord};
use crate::index::{Direction, Statistics};
use crate::root::IndexRoot;

/// What a walk meets. The blocks it refuses are not looked into.
trait Visitor {
    /// A node; whether to go on below it.
    fn node(&mut self, link: Place, block_bytes: usize) -> bool;
    /// A leaf under `depth` nodes; whether to take it for one.
    fn leaf(&mut self, link: Link<Leaf>, block_bytes: usize, depth: usize) -> bool;
    /// The value of a leaf that was taken.
    fn value(&mut self, value: u64);
    /// Something that cannot be.
    fn problem(&mut self, what: String);
    /// A part: its ends if it is known and taken for visited; else [`Visitor::end_part`] follows.
    fn begin_part(&mut self, _name: u64) -> Option<PartEnds> {
        None
    }
    /// The part begun last ends; without ends, nothing is known of it.
    fn end_part(&mut self, _ends: Option<PartEnds>) {}
}

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
        let traced = self.handle().pool.trace(|tracer| self.trace_blocks(tracer, &mut |_, _| ()));
        let found = traced.problems().iter();
        found.map(ToString::to_string).collect()
    }

    /// See [`crate::Index::trace`].
    fn trace_blocks(
        &self,
        tracer: &mut Tracer<'_, Self::Domain>,
        value: &mut dyn FnMut(&mut Tracer<'_, Self::Domain>, u64),
    ) {
        if tracer.visit(self.handle().root, size_of::<IndexRoot>()) {
            walk(self, &mut Tracing { tracer, value });
        }
    }

    /// See [`crate::Index::statistics`].
    fn measure(&self) -> Statistics {
        let mut measuring = Measuring::default();
        walk(self, &mut measuring);
        let mut sizes = measuring.sizes;
        sizes.blocks = sizes.entries + sizes.nodes + 1;
        sizes.bytes += size_of::<IndexRoot>() as u64;
        if sizes.entries > 0 {
            sizes.mean_depth = measuring.depths as f64 / sizes.entries as f64;
        }
        sizes
    }
}

impl<T: RadixTree> Walking for T {}

/// Visits every node and leaf in key order and checks I2 to I4 and I8. Survives any bytes; ends
/// because positions increase, and soon because the visitor refuses what it has seen.
fn walk<T: RadixTree>(tree: &T, visitor: &mut impl Visitor) {
    let mut stack: Vec<Frame<T>> = Vec::new();
    // The leaf before, and the shallowest node at which the walk has gone to another slot
    // since: where the two leaves have to differ first.
    let mut before: Option<KeyOf<'_, T>> = None;
    let mut branch = usize::MAX;
    let mut last_leaf = Link::NULL;
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
                    compare::<T>(before.as_ref(), &key, branch, visitor);
                    (before, branch, last_leaf) = (Some(key), usize::MAX, child.as_leaf());
                }
            } else {
                match walk_node(tree, child, &stack, visitor) {
                    Below::Nothing => {}
                    Below::Children(frame) => stack.push(frame),
                    Below::Known([first, last]) => {
                        let (first, last) = (Link::from_bits(first), Link::from_bits(last));
                        if let Some(key) = tree.key_of_leaf(first) {
                            compare_above(&key, first, &mut stack, visitor);
                            compare::<T>(before.as_ref(), &key, branch, visitor);
                        }
                        (before, branch, last_leaf) = (tree.key_of_leaf(last), usize::MAX, last);
                    }
                }
            }
        }
        // The next child: of the deepest node, or of one above it when that is done.
        child = loop {
            let Some(frame) = stack.last_mut() else { return };
            if let Some((rank, below)) = tree.next_child(frame.node, frame.next, Direction::Forward)
            {
                (frame.current, frame.next) = (rank, rank + 1);
                frame.children += 1;
                branch = branch.min(frame.position);
                break below;
            }
            if frame.children < 2 {
                visitor.problem(format!(
                    "I4: the node at {:?} has {} children",
                    frame.node.header_place(),
                    frame.children
                ));
            }
            let first = frame.first_leaf;
            visitor.end_part((!first.is_null()).then(|| [first.bits(), last_leaf.bits()]));
            stack.pop();
        };
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
    if let Some(ends) = visitor.begin_part(node.bits()) {
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
    Below::Children(Frame {
        node,
        position,
        header: Some(header),
        first_leaf,
        current,
        next,
        children: 0,
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
    for frame in stack.iter_mut().rev().take_while(|frame| frame.first_leaf.is_null()) {
        frame.first_leaf = link;
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

/// Tells a tracer of every block.
struct Tracing<'t, 'p, D: Domain> {
    tracer: &'t mut Tracer<'p, D>,
    value: &'t mut dyn FnMut(&mut Tracer<'p, D>, u64),
}

impl<D: Domain> Visitor for Tracing<'_, '_, D> {
    fn node(&mut self, link: Place, block_bytes: usize) -> bool {
        self.tracer.visit(link, block_bytes)
    }
    fn leaf(&mut self, link: Link<Leaf>, block_bytes: usize, _depth: usize) -> bool {
        self.tracer.visit(link, block_bytes)
    }
    fn value(&mut self, value: u64) {
        (self.value)(self.tracer, value);
    }
    fn problem(&mut self, what: String) {
        self.tracer.problem(what);
    }
    fn begin_part(&mut self, name: u64) -> Option<PartEnds> {
        self.tracer.begin_part(name)
    }
    fn end_part(&mut self, ends: Option<PartEnds>) {
        self.tracer.end_part(ends);
    }
}

/// Adds up sizes.
#[derive(Default)]
struct Measuring {
    sizes: Statistics,
    depths: u64,
}

impl Visitor for Measuring {
    fn node(&mut self, _link: Place, block_bytes: usize) -> bool {
        self.sizes.nodes += 1;
        self.sizes.bytes += block_bytes as u64;
        true
    }
    fn leaf(&mut self, _link: Link<Leaf>, block_bytes: usize, depth: usize) -> bool {
        self.sizes.entries += 1;
        self.sizes.bytes += block_bytes as u64;
        self.sizes.max_depth = self.sizes.max_depth.max(depth as u64);
        self.depths += depth as u64;
        true
    }
    fn value(&mut self, _value: u64) {}
    fn problem(&mut self, _what: String) {}
}
