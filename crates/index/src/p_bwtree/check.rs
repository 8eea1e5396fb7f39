//! A walk over everything: check, statistics, blocks.

use std::cmp::Ordering;
use std::collections::HashSet;

use lapis_pmem::{BlockVisitor, Domain, PCell};

use super::PBwTree;
use super::contents::Contents;
use super::record::Kind;
use crate::index::{OnValue, Statistics};
use crate::key::IndexKey;
use crate::radix::{Place, problems_of};
use crate::root::IndexRoot;

/// What a walk meets.
enum Met {
    /// A block; the walk ends if it is refused.
    Block(Place, usize),
    /// A node of a level.
    Node(u8),
    /// The word of a key that belongs to a leaf.
    Key(u64),
    /// An entry of a leaf, whose key comes by itself.
    Value(u64),
    Problem(String),
}

/// Where a child is to be.
struct Child {
    id: u64,
    /// Its least key.
    low: Option<u64>,
    /// It is being merged, or is a top that is being replaced.
    leaves: bool,
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// See [`crate::Index::check`].
    pub(super) fn problems(&self) -> Vec<String> {
        problems_of(&self.handle.pool, |visitor| self.visit_blocks(visitor, &mut |_, _| ()))
    }

    /// See [`crate::Index::visit_blocks`].
    pub(super) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        let mut is_sound = true;
        let seen = self.walk(&mut |met| {
            let is_good = match met {
                Met::Block(link, bytes) => visitor.visit(link, bytes),
                Met::Node(_) => true,
                Met::Key(word) => {
                    K::visit_blocks(visitor, word);
                    true
                }
                Met::Value(word) => {
                    value(visitor, word);
                    true
                }
                Met::Problem(what) => {
                    visitor.problem(what);
                    false
                }
            };
            is_sound &= is_good;
            is_good
        });
        if is_sound {
            self.mapping.take_back_lost(&seen);
        }
    }

    /// See [`crate::Index::statistics`].
    pub(super) fn measure(&self) -> Statistics {
        let mut sizes = Statistics::default();
        self.walk(&mut |met| {
            let bytes = match met {
                Met::Block(_, bytes) => bytes,
                Met::Key(word) => K::word_block_bytes(&self.handle.pool, word),
                _ => 0,
            };
            match met {
                Met::Node(level) => {
                    sizes.nodes += u64::from(level > 0);
                    sizes.max_depth = sizes.max_depth.max(level.into());
                }
                Met::Value(_) => sizes.entries += 1,
                _ => {}
            }
            sizes.blocks += u64::from(bytes > 0);
            sizes.bytes += bytes as u64;
            true
        });
        sizes.mean_depth = sizes.max_depth as f64;
        sizes
    }

    /// Visits every block, level by level from the top, each from left to right, and checks B1 to B5.
    /// Survives any bytes; ends because no node is visited twice.
    /// The ids of all nodes that it has seen.
    fn walk(&self, met: &mut dyn FnMut(Met) -> bool) -> HashSet<u64> {
        let mut seen = HashSet::new();
        if !met(Met::Block(self.handle.root.cast(), size_of::<IndexRoot>())) {
            return seen;
        }
        self.mapping.visit(&mut |link, bytes| met(Met::Block(link, bytes)));
        if let Some((link, bytes)) = self.reserved() {
            met(Met::Block(link.cast(), bytes));
        }
        let top = self.top().id();
        let mut level = self.read_node(top).map_or(0, |top| top.meta.level());
        let mut children = vec![Child { id: top, low: None, leaves: true }];
        while let Some(below) = self.walk_level(level, &children, &mut seen, met) {
            let Some(next) = level.checked_sub(1) else { break };
            (level, children) = (next, below);
        }
        seen
    }

    fn read_node(&self, id: u64) -> Option<Contents> {
        self.mapping.head(id).and_then(|head| self.read(head).ok())
    }

    /// Visits the nodes of a level, of which the one above knows these. Those below; none if there is no
    /// going on.
    fn walk_level(
        &self,
        level: u8,
        known: &[Child],
        seen: &mut HashSet<u64>,
        met: &mut dyn FnMut(Met) -> bool,
    ) -> Option<Vec<Child>> {
        let pool = &self.handle.pool;
        let equal = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => K::cmp_words(pool, one, other).is_eq(),
            (one, other) => one == other,
        };
        let (mut below, mut known) = (Vec::new(), known.iter().peekable());
        let (mut id, mut low) = (known.peek()?.id, None);
        loop {
            let Some(node) = self.read_node(id) else {
                met(Met::Problem(format!("B1: there is no node {id} on level {level}")));
                return None;
            };
            if node.meta.level() != level || !seen.insert(id) {
                met(Met::Problem(format!("B1: node {id} does not belong where it is")));
                return None;
            }
            // Those that begin before it are in others, if they leave. One behind it may yet come, if this is a node that the
            // one above does not know.
            let is_passed = |child: &&Child| {
                let begin = child.low.zip(node.low);
                child.leaves
                    && child.id != id
                    && begin.is_none_or(|(it, here)| K::cmp_words(pool, it, here).is_lt())
            };
            while let Some(child) = known.next_if(is_passed) {
                self.walk_merged(child, seen, met)?;
            }
            let child = known.next_if(|child| child.id == id);
            if child.is_some_and(|child| !equal(child.low, node.low)) {
                met(Met::Problem(format!(
                    "B2: node {id} begins elsewhere than the one above says"
                )));
            }
            if node.kind == Kind::Removed && !child.is_some_and(|child| child.leaves) {
                met(Met::Problem(format!("B4: node {id} is removed, and not merged")));
            }
            if !equal(low, node.low) {
                met(Met::Problem(format!(
                    "B2: node {id} does not begin where the one before ends"
                )));
            }
            self.check_node(id, &node, met);
            self.walk_blocks(&node, met)?;
            met(Met::Node(level));
            if level > 0 {
                let leaving = node.merging.map(|(_, id)| id);
                below.extend(node.entries.iter().enumerate().map(|(number, &(word, id))| {
                    let low = if number == 0 { node.low } else { Some(word) };
                    Child { id, low, leaves: leaving == Some(id) }
                }));
            } else {
                for &(word, value) in &node.entries {
                    met(Met::Key(word));
                    met(Met::Value(value));
                }
            }
            if node.right == 0 {
                break;
            }
            (id, low) = (node.right, node.high);
        }
        for child in known {
            if !child.leaves {
                met(Met::Problem(format!("B1: node {} is not on level {level}", child.id)));
                return None;
            }
            self.walk_merged(child, seen, met)?;
        }
        Some(below)
    }

    /// Visits what is left of a child whose entries are in its left neighbour.
    fn walk_merged(
        &self,
        child: &Child,
        seen: &mut HashSet<u64>,
        met: &mut dyn FnMut(Met) -> bool,
    ) -> Option<()> {
        let node = self.read_node(child.id).filter(|it| it.kind == Kind::Removed);
        let Some(node) = node.filter(|_| seen.insert(child.id)) else {
            met(Met::Problem(format!("B4: node {} was merged, and not removed before", child.id)));
            return None;
        };
        self.walk_blocks(&node, met)
    }

    /// Visits the records of a node, and keys that no entry has. None if one was refused.
    fn walk_blocks(&self, node: &Contents, met: &mut dyn FnMut(Met) -> bool) -> Option<()> {
        for &(link, bytes) in &node.blocks {
            met(Met::Block(link.cast::<PCell<u64>>(), bytes)).then_some(())?;
        }
        let own_low = node.low.filter(|_| node.meta.is_leaf());
        node.dead.iter().copied().chain(own_low).for_each(|word| _ = met(Met::Key(word)));
        Some(())
    }

    /// B3: entries are in order and within the range of the node.
    fn check_node(&self, id: u64, node: &Contents, met: &mut dyn FnMut(Met) -> bool) {
        let pool = &self.handle.pool;
        let mut problem = |what: &str| _ = met(Met::Problem(format!("B3: node {id} {what}")));
        let is_inner = !node.meta.is_leaf();
        let words = || node.entries.iter().map(|it| it.0).skip(usize::from(is_inner));
        if words().any(|word| K::with_word(pool, word, |_| ()).is_none()) {
            problem("has a word that is no key's");
        }
        let order = |one, other| K::cmp_words(pool, one, other);
        if !words().is_sorted_by(|&one, &other| order(one, other) == Ordering::Less) {
            problem("is not in order");
        }
        let low_is_wrong = |low| {
            words().next().is_some_and(|first| match order(first, low) {
                Ordering::Less => true,
                Ordering::Equal => is_inner,
                Ordering::Greater => false,
            })
        };
        if node.low.is_some_and(low_is_wrong) {
            problem("has keys before its range");
        }
        if node
            .high
            .is_some_and(|high| words().next_back().is_some_and(|it| order(it, high).is_ge()))
        {
            problem("has keys beyond its range");
        }
        let first = node.entries.first();
        if is_inner
            && first.is_none_or(|first| node.low.is_some_and(|low| order(first.0, low).is_ne()))
        {
            problem("has no first child");
        }
    }
}
