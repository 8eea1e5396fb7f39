//! Splits and merges: changes of a node, its parent and perhaps the root at once, through the redo
//! log.
//!
//! Either changes one pair of nodes and their parent. A split needs room in the parent, so full
//! parents are split first, from the top; a merge leaves the parent with an entry less, and it may be
//! merged next. Each of these leaves a tree that is right as it is.

use lapis_pmem::{AllocError, Committed, Domain, Link, PCell};

use super::mutants::{self, slots_only};
use super::node::{Entry, Fresh, Node, Order, Top, build, ordinal_of};
use super::redo_log::Plan;
use super::search::{MOST_LEVELS, Path, Target};
use super::{WbTree, WbTreeNodeKind};
use crate::index::IndexError;
use crate::key::{IndexKey, KeyWord};

fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Plans to give `node` the entries of `after`, in that order. `overwritten` is one of them that
    /// takes the place of another that counts now; others that are new have been written and flushed.
    ///
    /// Readers who look on see the entries as they were, then, if one is overwritten, those that are
    /// not, then all of `after` (I6).
    fn plan_entries(
        &self,
        plan: &mut Plan,
        node: Node<'_>,
        after: &Order,
        overwritten: Option<(usize, &Entry)>,
    ) {
        let domain = self.domain();
        let before = node.control(domain);
        let mut version = node.version(domain);
        let mut store_control = |plan: &mut Plan, control| {
            if let Some(place) = node.version_place() {
                version = version.wrapping_add(1);
                plan.store(place, version);
            }
            plan.store(node.control_place(), control);
        };
        let mut last = before;
        let slots_differ = node.differing_slots(domain, after).next().is_some();
        if let Some((index, entry)) = overwritten {
            let mut kept = Order::EMPTY;
            for &other in after.as_slice().iter().filter(|&&other| usize::from(other) != index) {
                kept.push(usize::from(other));
            }
            last = self.shape.disordered(self.shape.control_of(&kept, last));
            store_control(plan, last);
            for (place, &word) in node.entry_places(index).zip(entry) {
                plan.store(place, word);
            }
        } else if slots_differ {
            // I2, for readers: a redo brings the slot array and the bitmap together.
            last = self.shape.disordered(before);
            store_control(plan, last);
        }
        for (number, word) in node.differing_slots(domain, after) {
            plan.store(node.place(number), word);
        }
        store_control(plan, self.shape.control_of(after, last));
    }

    /// Writes and flushes a node that nobody can reach. The caller fences.
    #[track_caller]
    fn build(&self, leftmost: u64, entries: &[Entry]) -> Result<Fresh<'_, D>, AllocError> {
        let node = build(&self.pool, &self.shape, leftmost, entries)?;
        let mutant = mutants::either(
            self.domain(),
            mutants::MISSING_SIBLING_FLUSH,
            slots_only::MISSING_SIBLING_FLUSH,
        );
        let _mutant = self.domain().omitting(mutant);
        Ok(node.flush())
    }

    fn entries(&self, node: Node<'_>, places: &[u8]) -> Vec<Entry> {
        places.iter().map(|&index| node.entry(self.domain(), usize::from(index))).collect()
    }

    /// Adds a key that belongs to a full leaf.
    #[cold]
    pub(super) fn add_to_full(
        &self,
        key: &K,
        value: u64,
        target: &Target<'_, K>,
    ) -> Result<Committed, IndexError> {
        loop {
            let (path, leaf) = self.descend_to_write(target);
            // The highest node from which on all are full.
            let is_full = |level: usize| {
                let node = self.node(path.link(level));
                node.count(node.control(self.domain())) == self.shape.capacity
            };
            let mut level = path.len();
            while level > 0 && is_full(level - 1) {
                level -= 1;
            }
            if level == 0 && path.len() + 1 > MOST_LEVELS {
                return Err(damaged("it has more levels than any index can have"));
            }
            if level == path.len() {
                return self.split_leaf(&path, leaf, key, value, target);
            }
            self.split_inner(&path, level, target)?;
        }
    }

    /// Splits a full leaf and adds an entry to either half.
    fn split_leaf(
        &self,
        path: &Path,
        leaf: Node<'_>,
        key: &K,
        value: u64,
        target: &Target<'_, K>,
    ) -> Result<Committed, IndexError> {
        let domain = self.domain();
        let order = self.order_of(leaf, leaf.control(domain));
        let (count, position) = (order.len(), self.position_in(leaf, &order, target));
        // Keys that arrive in ascending order leave full leaves behind.
        let appends = position == count && path.is_at_end(path.len());
        let middle = if appends { count } else { count.div_ceil(2) };
        let word = key.make_word(&self.pool)?;
        let entry = [target.ordinal, value, word.bits()];
        domain.happens(if appends { "a new leaf behind a full one" } else { "split of a leaf" });
        // The first `middle` of the old entries and the new one stay, if it is among them.
        let stays = position < middle;
        let kept = if stays { middle - 1 } else { middle };
        let mut moved = self.entries(leaf, &order.as_slice()[kept..]);
        if !stays {
            moved.insert(position - kept, entry);
        }
        let last =
            if stays && position == kept { entry } else { leaf.entry(domain, order.at(kept - 1)) };
        let right = self.build(0, &moved)?;
        let separator = self.separator(&last, &moved[0])?;
        let ordinal = K::with_word(&self.pool, separator.bits(), ordinal_of)
            .ok_or_else(|| damaged("a key word is no key"))?;
        let mut plan = Plan::new();
        let above = [ordinal, right.link().bits(), separator.bits()];
        // I6: the way to the new node first.
        let root = self.plan_above(&mut plan, path, path.len(), &above, target)?;
        let staying = order.first(kept);
        if stays {
            let index = order.at(kept);
            let staying = staying.with(position, index);
            self.plan_entries(&mut plan, leaf, &staying, Some((index, &entry)));
        } else {
            self.plan_entries(&mut plan, leaf, &staying, None);
        }
        Ok(self.log().carry_out(&self.pool, &plan, (word, separator, right, root)))
    }

    /// A key word for the shortest key that is above that of `left` and not above that of `right`.
    #[track_caller]
    fn separator(&self, left: &Entry, right: &Entry) -> Result<KeyWord<'_, D>, IndexError> {
        let no_key = || damaged("a key word is no key");
        let word_of = |entry: &Entry| if K::INLINE { entry[0] } else { entry[2] };
        if K::INLINE {
            return Ok(KeyWord::again(word_of(right)));
        }
        K::with_word(&self.pool, word_of(right), |right| {
            K::with_word(&self.pool, word_of(left), |left| {
                let (mut left_space, mut right_space) = ([0; 8], [0; 8]);
                let (left, right) = (left.bytes(&mut left_space), right.bytes(&mut right_space));
                let common = left.iter().zip(right).take_while(|(left, right)| left == right);
                let bytes = right.get(..=common.count()).unwrap_or(right);
                K::with_bytes(bytes, |key| key.make_word(&self.pool))
                    .ok_or_else(no_key)?
                    .map_err(IndexError::from)
            })
            .ok_or_else(no_key)?
        })
        .ok_or_else(no_key)?
    }

    /// Splits the full inner node at `level`. Its parent, if it has one, has room.
    fn split_inner(
        &self,
        path: &Path,
        level: usize,
        target: &Target<'_, K>,
    ) -> Result<(), IndexError> {
        let domain = self.domain();
        let node = self.node(path.link(level));
        let order = self.order_of(node, node.control(domain));
        let count = order.len();
        if count < self.shape.capacity {
            // Its bitmap has bits that no entry has.
            return Err(damaged("an inner node has entries beyond its end"));
        }
        let middle = if path.is_at_end(level) { count - 1 } else { count / 2 };
        domain.happens("split of an inner node");
        // The entry in the middle goes up, with the key word that it owns (I3).
        let middle_entry = node.entry(domain, order.at(middle));
        let moved = self.entries(node, &order.as_slice()[middle + 1..]);
        let right = self.build(middle_entry[1], &moved)?;
        let above = [middle_entry[0], right.link().bits(), middle_entry[2]];
        let mut plan = Plan::new();
        let root = self.plan_above(&mut plan, path, level, &above, target)?;
        self.plan_entries(&mut plan, node, &order.first(middle), None);
        let _: Committed = self.log().carry_out(&self.pool, &plan, (right, root));
        Ok(())
    }

    /// Plans a new entry in the parent of the node at `level`, or a new root above it, which is
    /// returned.
    fn plan_above(
        &self,
        plan: &mut Plan,
        path: &Path,
        level: usize,
        entry: &Entry,
        target: &Target<'_, K>,
    ) -> Result<Option<Fresh<'_, D>>, IndexError> {
        let domain = self.domain();
        let Some(level) = level.checked_sub(1) else {
            domain.happens("a root above the root");
            let top = self.top();
            let root = self.build(top.link().bits(), std::slice::from_ref(entry))?;
            plan.store(self.top_place(), Top::new(root.link(), top.levels() + 1).0);
            return Ok(Some(root));
        };
        let parent = self.node(path.link(level));
        let order = self.order_of(parent, parent.control(domain));
        let position = self.position_in(parent, &order, target);
        let index = parent.free_index(&order);
        parent.write_entry(domain, index, entry);
        // I1: durable when the log is.
        domain.flush(parent.entry_cells(index));
        self.plan_entries(plan, parent, &order.with(position, index), None);
        Ok(None)
    }

    /// Whether a node with so many entries should be merged with a neighbour.
    #[inline(always)]
    pub(super) fn is_sparse(&self, count: usize) -> bool {
        count <= self.shape.capacity / 4
    }

    /// Merges nodes on the way to the target as long as there are sparse ones whose neighbours have
    /// room.
    #[cold]
    pub(super) fn merge_along(&self, target: &Target<'_, K>) {
        loop {
            let (path, leaf) = self.descend_to_write(target);
            let mut child = leaf;
            let mut merged = false;
            for level in (0..path.len()).rev() {
                let parent = self.node(path.link(level));
                merged = self.try_merge(parent, child, level == 0, level + 1 < path.len(), target);
                if merged {
                    break;
                }
                child = parent;
            }
            if !merged {
                return;
            }
        }
    }

    /// Merges a sparse `child` of `parent` with its right or left neighbour below the same parent, if
    /// one has room for it.
    fn try_merge(
        &self,
        parent: Node<'_>,
        child: Node<'_>,
        parent_is_top: bool,
        is_inner: bool,
        target: &Target<'_, K>,
    ) -> bool {
        let domain = self.domain();
        let count_of = |node: Node<'_>| node.count(node.control(domain));
        let count = count_of(child);
        if !self.is_sparse(count) {
            return false;
        }
        let order = self.order_of(parent, parent.control(domain));
        let position = self.position_in(parent, &order, target);
        let child_before = |position: usize| {
            let link = match position.checked_sub(1) {
                Some(before) => parent.value(domain, order.at(before)),
                None => parent.leftmost(domain),
            };
            self.node(Link::from_bits(link))
        };
        // Some room is left, so that the next insertion does not split again; but for an empty node.
        let capacity = self.shape.capacity;
        let most = if count == 0 { capacity } else { capacity - capacity / 4 };
        let fits = |other: Node<'_>| count + count_of(other) + usize::from(is_inner) <= most;
        if position < order.len() && fits(child_before(position + 1)) {
            let right = child_before(position + 1);
            self.merge(parent, &order, position, [child, right], parent_is_top, is_inner);
            return true;
        }
        if position > 0 && fits(child_before(position - 1)) {
            let left = child_before(position - 1);
            self.merge(parent, &order, position - 1, [left, child], parent_is_top, is_inner);
            return true;
        }
        false
    }

    /// Moves the entries of `right` to `left`; between them is the separator at `position` of
    /// `parent`, whose entries are in `above`.
    fn merge(
        &self,
        parent: Node<'_>,
        above: &Order,
        position: usize,
        [left, right]: [Node<'_>; 2],
        parent_is_top: bool,
        is_inner: bool,
    ) {
        let domain = self.domain();
        let separator = parent.entry(domain, above.at(position));
        let right_order = self.order_of(right, right.control(domain));
        let mut moved = self.entries(right, right_order.as_slice());
        if is_inner {
            // The separator comes down, with the key word that it owns (I3).
            moved.insert(0, [separator[0], right.leftmost(domain), separator[2]]);
        }
        domain.happens(if is_inner { "merge of inner nodes" } else { "merge of leaves" });
        let mut order = self.order_of(left, left.control(domain));
        // I1: durable when the log is.
        left.append_entries(domain, &mut order, &moved);
        let mut plan = Plan::new();
        // I6: the entries are in the left node before nothing leads to the right one.
        self.plan_entries(&mut plan, left, &order, None);
        let levels = self.top().levels();
        let gives_way = parent_is_top && above.len() == 1;
        if gives_way {
            domain.happens("the root gives way to its child");
            plan.store(self.top_place(), Top::new(left.link, levels - 1).0);
        } else {
            self.plan_entries(&mut plan, parent, &above.without(position), None);
        }
        let committed = self.log().carry_out(&self.pool, &plan, ());
        // I6: before anything below these nodes changes, of which they will not know.
        let mutant = mutants::either(
            domain,
            mutants::MERGED_NODE_NOT_DISOWNED,
            slots_only::MERGED_NODE_NOT_DISOWNED,
        );
        if !domain.commits(mutant) {
            right.disown(domain);
        }
        let mutant = mutants::either(
            domain,
            mutants::OLD_ROOT_NOT_DISOWNED,
            slots_only::OLD_ROOT_NOT_DISOWNED,
        );
        if gives_way && !domain.commits(mutant) {
            parent.disown(domain);
        }
        let pinned = self.pool.pin();
        let node_bytes = self.shape.node_bytes;
        self.pool.retire::<PCell<u64>>(right.link, node_bytes, committed, &pinned);
        if gives_way {
            self.pool.retire::<PCell<u64>>(parent.link, node_bytes, committed, &pinned);
        }
        if !is_inner && !K::INLINE {
            K::retire_word(&self.pool, separator[2], committed, &pinned);
        }
    }
}
