//! Looking at everything: the check, the blocks and the statistics. None of it trusts the bytes.

use std::cmp::Ordering;
use std::collections::HashMap;

use lapis_pmem::{BlockVisitor, Domain, LINK_MASK, Link};

use super::FastFair;
use super::node::{Node, NodeHeader};
use crate::index::{OnValue, Statistics};
use crate::key::IndexKey;
use crate::root::IndexRoot;

/// A node as a walk meets it.
struct Seen<'p> {
    node: Node<'p>,
    level: u8,
    /// The entries that count.
    entries: Vec<(u64, u64)>,
    /// The right neighbour's low word, if there is one.
    bound: Option<u64>,
    /// What only a crash or damage leaves: duplicates, stale entries.
    leftovers: bool,
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    fn compare(&self, left: u64, right: u64) -> Option<Ordering> {
        K::with_word(&self.pool, right, |_| ())?;
        K::with_word(&self.pool, left, |key| key.cmp_word(&self.pool, right))
    }

    fn look_at<'p>(&'p self, node: Node<'p>, level: u8) -> Seen<'p> {
        let domain = self.domain();
        let sibling = node.sibling(domain);
        let bound = self.try_node(sibling.link()).map(|right| right.low(domain));
        let (mut entries, mut leftovers, mut ended) = (Vec::new(), false, false);
        for (slot, entry) in node.slots.iter().enumerate() {
            let key = entry.key.load(domain);
            ended |= node.ends_before(domain, slot, key);
            if ended {
                leftovers |= key != 0;
            } else if slot == 0 && sibling.is_hidden() {
                leftovers |= node.slots[1].key.load(domain) != 0;
            } else if node.is_duplicate(domain, slot, sibling.is_hidden())
                || bound.is_some_and(|bound| self.compare(key, bound) != Some(Ordering::Less))
            {
                leftovers = true;
            } else {
                entries.push((key, entry.value.load(domain)));
            }
        }
        Seen { node, level, entries, bound, leftovers }
    }

    /// Visits every node once, level by level from the top, each along the sibling links.
    /// `visit` returns whether to go on along this level.
    fn walk(&self, problem: &mut dyn FnMut(String), visit: &mut dyn FnMut(&Seen<'_>) -> bool) {
        let domain = self.domain();
        let mut seen = std::collections::HashSet::new();
        let mut first: Link<NodeHeader> = self.root().top.load(domain).cast();
        let mut expected: Option<u8> = None;
        loop {
            let mut link = first;
            let mut leftmost = Link::NULL;
            while !link.is_null() {
                let Some(node) = self.try_node(link) else {
                    problem(format!("a link refers to {link:?}, outside the pool"));
                    break;
                };
                if !seen.insert(link.offset()) {
                    problem(format!("the node {link:?} is linked twice within the levels"));
                    break;
                }
                let word = node.sibling(domain);
                let level = *expected.get_or_insert(word.level());
                if word.level() != level {
                    problem(format!(
                        "the node {link:?} is of level {} among those of level {level}",
                        word.level()
                    ));
                    break;
                }
                if link == first {
                    leftmost = node.leftmost(domain);
                }
                if !visit(&self.look_at(node, level)) {
                    break;
                }
                link = word.link();
            }
            match expected {
                None | Some(0) => return,
                Some(level) => expected = Some(level - 1),
            }
            if leftmost.is_null() {
                problem(format!("the first node above level {expected:?} has no leftmost child"));
                return;
            }
            first = leftmost;
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let mut from_walk = Vec::new();
        let mut problems = Vec::new();
        // Per level: low words by node; and what the level above expects of it.
        let mut level_now = None;
        let mut lows: HashMap<u64, u64> = HashMap::new();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        let mut children: Vec<(u64, u64)> = Vec::new();
        let mut previous: Option<Option<u64>> = None;
        let top_level = self.try_node(self.root().top.load(self.domain()).cast());
        let top_level = top_level.map(|top| top.level(self.domain()));
        let mut top_nodes = 0;
        self.walk(&mut |what| from_walk.push(what), &mut |seen| {
            if level_now != Some(seen.level) {
                self.check_children(&expected, &lows, &mut problems);
                level_now = Some(seen.level);
                expected = std::mem::take(&mut children);
                lows.clear();
                previous = None;
            }
            top_nodes += usize::from(top_level == Some(seen.level));
            let low = seen.node.low(self.domain());
            if let Some(bound) = previous
                && bound != Some(low)
            {
                problems.push(format!(
                    "the node {:?} has another low key than announced",
                    seen.node.link
                ));
            }
            if previous.is_none() && low != 0 {
                problems.push(format!("the first node {:?} has a low key", seen.node.link));
            }
            previous = Some(seen.bound);
            lows.insert(seen.node.link.offset(), low);
            self.check_node(seen, low, &mut problems);
            if seen.level > 0 {
                children.push((seen.node.leftmost(self.domain()).offset(), low));
                children.extend(
                    seen.entries
                        .iter()
                        .map(|&(key, child)| (Link::<NodeHeader>::from_bits(child).offset(), key)),
                );
            }
            true
        });
        self.check_children(&expected, &lows, &mut problems);
        if top_nodes > super::WIDEST_TOP {
            problems.push(format!("the top level has {top_nodes} nodes: a root above it is lost"));
        }
        problems.append(&mut from_walk);
        problems
    }

    /// I6: whatever the level above refers to is there and begins where the separator says.
    fn check_children(
        &self,
        expected: &[(u64, u64)],
        lows: &HashMap<u64, u64>,
        problems: &mut Vec<String>,
    ) {
        for &(child, separator) in expected {
            match lows.get(&child) {
                None => problems.push(format!("the child @{child:#x} is not in its level")),
                Some(&low) if low == separator => {}
                Some(&low) if self.compare(low, separator) == Some(Ordering::Equal) => {}
                Some(_) => problems.push(format!("the child @{child:#x} has another low key")),
            }
        }
    }

    fn check_node(&self, seen: &Seen<'_>, low: u64, problems: &mut Vec<String>) {
        let domain = self.domain();
        let (link, sibling) = (seen.node.link, seen.node.sibling(domain));
        let lock = seen.node.header.lock.read(domain);
        if sibling.is_deleted() {
            problems.push(format!("the node {link:?} is deleted and still linked"));
        }
        if lock.is_locked(self.generation) {
            problems.push(format!("the node {link:?} is locked"));
        } else if lock.is_current(self.generation) && seen.leftovers {
            problems.push(format!("the node {link:?} has stale entries although it was repaired"));
        }
        if seen.level > 0 && seen.node.leftmost(domain).is_null() {
            problems.push(format!("the inner node {link:?} has no leftmost child"));
        }
        let links = seen.entries.iter().map(|&(_, child)| child);
        let mut links = links.chain([seen.node.header.leftmost.load(domain)]);
        if seen.level > 0 && links.any(|word| word & !LINK_MASK != 0) {
            problems.push(format!("the inner node {link:?} has a link with bits that no link has"));
        }
        if low != 0 && self.compare(low, low).is_none() {
            problems.push(format!("the low key of node {link:?} is no key"));
        }
        if let Some(bound) = seen.bound
            && (bound == 0 || low != 0 && self.compare(low, bound) != Some(Ordering::Less))
        {
            problems.push(format!("the node {link:?} does not begin before its sibling"));
        }
        for pair in seen.entries.windows(2) {
            if self.compare(pair[0].0, pair[1].0) != Some(Ordering::Less) {
                problems.push(format!("the node {link:?} is not sorted"));
                break;
            }
        }
        for &(key, _) in &seen.entries {
            if self.compare(key, key).is_none() {
                problems.push(format!("the node {link:?} has a key word {key:#x} that is no key"));
            } else if low != 0 && self.compare(key, low) == Some(Ordering::Less) {
                problems.push(format!("the node {link:?} has a key below its low key"));
            }
        }
    }

    pub(super) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        visitor.visit(self.root, size_of::<IndexRoot>());
        let mut problems = Vec::new();
        self.walk(&mut |what| problems.push(what), &mut |seen| {
            if !visitor.visit(seen.node.link, self.node_bytes) {
                return false;
            }
            if seen.level == 0 {
                // I7: leaves own their keys and their low key; inner nodes share the latter.
                let low = seen.node.low(self.domain());
                if low != 0 {
                    K::visit_blocks(visitor, low);
                }
                for &(key, payload) in &seen.entries {
                    K::visit_blocks(visitor, key);
                    value(visitor, payload);
                }
            }
            true
        });
        for what in problems {
            visitor.problem(what);
        }
    }

    pub(super) fn measure(&self) -> Statistics {
        let mut statistics = Statistics {
            blocks: 1,
            bytes: size_of::<IndexRoot>() as u64,
            max_depth: u64::from(self.top().level(self.domain())),
            ..Statistics::default()
        };
        let add_key = |statistics: &mut Statistics, word: u64| {
            let bytes = K::word_block_bytes(&self.pool, word) as u64;
            statistics.blocks += u64::from(bytes > 0);
            statistics.bytes += bytes;
        };
        self.walk(&mut |_| (), &mut |seen| {
            statistics.blocks += 1;
            statistics.bytes += self.node_bytes as u64;
            if seen.level > 0 {
                statistics.nodes += 1;
                return true;
            }
            let low = seen.node.low(self.domain());
            if low != 0 {
                add_key(&mut statistics, low);
            }
            statistics.entries += seen.entries.len() as u64;
            for &(key, _) in &seen.entries {
                add_key(&mut statistics, key);
            }
            true
        });
        statistics.mean_depth = statistics.max_depth as f64;
        statistics
    }
}
