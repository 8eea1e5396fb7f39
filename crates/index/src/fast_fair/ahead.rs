//! Leaves that a scan asks for before it comes to them.
//!
//! A leaf names its right neighbour alone, so a scan along the leaves waits for each in turn. The node
//! above names up to thirty of them. What it says is taken as a hint: it is read without regard to
//! writers, and only memory is asked for by it.

use lapis_pmem::{Domain, LINE_BYTES, Link};

use super::FastFair;
use super::node::{Node, NodeHeader};
use crate::key::IndexKey;

/// Leaves that are asked for at a time.
const MOST_AHEAD: usize = 5;

/// The children of the nodes above the leaves, in order.
pub(super) struct Ahead<'p> {
    /// The node whose children come next, and which of them: 0 is its leftmost child, others are those
    /// of the slots. None if there is no such node.
    next: Option<(Node<'p>, usize)>,
    /// Leaves that were asked for, of which the scan has come to none, in order; the first so many.
    asked: [Link<NodeHeader>; MOST_AHEAD],
    count: usize,
}

impl<'p> Ahead<'p> {
    /// Goes on behind the child that a way down has taken.
    pub(super) fn behind(taken: Option<(Node<'p>, usize)>) -> Self {
        let next = taken.map(|(node, child)| (node, child + 1));
        Self { next, asked: [Link::NULL; MOST_AHEAD], count: 0 }
    }

    /// The scan comes to `leaf`. Whether that was asked for. If it was not, the node above does not name
    /// it yet; or a leaf that it named has gone, and what was asked for lies behind the scan: then no
    /// more is.
    pub(super) fn comes_to(&mut self, leaf: Link<NodeHeader>) -> bool {
        let Some(at) = self.asked[..self.count].iter().position(|&asked| asked == leaf) else {
            return false;
        };
        self.asked.copy_within(at + 1..self.count, 0);
        self.count -= at + 1;
        true
    }

    /// Asks for leaves until so many are on their way.
    pub(super) fn ask<D: Domain, K: IndexKey + ?Sized>(
        &mut self,
        tree: &'p FastFair<D, K>,
        leaves: usize,
    ) {
        let domain = tree.domain();
        while self.count < leaves.min(MOST_AHEAD)
            && let Some((node, child)) = self.next
        {
            let slot = child.wrapping_sub(1);
            let link = if child == 0 {
                node.leftmost(domain)
            } else if slot < node.slots.len()
                && !node.ends_before(domain, slot, node.key(domain, slot))
            {
                Link::from_bits(node.value(domain, slot))
            } else {
                // It is looked at when it is there.
                let neighbour = node.sibling(domain).link();
                let inside = !neighbour.is_null() && tree.try_node(neighbour).is_some();
                self.next = inside.then(|| {
                    tree.pool.prefetch(neighbour);
                    (tree.arrive(neighbour), 0)
                });
                return;
            };
            for line in (0..tree.node_bytes).step_by(LINE_BYTES) {
                tree.pool.prefetch(Link::<NodeHeader>::from_bits(link.bits() + line as u64));
            }
            self.next = Some((node, child + 1));
            self.asked[self.count] = link;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_fair::tests::{Ints, ints};
    use crate::index::Index;

    /// Walks all leaves: how many there are but for the first, and how many of these were asked for.
    fn walk(tree: &Ints) -> (usize, usize) {
        let _pinned = tree.pool.pin();
        let arrival = tree.descend(0, |_| false).unwrap();
        let (mut node, mut ahead) = (arrival.node, Ahead::behind(arrival.above));
        let (mut leaves, mut asked_for) = (0, 0);
        loop {
            ahead.ask(tree, MOST_AHEAD);
            let link = node.sibling(tree.domain()).link();
            if link.is_null() {
                return (leaves, asked_for);
            }
            leaves += 1;
            asked_for += usize::from(ahead.comes_to(link));
            node = tree.node(link);
        }
    }

    fn tree_of(keys: u64) -> Ints {
        let tree = ints(256);
        for key in 1..=keys {
            let _ = tree.insert(&key, key).unwrap();
        }
        tree
    }

    #[test]
    fn a_walk_through_many_nodes_above_asks_for_each_leaf_before_it_comes_to_it() {
        let (leaves, asked_for) = walk(&tree_of(5000));
        assert!(leaves > 300, "{leaves}");
        assert_eq!(leaves, asked_for);
    }

    #[test]
    fn a_tree_of_one_leaf_has_nothing_to_ask_for() {
        assert_eq!(walk(&tree_of(3)), (0, 0));
    }
}
