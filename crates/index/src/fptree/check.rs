//! Looking at everything: the check, the blocks and the statistics. None of it trusts the bytes.

use lapis_blocks::fp_leaf::{fingerprint_of, slots_in};
use lapis_pmem::{BlockVisitor, Domain, Link};

use super::FpTree;
use super::leaf::{Leaf, LeafHeader};
use super::micro_log::{MICRO_LOG_BYTES, MICRO_LOGS};
use crate::index::{OnValue, Statistics};
use crate::key::IndexKey;
use crate::leaf_list;
use crate::root::IndexRoot;

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    /// Visits every leaf once, in the order of the list, as long as `visit` says to go on.
    fn walk(&self, problem: &mut dyn FnMut(String), visit: &mut dyn FnMut(Leaf<'_>) -> bool) {
        if self.first_leaf().is_null() {
            problem("there is no first leaf".into());
        }
        let at = |link| Leaf::try_at(&self.pool, link, self.slots).ok_or(leaf_list::OUTSIDE);
        leaf_list::walk(self.first_leaf(), at, |leaf| leaf.next(self.domain()), problem, visit);
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let domain = self.domain();
        let mut problems = Vec::new();
        let mut found: Vec<(Link<LeafHeader>, Vec<u64>)> = Vec::new();
        let mut from_walk = Vec::new();
        self.walk(&mut |what| from_walk.push(what), &mut |leaf| {
            let words = self.check_leaf(leaf, &mut problems);
            found.push((leaf.link, words));
            true
        });
        problems.append(&mut from_walk);
        for (number, (link, words)) in found.iter().enumerate() {
            if words.is_empty() && found.len() > 1 {
                problems.push(format!("I4: the leaf {link:?} is empty and not alone"));
            }
            let last = words.last();
            let following = found.get(number + 1).and_then(|(_, words)| words.first());
            if let (Some(&last), Some(&first)) = (last, following)
                && self.is_below(last, first) != Some(true)
            {
                problems.push(format!("I4: the leaf {link:?} has keys of the next one"));
            }
        }
        for number in 0..MICRO_LOGS {
            if self.micro_log(number).leaf.load(domain) != 0 {
                problems
                    .push(format!("I5: micro-log {number} is in use although nobody is at work"));
            }
        }
        if self.locks.held() > 0 {
            problems
                .push(format!("{} locks are held although nobody is at work", self.locks.held()));
        }
        self.check_inner_nodes(&found, &mut problems);
        problems
    }

    /// The words of a leaf's keys, ascending.
    fn check_leaf(&self, leaf: Leaf<'_>, problems: &mut Vec<String>) -> Vec<u64> {
        let (domain, link) = (self.domain(), leaf.link);
        let bitmap = leaf.header.line.bitmap.load(domain);
        if bitmap & !leaf.all() != 0 {
            problems.push(format!("the leaf {link:?} uses slots that it does not have"));
        }
        if bitmap & leaf.all() == leaf.all() {
            problems.push(format!("I3: the leaf {link:?} has no free slot"));
        }
        let mut words = Vec::new();
        for slot in slots_in(bitmap & leaf.all()) {
            let word = leaf.slots[slot].key.load(domain);
            match K::with_word(&self.pool, word, |key| fingerprint_of(key.hash64())) {
                None => {
                    problems
                        .push(format!("the leaf {link:?} has a key word {word:#x} that is no key"));
                }
                Some(wanted) if wanted != leaf.header.line.fingerprint(domain, slot) => problems
                    .push(format!(
                        "I2: slot {slot} of {link:?} has the fingerprint of another key"
                    )),
                Some(_) => words.push((word, ())),
            }
        }
        self.sort_by_key(&mut words);
        let words: Vec<u64> = words.into_iter().map(|(word, ())| word).collect();
        if words.windows(2).any(|pair| self.is_below(pair[0], pair[1]) != Some(true)) {
            problems.push(format!("I4: the leaf {link:?} has a key twice"));
        }
        words
    }

    /// I7: the inner nodes lead to the leaves of the list, in its order, each within its range.
    fn check_inner_nodes(
        &self,
        found: &[(Link<LeafHeader>, Vec<u64>)],
        problems: &mut Vec<String>,
    ) {
        let (leaves, _, _) = self.inner.leaves::<D, K>(&self.pool);
        let linked = found.iter().map(|(link, _)| *link);
        if !leaves.iter().map(|(_, link)| *link).eq(linked) {
            problems.push(format!(
                "I7: {} leaves are linked, the inner nodes lead to {} or to others",
                found.len(),
                leaves.len()
            ));
            return;
        }
        for (number, (link, words)) in found.iter().enumerate() {
            let (lower, _) = leaves[number];
            let upper = leaves.get(number + 1).and_then(|(upper, _)| *upper);
            let compare = |separator, word: Option<&u64>| {
                word.and_then(|&word| self.inner.compare_word::<D, K>(&self.pool, separator, word))
            };
            let below = lower.and_then(|lower| compare(lower, words.first()));
            let above = upper.and_then(|upper| compare(upper, words.last()));
            if below.is_some_and(|order| order.is_gt()) || above.is_some_and(|order| order.is_le())
            {
                problems.push(format!("I7: the leaf {link:?} has keys outside of its range"));
            }
        }
    }

    /// Whether one word's key is below another's. None if one of them is no key.
    fn is_below(&self, one: u64, other: u64) -> Option<bool> {
        K::with_word(&self.pool, other, |_| ())?;
        K::with_word(&self.pool, one, |key| key.cmp_word(&self.pool, other).is_lt())
    }

    pub(super) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        let domain = self.domain();
        visitor.visit(self.root, size_of::<IndexRoot>());
        visitor.visit(self.micro_logs, MICRO_LOG_BYTES);
        self.inner.visit_blocks(visitor);
        let mut problems = Vec::new();
        self.walk(&mut |what| problems.push(what), &mut |leaf| {
            if !visitor.visit(leaf.link, self.leaf_bytes) {
                return false;
            }
            for slot in slots_in(leaf.bitmap(domain)) {
                K::visit_blocks(visitor, leaf.slots[slot].key.load(domain));
                value(visitor, leaf.slots[slot].value.load(domain));
            }
            true
        });
        problems.into_iter().for_each(|what| visitor.problem(what));
    }

    pub(super) fn measure(&self) -> Statistics {
        let domain = self.domain();
        let (_, levels, nodes) = self.inner.leaves::<D, K>(&self.pool);
        let (inner_blocks, inner_bytes) = self.inner.pool_blocks();
        let mut found = Statistics {
            blocks: 2 + inner_blocks,
            nodes: nodes as u64,
            mean_depth: levels as f64,
            max_depth: levels as u64,
            bytes: (size_of::<IndexRoot>() + MICRO_LOG_BYTES) as u64 + inner_bytes,
            ..Statistics::default()
        };
        self.walk(&mut |_| (), &mut |leaf| {
            found.blocks += 1;
            found.bytes += self.leaf_bytes as u64;
            for slot in slots_in(leaf.bitmap(domain)) {
                found.entries += 1;
                let bytes = K::word_block_bytes(&self.pool, leaf.slots[slot].key.load(domain));
                found.blocks += u64::from(bytes > 0);
                found.bytes += bytes as u64;
            }
            true
        });
        found
    }
}
