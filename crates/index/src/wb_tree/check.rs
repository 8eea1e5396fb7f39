//! Looking at everything: the check, the blocks and the statistics. None of it trusts the bytes.

use std::cmp::Ordering;
use std::collections::HashSet;

use lapis_pmem::{BlockVisitor, Domain, LINK_MASK, Link};

use super::node::{Node, Order, Place};
use super::redo_log::Log;
use super::search::{MOST_LEVELS, Separator};
use super::{WbTree, WbTreeNodeKind};
use crate::index::{OnValue, Statistics};
use crate::key::IndexKey;
use crate::root::IndexRoot;

/// A node as the walk meets it.
pub(super) struct Seen<'p> {
    pub(super) node: Node<'p>,
    /// Inner levels below it; zero: a leaf.
    pub(super) level: usize,
    order: Order,
    /// Its keys are not below this.
    low: Option<Separator>,
    /// They are below this.
    high: Option<Separator>,
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Visits every node, parents first, in key order. `visit` says whether to go on below it.
    pub(super) fn walk(
        &self,
        problem: &mut dyn FnMut(String),
        visit: &mut dyn FnMut(&Seen<'_>) -> bool,
    ) {
        let domain = self.domain();
        let top = self.top();
        if top.levels() > MOST_LEVELS {
            problem(format!("the root says that there are {} levels", top.levels()));
            return;
        }
        let mut seen = HashSet::new();
        let mut open: Vec<(Place, usize, Option<Separator>, Option<Separator>)> =
            vec![(top.link(), top.levels(), None, None)];
        while let Some((link, level, low, high)) = open.pop() {
            let Some(node) = Node::find(&self.pool, &self.shape, link) else {
                problem(format!("a link refers to {link:?}, outside the pool"));
                continue;
            };
            if !seen.insert(link.offset()) {
                problem(format!("the node {link:?} is linked twice"));
                continue;
            }
            let order = self.order_of(node, node.control(domain));
            let here = Seen { node, level, order, low, high };
            if !visit(&here) || level == 0 {
                continue;
            }
            // The last child first on the stack, so that the first comes off first.
            let mut high = high;
            for &index in order.as_slice().iter().rev() {
                let index = usize::from(index);
                let low = Some(self.separator_at(node, index));
                open.push((Link::from_bits(node.value(domain, index)), level - 1, low, high));
                high = low;
            }
            open.push((Link::from_bits(node.leftmost(domain)), level - 1, low, high));
        }
    }

    fn is_key(&self, key: Separator) -> bool {
        K::with_word(&self.pool, key.word, super::node::ordinal_of) == Some(key.ordinal)
    }

    /// See [`crate::Index::check`].
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut from_walk = Vec::new();
        match self.pool.try_at::<Log>(self.log_link()) {
            None => problems.push("its redo log is outside the pool".into()),
            Some(log) if !log.is_empty(self.domain()) => {
                problems.push("I5: its redo log is not empty".into());
            }
            Some(_) => {}
        }
        let levels = self.top().levels();
        self.walk(&mut |what| from_walk.push(what), &mut |seen| {
            self.check_node(seen, seen.level == levels, &mut problems);
            true
        });
        problems.append(&mut from_walk);
        problems
    }

    fn check_node(&self, seen: &Seen<'_>, is_top: bool, problems: &mut Vec<String>) {
        let (domain, node, link) = (self.domain(), seen.node, seen.node.link);
        if let Some(what) = node.control_problem(domain) {
            problems.push(format!("I2: the node {link:?} {what}"));
            return;
        }
        let keys = seen.order.as_slice().iter();
        let keys: Vec<_> = keys.map(|&index| self.separator_at(node, usize::from(index))).collect();
        if let Some(key) = keys.iter().find(|key| !self.is_key(**key)) {
            problems.push(format!("I3: the node {link:?} has an entry {key:x?} that is no key's"));
            return;
        }
        if keys.windows(2).any(|pair| self.compare(pair[0], pair[1]) != Ordering::Less) {
            problems.push(format!("I2: the entries of the node {link:?} are not in order"));
        }
        if let (Some(low), Some(first)) = (seen.low, keys.first())
            && (seen.level > 0 && self.compare(*first, low).is_le()
                || self.compare(*first, low).is_lt())
        {
            problems.push(format!("the node {link:?} has a key below its separator"));
        }
        if let (Some(high), Some(last)) = (seen.high, keys.last())
            && self.compare(*last, high).is_ge()
        {
            problems.push(format!("the node {link:?} has a key above the next separator"));
        }
        if seen.level == 0 {
            if node.leftmost(domain) != 0 {
                problems.push(format!("the leaf {link:?} has a child"));
            }
            return;
        }
        if is_top && keys.is_empty() {
            problems.push(format!("the top node {link:?} has one child only"));
        }
        let children = seen.order.as_slice().iter();
        let mut children = children.map(|&index| node.value(domain, usize::from(index)));
        if node.leftmost(domain) & !LINK_MASK != 0 || children.any(|word| word & !LINK_MASK != 0) {
            problems.push(format!("the node {link:?} has a link with bits that no link has"));
        }
    }

    /// See [`crate::Index::visit_blocks`].
    pub(super) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        visitor.visit(self.root, size_of::<IndexRoot>());
        visitor.visit(self.log_link(), size_of::<Log>());
        let mut problems = Vec::new();
        self.walk(&mut |what| problems.push(what), &mut |seen| {
            if !visitor.visit(seen.node.link, self.shape.node_bytes) {
                return false;
            }
            for &index in seen.order.as_slice() {
                let index = usize::from(index);
                // I3: every entry owns its key, separators too.
                K::visit_blocks(visitor, self.separator_at(seen.node, index).word);
                if seen.level == 0 {
                    value(visitor, seen.node.value(self.domain(), index));
                }
            }
            true
        });
        for what in problems {
            visitor.problem(what);
        }
    }

    /// See [`crate::Index::statistics`].
    pub(super) fn measure(&self) -> Statistics {
        let levels = self.top().levels();
        let mut sizes = Statistics {
            blocks: 2,
            bytes: (size_of::<IndexRoot>() + size_of::<Log>()) as u64,
            mean_depth: levels as f64,
            max_depth: levels as u64,
            ..Statistics::default()
        };
        self.walk(&mut |_| (), &mut |seen| {
            sizes.blocks += 1;
            sizes.bytes += self.shape.node_bytes as u64;
            sizes.nodes += u64::from(seen.level > 0);
            for &index in seen.order.as_slice() {
                let word = self.separator_at(seen.node, usize::from(index)).word;
                let bytes = K::word_block_bytes(&self.pool, word) as u64;
                sizes.blocks += u64::from(bytes > 0);
                sizes.bytes += bytes;
                sizes.entries += u64::from(seen.level == 0);
            }
            true
        });
        sizes
    }
}
