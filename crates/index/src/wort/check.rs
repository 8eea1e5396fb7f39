//! Walks over everything: check, statistics, trace.

use lapis_pmem::{Domain, Link, Tracer};

use super::Wort;
use super::header::Header;
use super::leaf::{Leaf, leaf_bytes, leaf_key};
use super::nibbles::Nibbles;
use super::node::{Child, END_SLOT, NIBBLE_SLOTS, Node, has_end_slot, node_bytes};
use crate::index::Statistics;
use crate::key::{IndexKey, MAX_KEY_BYTES};
use crate::root::IndexRoot;

/// What a walk meets. The blocks it refuses are not looked into.
trait Visitor<K: IndexKey + ?Sized> {
    /// A node; whether to go on below it.
    fn node(&mut self, link: Link<Node>, block_bytes: usize) -> bool;
    /// A leaf under `depth` nodes; whether to take it for one.
    fn leaf(&mut self, link: Link<Leaf>, block_bytes: usize, depth: usize) -> bool;
    /// The value of a leaf that was taken.
    fn value(&mut self, value: u64);
    /// Something that cannot be.
    fn problem(&mut self, what: String);
}

/// A node on the way down.
struct Frame {
    node: Child,
    position: usize,
    /// Its header, until a leaf below has been compared with it.
    header: Option<Header>,
    /// The slot to visit next, counted so that the end slot is first.
    next: usize,
    children: usize,
}

impl Frame {
    /// The slot that is being visited.
    fn slot(&self) -> usize {
        if self.next == 1 { END_SLOT } else { self.next - 2 }
    }
}

/// Positions lie before the end of the longest key, or at it.
fn last_position<K: IndexKey + ?Sized>() -> usize {
    if K::INLINE { 15 } else { 2 * MAX_KEY_BYTES }
}

impl<D: Domain, K: IndexKey + ?Sized> Wort<D, K> {
    /// Visits every node and leaf in key order and checks I2 to I4 and I8. Survives any bytes; ends
    /// because positions increase, and soon because the visitor refuses what it has seen.
    fn walk(&self, visitor: &mut impl Visitor<K>) {
        let mut stack: Vec<Frame> = Vec::new();
        // The leaf before, and the shallowest node at which the walk has gone to another slot
        // since: where the two leaves have to differ first.
        let mut before: Option<Nibbles<'_, K>> = None;
        let mut branch = usize::MAX;
        let mut child = Child(self.pool.at(self.top).load(self.domain()));
        loop {
            if !child.is_none() {
                if child.is_malformed::<K>() {
                    visitor.problem(format!(
                        "the word {:#x} is neither a leaf's nor a node's",
                        child.0
                    ));
                } else if child.is_leaf() {
                    if let Some(key) = self.walk_leaf(child.as_leaf(), &mut stack, visitor) {
                        self.compare(before.as_ref(), &key, branch, visitor);
                        before = Some(key);
                        branch = usize::MAX;
                    }
                } else if let Some(frame) = self.walk_node(child, &stack, visitor) {
                    stack.push(frame);
                }
            }
            // The next word: in the deepest node, or above it when that is done.
            child = loop {
                let Some(frame) = stack.last_mut() else { return };
                if frame.next <= NIBBLE_SLOTS {
                    frame.next += 1;
                    if frame.slot() == END_SLOT && !has_end_slot::<K>(frame.position) {
                        continue;
                    }
                    let place = frame.node.place(frame.slot());
                    let Some(word) = self.pool.try_at(place) else { continue };
                    let below = Child(word.load(self.domain()));
                    if !below.is_none() {
                        frame.children += 1;
                        branch = branch.min(frame.position);
                    }
                    break below;
                }
                if frame.children < 2 {
                    visitor.problem(format!(
                        "I4: the node at {:?} has {} children",
                        frame.node.as_node(),
                        frame.children
                    ));
                }
                stack.pop();
            };
        }
    }

    /// Looks at a node before its children.
    fn walk_node(
        &self,
        node: Child,
        stack: &[Frame],
        visitor: &mut impl Visitor<K>,
    ) -> Option<Frame> {
        let (link, position) = (node.as_node(), node.position::<K>());
        let floor = stack.last().map_or(0, |frame| frame.position + 1);
        if position < floor || position > last_position::<K>() {
            visitor.problem(format!(
                "I2: the node at {link:?} branches at nibble {position}, not between {floor} and {}",
                last_position::<K>()
            ));
            return None;
        }
        let Some(block) = self.pool.try_at(link) else {
            visitor.problem(format!("the node at {link:?} is outside the pool"));
            return None;
        };
        let accepted = visitor.node(link, node_bytes::<K>(position));
        let header = Header(block.header.load(self.domain()));
        accepted.then_some(Frame { node, position, header: Some(header), next: 0, children: 0 })
    }

    /// Looks at a leaf: its key takes the slots that lead to it (I3), and the headers of the nodes
    /// above are true of it (I8). Since all keys below a node share its prefix (I3), one will do.
    fn walk_leaf(
        &self,
        link: Link<Leaf>,
        stack: &mut [Frame],
        visitor: &mut impl Visitor<K>,
    ) -> Option<Nibbles<'_, K>> {
        let Some(key) = leaf_key::<D, K>(&self.pool, link) else {
            visitor.problem(format!("there is no leaf at {link:?}"));
            return None;
        };
        if !visitor.leaf(link, leaf_bytes(&key), stack.len()) {
            return None;
        }
        if let Some(frame) =
            stack.iter().find(|frame| key.slot_at(frame.position) != Some(frame.slot()))
        {
            visitor.problem(format!(
                "I3: the key of the leaf at {link:?} does not take slot {} at nibble {}",
                frame.slot(),
                frame.position
            ));
        }
        for frame in stack {
            let Some(header) = frame.header.take() else { continue };
            if !header.is_true_of(&key, frame.position) {
                visitor.problem(format!(
                    "I8: the header {:#x} of the node at {:?}, which branches at nibble {}, is \
                     neither right nor stale",
                    header.0,
                    frame.node.as_node(),
                    frame.position
                ));
            }
        }
        visitor.value(self.pool.at(link).value.load(self.domain()));
        Some(key)
    }

    /// Checks that two leaves that follow each other agree up to the node at which the ways to
    /// them part (I3); there they take different slots.
    fn compare(
        &self,
        before: Option<&Nibbles<'_, K>>,
        key: &Nibbles<'_, K>,
        branch: usize,
        visitor: &mut impl Visitor<K>,
    ) {
        let Some(before) = before else { return };
        match before.first_difference(key) {
            Some(found) if found == branch => {}
            Some(found) => visitor.problem(format!(
                "I3: neighbouring keys differ at nibble {found}, but their node branches at {branch}"
            )),
            None => visitor.problem("I3: a key is there twice".into()),
        }
    }

    /// See [`crate::Index::check`].
    pub(super) fn problems(&self) -> Vec<String> {
        let traced = self.pool.trace(|tracer| self.trace_blocks(tracer, &mut |_, _| ()));
        let found = traced.problems().iter();
        found.map(ToString::to_string).collect()
    }

    /// See [`crate::Index::trace`].
    pub(super) fn trace_blocks(
        &self,
        tracer: &mut Tracer<'_, D>,
        value: &mut dyn FnMut(&mut Tracer<'_, D>, u64),
    ) {
        if tracer.visit(self.root, size_of::<IndexRoot>()) {
            self.walk(&mut Tracing { tracer, value });
        }
    }

    /// See [`crate::Index::statistics`].
    pub(super) fn measure(&self) -> Statistics {
        let mut measuring = Measuring::default();
        self.walk(&mut measuring);
        let mut sizes = measuring.sizes;
        sizes.blocks = sizes.entries + sizes.nodes + 1;
        sizes.bytes += size_of::<IndexRoot>() as u64;
        if sizes.entries > 0 {
            sizes.mean_depth = measuring.depths as f64 / sizes.entries as f64;
        }
        sizes
    }
}

/// Tells a tracer of every block.
struct Tracing<'t, 'p, D: Domain> {
    tracer: &'t mut Tracer<'p, D>,
    value: &'t mut dyn FnMut(&mut Tracer<'p, D>, u64),
}

impl<D: Domain, K: IndexKey + ?Sized> Visitor<K> for Tracing<'_, '_, D> {
    fn node(&mut self, link: Link<Node>, block_bytes: usize) -> bool {
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
}

/// Adds up sizes.
#[derive(Default)]
struct Measuring {
    sizes: Statistics,
    depths: u64,
}

impl<K: IndexKey + ?Sized> Visitor<K> for Measuring {
    fn node(&mut self, _link: Link<Node>, block_bytes: usize) -> bool {
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
