//! Removal, and the way of empty nodes out of the tree.

use lapis_pmem::{Committed, Domain, Guard, Link};

use super::FastFair;
use super::mutants;
use super::node::{Found, Node, NodeHeader};
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// What is locked above a node that is to be unlinked.
struct Above<'p> {
    /// The parent, or the top node of the same level.
    node: Node<'p>,
    /// The slot of the node's separator in its parent, if it is there.
    separator: Option<usize>,
    /// Where to begin looking for the left neighbour.
    before: Link<NodeHeader>,
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    pub(super) fn remove_key(&self, key: &K) -> Result<Outcome, IndexError> {
        key.validate()?;
        let guard = self.pool.pin();
        let Some(place) = self.lock_covering(0, key) else {
            return Err(IndexError::Damaged { what: "its root is below the leaves".into() });
        };
        let (domain, node) = (self.domain(), place.node);
        let count = node.count(domain);
        let present = place.found.filter(|found| key.cmp_word(&self.pool, found.key).is_eq());
        let outcome = match present {
            None => {
                self.release(node);
                Outcome { previous: None, committed: Committed::nothing_to_do() }
            }
            Some(found) => {
                let (committed, held) = node.remove_at(domain, found.slot, count);
                self.release_from(node, held);
                K::retire_word(&self.pool, found.key, committed, &guard);
                Outcome { previous: Some(found.value), committed }
            }
        };
        // Also where nothing was found: a crash may have left the leaf empty.
        if count <= usize::from(present.is_some()) {
            self.adopt(node.link, &guard);
        }
        if let Some(hop) = place.hop {
            self.adopt(hop, &guard);
        }
        Ok(outcome)
    }

    /// Unlinks a node without entries, unless it is the leftmost child of a parent with other
    /// children. Adds to `pending` the nodes that have to be looked at as a result.
    pub(super) fn unlink(
        &self,
        node: Node<'_>,
        pending: &mut Vec<Link<NodeHeader>>,
        guard: &Guard<'_, D>,
    ) {
        let low = node.low(self.domain());
        K::with_word(&self.pool, low, |key| {
            if let Some(above) = self.lock_above(node, key) {
                self.unlink_below(node, key, &above, pending, guard);
            }
        });
    }

    /// Locks what nobody can give `node` a separator without: the node above that covers its low
    /// key or, where there is none, the top node of its own level.
    fn lock_above(&self, node: Node<'_>, low: &K) -> Option<Above<'_>> {
        let domain = self.domain();
        let level = node.level(domain);
        loop {
            if let Some(place) = self.lock_covering(level + 1, low) {
                let separator =
                    place.found.filter(|found| low.cmp_word(&self.pool, found.key).is_eq());
                let before = match (separator, place.found) {
                    (Some(Found { slot: 0, .. }), _) | (None, None) => place.node.leftmost(domain),
                    (Some(found), _) => Link::from_bits(place.node.value(domain, found.slot - 1)),
                    (None, Some(found)) => Link::from_bits(found.value),
                };
                let separator = separator.map(|found| found.slot);
                return Some(Above { node: place.node, separator, before });
            }
            let top = self.top();
            self.lock(top);
            if self.top().link == top.link && top.level(domain) == level {
                return Some(Above { node: top, separator: None, before: top.link });
            }
            self.release(top);
            if node.sibling(domain).is_deleted() {
                return None;
            }
        }
    }

    /// Locks left neighbour and node while `above` is locked, in this order (I10).
    fn unlink_below(
        &self,
        node: Node<'_>,
        low: &K,
        above: &Above<'_>,
        pending: &mut Vec<Link<NodeHeader>>,
        guard: &Guard<'_, D>,
    ) {
        let domain = self.domain();
        if node.sibling(domain).is_deleted() {
            return self.release(above.node);
        }
        if above.before == node.link {
            // The leftmost child. If it is the only one, the parent goes first, and then this node
            // is looked at again.
            if above.node.count(domain) == 0 && above.node.low(domain) != 0 {
                pending.push(above.node.link);
            }
            return self.release(above.node);
        }
        let Some(left) = self.lock_left_neighbour(above, node, low) else {
            return self.release(above.node);
        };
        self.lock(node);
        if node.count(domain) != 0 {
            self.release(node);
            self.release_below(left, above);
            return self.release(above.node);
        }
        let remove_separator = || {
            if let Some(slot) = above.separator {
                let _: (Committed, _) =
                    above.node.remove_at(domain, slot, above.node.count(domain));
            }
        };
        let is_late = domain.commits(mutants::MERGE_NOT_ATOMIC);
        if !is_late {
            // I6: durable before the node leaves its level, let alone is freed.
            remove_separator();
        }
        let sibling = node.sibling(domain);
        let is_leaf = sibling.level() == 0;
        domain.happens(if is_leaf { "an empty leaf leaves" } else { "a bare inner node leaves" });
        let is_unlocked = domain.commits(mutants::LEFT_NEIGHBOUR_UNLOCKED);
        if is_unlocked {
            self.release_below(left, above);
        }
        let around = left.sibling(domain).with_link(sibling.link());
        let unlinked = left.header.sibling.publish(domain, around.0).persist();
        if is_late {
            remove_separator();
        }
        // For those who are on their way here. Nobody can come after a crash, so not persisted.
        node.header.sibling.store_ordered(domain, sibling.deleted().0);
        self.release_changed(node);
        if left.link != above.node.link && !is_unlocked {
            self.release_changed(left);
        }
        let is_bare = above.node.count(domain) == 0;
        self.release_changed(above.node);
        if is_bare {
            if above.node.low(domain) != 0 {
                pending.push(above.node.link);
            } else {
                self.collapse(guard);
            }
        }
        if sibling.level() > 0 {
            // Its only child is in no parent now.
            pending.push(node.leftmost(domain));
        } else {
            // I7: the leaf owned its low key.
            K::retire_word(&self.pool, node.low(domain), unlinked, guard);
        }
        self.pool.retire(node.link, self.node_bytes, unlinked, guard);
    }

    /// Locks the node whose sibling is `node`. None, and no lock, if there is none.
    fn lock_left_neighbour(&self, above: &Above<'_>, node: Node<'_>, low: &K) -> Option<Node<'_>> {
        let domain = self.domain();
        let mut left = self.node(above.before);
        if left.link != above.node.link {
            self.lock(left);
        }
        loop {
            let sibling = left.sibling(domain).link();
            if sibling == node.link {
                return Some(left);
            }
            let passed = sibling.is_null()
                || low.cmp_word(&self.pool, self.node(sibling).low(domain)).is_le();
            if passed {
                self.release_below(left, above);
                return None;
            }
            let next = self.node(sibling);
            self.lock(next);
            self.release_below(left, above);
            left = next;
        }
    }

    /// Gives back the lock of `node`, unchanged, if it is not that of `above`.
    fn release_below(&self, node: Node<'_>, above: &Above<'_>) {
        if node.link != above.node.link {
            self.release(node);
        }
    }

    /// While the root has only its leftmost child, makes that the root.
    fn collapse(&self, guard: &Guard<'_, D>) {
        let domain = self.domain();
        loop {
            let top = self.top();
            if top.level(domain) == 0 {
                return;
            }
            self.lock(top);
            let sibling = top.sibling(domain);
            if sibling.is_deleted() || self.top().link != top.link {
                self.release(top);
                continue;
            }
            if top.count(domain) != 0 || !sibling.link().is_null() {
                return self.release(top);
            }
            domain.happens("the root gives way to its child");
            let child = top.leftmost(domain);
            let unlinked = self.root().top.redirect(domain, child.cast()).persist();
            top.header.sibling.store_ordered(domain, sibling.deleted().0);
            self.release_changed(top);
            self.pool.retire(top.link, self.node_bytes, unlinked, guard);
        }
    }
}
