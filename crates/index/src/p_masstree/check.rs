//! A walk over everything: check, statistics, blocks. None of it trusts the bytes.

use lapis_pmem::{Domain, Link, LockGeneration};

use super::PMasstree;
use super::node::{BORDER, Key, Node, Slice, View, Word};
use crate::key::IndexKey;
use crate::radix::{Visitor, leaf_bytes, leaf_key};

/// No layer has more levels: nodes with one child or none are few.
const MOST_LEVELS: u64 = 64;

/// A node on the way down.
struct Frame<'t> {
    view: View<'t>,
    layer: usize,
    /// Entries that are not beyond the node's bound, and how many are done.
    live: usize,
    done: usize,
    /// Nodes above.
    depth: usize,
}

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// Visits every node and key in order and checks M2 to M4. Ends because the visitor refuses what it has
    /// seen, and heights and layers say where a node can be.
    pub(super) fn walk(&self, visitor: &mut impl Visitor) {
        let domain = self.handle.pool.domain();
        let mut stack: Vec<Frame<'_>> = Vec::with_capacity(16);
        // What all keys below the last frame begin with.
        let mut prefix = Vec::new();
        let top = self.word_at(self.handle.top);
        if top.is_malformed(0) {
            visitor.problem(format!("the word {:#x} above the first layer is no node's", top.0));
        } else if top.0 != 0 {
            stack.extend(self.enter(top, None, [None; 2], visitor));
        }
        while let Some(frame) = stack.last_mut() {
            let (index, layer, view) = (frame.done, frame.layer, frame.view);
            if index == frame.live {
                stack.pop();
                continue;
            }
            frame.done += 1;
            let slot = view.permutation.slot(index);
            let (slice, word) = (view.slice(domain, index), view.word(domain, slot));
            if K::INLINE && !view.is_interior() {
                visitor.inline_entry(frame.depth);
                visitor.value(word.0);
                continue;
            }
            if word.is_malformed(Word::greatest_tag(view.is_interior())) {
                visitor.problem(format!("the word {:#x} in {:?} is no entry's", word.0, view.link));
                continue;
            }
            prefix.truncate(8 * layer);
            if view.is_interior() {
                let bounds = view.bounds_below(domain, index);
                let below = self.enter(word, Some(frame), bounds, visitor);
                stack.extend(below);
            } else if word.is_layer() {
                slice.append_to(&mut prefix);
                let below = self.enter(word, Some(frame), [None; 2], visitor);
                stack.extend(below);
            } else {
                let depth = frame.depth;
                self.walk_leaf(&prefix, slice, word, depth, visitor);
            }
        }
    }

    /// Looks at a node before its entries.
    fn enter<'t>(
        &'t self,
        word: Word,
        above: Option<&Frame<'_>>,
        bounds: [Option<Slice>; 2],
        visitor: &mut impl Visitor,
    ) -> Option<Frame<'t>> {
        let (pool, domain) = (&self.handle.pool, self.handle.pool.domain());
        let link: Link<Node> = word.node();
        let Some(node) = pool.try_at(link) else {
            visitor.problem(format!("there is no node at {link:?}"));
            return None;
        };
        if !visitor.node(link.cast(), size_of_val(node)) {
            return None;
        }
        let mut problem = |what: &str| {
            visitor.problem(format!("the node at {link:?} {what}"));
        };
        let view = View::of(domain, node, link, K::INLINE, bounds);
        let (layer, depth) = above.map_or((0, 0), |above| {
            (above.layer + usize::from(!above.view.is_interior()), above.depth + 1)
        });
        let parent = above.filter(|above| above.view.is_interior());
        let fits = parent.is_none_or(|parent| view.height + 1 == parent.view.height);
        let can_be = (BORDER..=MOST_LEVELS).contains(&view.height);
        if !fits || !can_be || node.layer.load(domain) != layer as u64 {
            problem("is of another height or layer than its place");
            return None;
        }
        if view.permutation.is_malformed() {
            problem("has a permutation of no order (M2)");
            return None;
        }
        let live = view.live_count(domain);
        let first = usize::from(view.is_interior());
        let slices: Vec<Slice> =
            (first..view.permutation.count()).map(|index| view.slice(domain, index)).collect();
        let is_sorted = slices.is_sorted_by(|one, other| one < other)
            && slices.iter().all(|slice| slice.is_canonical())
            && match (slices.first(), view.lower) {
                // A separator is behind the one before the node.
                (Some(slice), Some(lower)) => lower < *slice || (first == 0 && lower == *slice),
                _ => true,
            };
        if !is_sorted {
            problem("has entries out of order, before its bound, or of no key (M3)");
            return None;
        }
        if live < first {
            problem("is an interior one without children (M3)");
            return None;
        }
        let is_clean = view.lock.is_current(LockGeneration::of(pool.generation()));
        if is_clean && live < view.permutation.count() {
            problem("has entries beyond its bound (M4)");
        }
        Some(Frame { view, layer, live, done: 0, depth })
    }

    /// Looks at a leaf whose key is to begin with `prefix`, and go on with `slice`.
    fn walk_leaf(
        &self,
        prefix: &[u8],
        slice: Slice,
        word: Word,
        depth: usize,
        visitor: &mut impl Visitor,
    ) {
        let (pool, link) = (&self.handle.pool, word.leaf());
        let key: Option<Key<'_, K>> = leaf_key(pool, link);
        let Some(key) = key else {
            visitor.problem(format!("there is no leaf at {link:?}"));
            return;
        };
        if !visitor.leaf(link, leaf_bytes(&key), depth) {
            return;
        }
        let belongs = key.bytes().starts_with(prefix)
            && Slice::of_bytes(&key.bytes()[prefix.len()..]) == slice;
        if !belongs {
            visitor.problem(format!("M3: the leaf at {link:?} has a key that belongs elsewhere"));
        }
        visitor.value(pool.at(link).value.load(pool.domain()));
    }
}
