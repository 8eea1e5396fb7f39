//! A walk over everything: check, statistics, blocks.

use lapis_pmem::Domain;

use super::PHot;
use super::bits::{Bits, bit_at, first_difference, sequence_bits};
use super::contents::FANOUT;
use super::entry::Entry;
use super::node::Node;
use crate::key::IndexKey;
use crate::radix::{Visitor, leaf_bytes, leaf_key};

/// A node on the way down.
struct Frame<'t> {
    node: Node<'t>,
    entry: Entry,
    gaps: [u32; FANOUT],
    /// Which entry comes next.
    next: usize,
    /// Entries that are something.
    something: usize,
}

impl Frame<'_> {
    /// The position of the last branch above the entry that was visited last: its own way begins behind.
    fn branch_above(&self) -> u32 {
        let gaps = &self.gaps[..self.node.shape.count - 1];
        let index = self.next - 1;
        let gap = |number: Option<usize>| number.and_then(|number| gaps.get(number)).copied();
        gap(index.checked_sub(1)).max(gap(Some(index))).unwrap_or(0)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PHot<D, K> {
    /// Visits every node and leaf in key order and checks H1 to H3. Survives any bytes; ends because
    /// heights decrease, and soon because the visitor refuses what it has seen.
    pub(super) fn walk(&self, visitor: &mut impl Visitor) {
        let pool = &self.handle.pool;
        let mut stack: Vec<Frame<'_>> = Vec::with_capacity(8);
        let mut last: Option<Bits<'_, K>> = None;
        // The smallest gap between the leaf before and the next one.
        let mut gap = u32::MAX;
        let mut entry = self.entry_at(self.handle.top);
        loop {
            if entry.is_malformed() {
                visitor
                    .problem(format!("the word {:#x} is neither a leaf's nor a node's", entry.0));
            } else if entry.is_leaf() {
                if let Some(key) = self.walk_leaf(entry, stack.len(), visitor) {
                    if let Some(last) = &last {
                        compare(last, &key, gap, visitor);
                    }
                    (last, gap) = (Some(key), u32::MAX);
                }
            } else if !entry.is_none()
                && let Some(frame) = self.walk_node(entry, stack.last(), visitor)
            {
                stack.push(frame);
            }
            entry = loop {
                let Some(frame) = stack.last_mut() else { return };
                if frame.next < frame.node.shape.count {
                    if frame.next > 0 {
                        gap = gap.min(frame.gaps[frame.next - 1]);
                    }
                    frame.next += 1;
                    let next = frame.node.entry(pool, frame.next - 1);
                    frame.something += usize::from(!next.is_none());
                    break next;
                }
                if frame.something < 2 {
                    visitor.problem(format!(
                        "H1: the node at {:?} has {} entries",
                        frame.node.link, frame.something
                    ));
                }
                stack.pop();
            };
        }
    }

    /// Looks at a node before its entries.
    fn walk_node<'t>(
        &'t self,
        entry: Entry,
        above: Option<&Frame<'_>>,
        visitor: &mut impl Visitor,
    ) -> Option<Frame<'t>> {
        let link = entry.as_node();
        let Some(node) = Node::try_at(&self.handle.pool, entry) else {
            visitor.problem(format!("there is no node at {link:?}"));
            return None;
        };
        if above.is_some_and(|above| entry.height() >= above.entry.height()) {
            visitor.problem(format!("H3: the node at {link:?} is as high as the one above"));
            return None;
        }
        let block_bytes = node.shape.block_bytes();
        if self
            .handle
            .pool
            .try_slice::<lapis_pmem::PCell<u64>>(link.cast(), block_bytes / 8)
            .is_none()
        {
            visitor.problem(format!("the node at {link:?} is outside the pool"));
            return None;
        }
        if !visitor.node(link.cast(), block_bytes) {
            return None;
        }
        let mut gaps = [0; FANOUT];
        if !node.gaps(&mut gaps).is_some_and(|gaps| node.is_made_of(gaps)) {
            visitor
                .problem(format!("H2: the node at {link:?} has masks or partial keys of no trie"));
            return None;
        }
        let root = node.root_position();
        let last = gaps[..node.shape.count - 1].iter().max().copied().unwrap_or(0);
        if above.is_some_and(|above| root <= above.branch_above()) || last >= sequence_bits::<K>() {
            visitor.problem(format!(
                "H3: the node at {link:?} branches at the bits {root} to {last}, not behind its branch above"
            ));
            return None;
        }
        Some(Frame { node, entry, gaps, next: 0, something: 0 })
    }

    /// Looks at a leaf below so many nodes.
    fn walk_leaf(
        &self,
        entry: Entry,
        depth: usize,
        visitor: &mut impl Visitor,
    ) -> Option<Bits<'_, K>> {
        let (pool, link) = (&self.handle.pool, entry.as_leaf());
        let Some(key) = leaf_key(pool, link) else {
            visitor.problem(format!("there is no leaf at {link:?}"));
            return None;
        };
        if !visitor.leaf(link, leaf_bytes(&key), depth) {
            return None;
        }
        visitor.value(pool.at(link).value.load(pool.domain()));
        Some(key)
    }
}

/// Checks that two leaves that follow each other differ first where the trie says (H3), and the first one
/// comes first.
fn compare<K: IndexKey + ?Sized>(
    before: &Bits<'_, K>,
    key: &Bits<'_, K>,
    gap: u32,
    visitor: &mut impl Visitor,
) {
    match first_difference(before, key) {
        Some(found) if found == gap && bit_at(key, gap) => {}
        Some(found) => visitor.problem(format!(
            "H3: neighbouring keys differ at bit {found}, but their branch is at {gap}"
        )),
        None => visitor.problem("H3: a key is there twice".into()),
    }
}
