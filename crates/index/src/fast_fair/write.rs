//! Insertion and update, splits (FAIR), and the way of a separator into the parent.

use lapis_pmem::{Committed, Domain, Guard, InFlight, Link, LockWord, Owned};

use super::FastFair;
use super::mutants;
use super::node::{ENTRY_BYTES, Entry, Found, HEADER_BYTES, LARGEST_NODE_BYTES, Node, NodeHeader};
use super::node::{RIGHTWARD, SiblingWord};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;

/// A node that is locked and covers the key that was looked for.
pub(super) struct Place<'p> {
    pub(super) node: Node<'p>,
    /// The last entry up to the key.
    pub(super) found: Option<Found>,
    /// As in [`super::search::Arrival`].
    pub(super) hop: Option<Link<NodeHeader>>,
}

impl Place<'_> {
    /// The slot where a key greater than `found` and not present goes.
    pub(super) fn position(&self) -> usize {
        self.found.map_or(0, |found| found.slot + 1)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    /// Takes the lock of `node`; if nobody has since the pool was opened, repairs it first.
    #[inline]
    pub(super) fn lock(&self, node: Node<'_>) {
        let (lock, domain) = (&node.header.lock, self.domain());
        while !lock.lock(domain, self.generation).is_current(self.generation) {
            node.repair(domain, |word| {
                let sibling = node.sibling(domain).link();
                sibling.is_null() || {
                    let low = self.node(sibling).low(domain);
                    K::with_word(&self.pool, word, |key| key.cmp_word(&self.pool, low).is_lt())
                        .unwrap_or(true)
                }
            });
            // Counted, so that readers who saw the repair look again.
            lock.unlock(domain, lock.read(domain));
        }
    }

    /// Gives back the lock of a node that was not changed, or whose values alone were.
    #[inline(always)]
    pub(super) fn release(&self, node: Node<'_>) {
        let lock = &node.header.lock;
        lock.unlock_unchanged(self.domain(), lock.read(self.domain()));
    }

    /// Gives back the lock of a node that was changed, durably.
    #[inline(always)]
    pub(super) fn release_changed(&self, node: Node<'_>) {
        self.release_from(node, node.header.lock.read(self.domain()));
    }

    /// The same of a lock whose word is `held`.
    #[inline(always)]
    pub(super) fn release_from(&self, node: Node<'_>, held: LockWord) {
        node.header.lock.unlock(self.domain(), held);
    }

    /// Finds and locks the node of `level` that covers `key`. None if the tree is not that high.
    ///
    /// I9: under the lock the node is not deleted and `low <= key < sibling.low`, and neither can
    /// change while the lock is held.
    #[inline]
    pub(super) fn lock_covering(&self, level: u8, key: &K) -> Option<Place<'_>> {
        let domain = self.domain();
        let admits = self.up_to(key);
        loop {
            let arrival = self.descend_to_write(level, admits)?;
            let (mut node, mut hop) = (arrival.node, arrival.hop);
            self.lock(node);
            loop {
                let sibling = node.sibling(domain);
                if sibling.is_deleted() {
                    self.release(node);
                    break;
                }
                let (found, greater) = node.floor(domain, sibling.is_hidden(), K::INLINE, admits);
                // I5: a repaired node has no keys that belong to the sibling.
                let is_taken_for_right = domain.commits(mutants::WRONG_NODE_AFTER_SPLIT);
                if greater || is_taken_for_right || !self.belongs_right(sibling, admits) {
                    return Some(Place { node, found, hop });
                }
                hop = Some(sibling.link());
                let right = self.node(sibling.link());
                self.lock(right);
                self.release(node);
                node = right;
            }
        }
    }

    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        match change {
            Change::Insert(value) | Change::Update(value) | Change::Put(value) => {
                self.write(key, value, change)
            }
            Change::Remove => self.remove_key(key),
        }
    }

    fn write(&self, key: &K, value: u64, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let guard = self.pool.pin();
        let place = self.lock_covering(0, key).ok_or_else(FastFair::<D, K>::no_leaves)?;
        let outcome = self.write_locked(&place, key, value, change);
        let (outcome, fresh) = outcome.inspect_err(|_| self.release(place.node))?;
        if let Some(fresh) = fresh {
            self.adopt(fresh, &guard);
        }
        if let Some(hop) = place.hop {
            self.adopt(hop, &guard);
        }
        Ok(outcome)
    }

    /// Changes the locked leaf and gives its lock back, except on error. Also returns the sibling
    /// that a split made.
    #[inline]
    fn write_locked(
        &self,
        place: &Place<'_>,
        key: &K,
        value: u64,
        change: Change,
    ) -> Result<(Outcome, Option<Link<NodeHeader>>), IndexError> {
        let (domain, node) = (self.domain(), place.node);
        if let Some(found) = place.found.filter(|found| key.cmp_word(&self.pool, found.key).is_eq())
        {
            // Before the flush, which may be of the line of the lock.
            let held = node.header.lock.read(domain);
            let committed = if matches!(change, Change::Insert(_)) {
                Committed::nothing_to_do()
            } else {
                let visible = node.slots[found.slot].value.publish(domain, value);
                if domain.commits(mutants::RELEASED_BEFORE_PERSIST) {
                    self.release(node);
                    let committed = visible.persist();
                    return Ok((Outcome { previous: Some(found.value), committed }, None));
                }
                visible.persist()
            };
            node.header.lock.unlock_unchanged(domain, held);
            return Ok((Outcome { previous: Some(found.value), committed }, None));
        }
        if matches!(change, Change::Update(_)) {
            self.release(node);
            let committed = Committed::nothing_to_do();
            return Ok((Outcome { previous: None, committed }, None));
        }
        let count = node.count(domain);
        let word = key.make_word(&self.pool)?;
        let entry = (word.bits(), value);
        let (committed, fresh) = if count < node.slots.len() {
            let position = place.position();
            let (committed, held) = node.insert_at(domain, position, count, entry, !K::INLINE);
            self.release_from(node, held);
            (committed, None)
        } else {
            let (committed, fresh) = self.split(node, place.position(), entry, Some(key))?;
            (committed, Some(fresh))
        };
        // The shift has stored it, and fenced before the store that made it count (I8).
        word.release();
        Ok((Outcome { previous: None, committed }, fresh))
    }

    /// Splits a full, locked node and puts an entry at `position` of what it was. Returns the new
    /// sibling, which is not in the parent yet. Gives the lock back, except on error.
    ///
    /// `leaf_key`: the entry's key, in leaves; its block has been flushed and not yet fenced.
    #[cold]
    fn split(
        &self,
        node: Node<'_>,
        position: usize,
        entry: (u64, u64),
        leaf_key: Option<&K>,
    ) -> Result<(Committed, Link<NodeHeader>), IndexError> {
        let domain = self.domain();
        let count = node.slots.len();
        let sibling = node.sibling(domain);
        // Keys that arrive in ascending order leave full nodes behind.
        let at_end = position == count && sibling.link().is_null();
        let key_alone = leaf_key.filter(|_| at_end);
        let middle = match key_alone {
            Some(_) => count,
            None if at_end => count - 1,
            None => count / 2,
        };
        domain.happens(match (leaf_key, at_end) {
            (Some(_), false) => "split of a leaf",
            (Some(_), true) => "a new leaf behind a full one",
            (None, _) => "split of an inner node",
        });
        // I7: a leaf owns a copy of its low key; an inner node shares that of its leftmost leaf.
        let mut own_low = None;
        let low = match (key_alone, leaf_key) {
            (Some(key), _) => own_low.insert(key.make_word(&self.pool)?).bits(),
            (None, None) => node.slots[middle].key.load(domain),
            (None, Some(_)) => {
                let word = node.slots[middle].key.load(domain);
                let copy = K::with_word(&self.pool, word, |key| key.make_word(&self.pool));
                let damaged = || IndexError::Damaged { what: "a key word is no key".into() };
                own_low.insert(copy.ok_or_else(damaged)??).bits()
            }
        };
        let (first, leftmost) = match leaf_key {
            Some(_) => (middle, Link::NULL),
            None => (middle + 1, Link::from_bits(node.slots[middle].value.load(domain))),
        };
        let moved = node.slots[first.min(count)..].iter();
        let mut entries: Vec<(u64, u64)> =
            moved.map(|slot| (slot.key.load(domain), slot.value.load(domain))).collect();
        if key_alone.is_some() {
            entries.push(entry);
        }
        let right = SiblingWord::new(sibling.link(), sibling.level(), entries.is_empty());
        let new = self.build(leftmost, right, low, &entries, true)?;
        let fresh = self.node(new.link());
        // I1: the new node, its low key and the entry's key are durable before they are reachable.
        let new = self.pool.fence((new, own_low));
        // The split: from here the upper half belongs to the new node (I5). It stays locked until
        // this is durable, or its entries could be acknowledged and then lost with it.
        let linked = {
            let _mutant = domain.omitting(mutants::INSERT_THROUGH_UNPERSISTED_POINTER);
            let word = sibling.with_link(fresh.link).0;
            node.header.sibling.publish_word(domain, new, |_| word).persist()
        };
        let committed = if key_alone.is_some() {
            linked
        } else {
            node.truncate(domain, middle, count);
            // Whichever node the entry goes to, the insertion's fence comes before both locks are
            // given back, and completes the truncation too.
            let inserted = if position <= middle {
                node.insert_at(domain, position, middle, entry, false)
            } else {
                fresh.insert_at(domain, position - first, entries.len(), entry, false)
            };
            inserted.0
        };
        self.release_changed(fresh);
        self.release_changed(node);
        Ok((committed, fresh.link))
    }

    /// Allocates, writes and flushes a node that nobody can reach; the caller fences.
    #[track_caller]
    pub(super) fn build(
        &self,
        leftmost: Link<NodeHeader>,
        sibling: SiblingWord,
        low: u64,
        entries: &[(u64, u64)],
        locked: bool,
    ) -> Result<Owned<'_, D, NodeHeader, InFlight>, IndexError> {
        build(&self.pool, self.node_bytes, leftmost, sibling, low, entries, |node| {
            node.lock.init(self.domain(), self.generation, RIGHTWARD);
            if locked {
                // Before the flush: a locked instruction after it would do the caller's fence (R5).
                node.lock.lock(self.domain(), self.generation);
            }
        })
    }

    /// Sees to it that a node reached over a sibling link is in its parent, or, if it is empty,
    /// nowhere. What is missing for that (room for a node) is left to the next writer who comes by:
    /// the tree is correct without it.
    pub(super) fn adopt(&self, link: Link<NodeHeader>, guard: &Guard<'_, D>) {
        let mut pending = vec![link];
        while let Some(link) = pending.pop() {
            let node = self.node(link);
            if node.sibling(self.domain()).is_deleted() || node.low(self.domain()) == 0 {
                continue;
            }
            if node.count(self.domain()) == 0 {
                self.unlink(node, &mut pending, guard);
            } else {
                self.enter_in_parent(node);
            }
        }
    }

    /// Inserts the separator of `child` one level up, and those of the nodes that this splits.
    fn enter_in_parent<'a>(&'a self, mut child: Node<'a>) {
        loop {
            let low = child.low(self.domain());
            let entered = K::with_word(&self.pool, low, |key| self.insert_separator(child, key));
            match entered {
                Some(Ok(Some(fresh))) => child = self.node(fresh),
                _ => return,
            }
        }
    }

    /// Returns the new inner node if one was split.
    fn insert_separator(
        &self,
        child: Node<'_>,
        key: &K,
    ) -> Result<Option<Link<NodeHeader>>, IndexError> {
        let domain = self.domain();
        let level = child.level(domain) + 1;
        loop {
            let Some(place) = self.lock_covering(level, key) else {
                if self.grow(child)? {
                    return Ok(None);
                }
                continue;
            };
            let parent = place.node;
            // I6: who unlinks the child holds this parent's lock meanwhile.
            let unneeded = child.sibling(domain).is_deleted()
                || match place.found {
                    Some(found) => key.cmp_word(&self.pool, found.key).is_eq(),
                    None => parent.leftmost(domain) == child.link,
                };
            if unneeded {
                self.release(parent);
                return Ok(None);
            }
            let count = parent.count(domain);
            let entry = (child.low(domain), child.link.bits());
            if count < parent.slots.len() {
                let (_, held) = parent.insert_at(domain, place.position(), count, entry, false);
                self.release_from(parent, held);
                return Ok(None);
            }
            let split = self.split(parent, place.position(), entry, None);
            let (_, fresh) = split.inspect_err(|_| self.release(parent))?;
            return Ok(Some(fresh));
        }
    }

    /// Puts a new root above the top level, over its leftmost node and `child`. Returns whether
    /// `child` has been seen to; if not, the tree has another height by now.
    #[cold]
    fn grow(&self, child: Node<'_>) -> Result<bool, IndexError> {
        let domain = self.domain();
        let top = self.top();
        self.lock(top);
        if child.sibling(domain).is_deleted() {
            self.release(top);
            return Ok(true);
        }
        // Only the holder of the top node's lock replaces it.
        let level = top.level(domain);
        if self.top().link != top.link || level != child.level(domain) {
            self.release(top);
            return Ok(false);
        }
        let word = SiblingWord::new(Link::NULL, level + 1, false);
        let entry = (child.low(domain), child.link.bits());
        let root =
            self.build(top.link, word, 0, &[entry], false).inspect_err(|_| self.release(top))?;
        domain.happens(if level == 0 { "a root above leaves" } else { "a root above inner nodes" });
        // I1.
        let root = self.pool.fence(root);
        // I12. Contents do not depend on it, the height of the tree after a crash does: so this
        // thread's next fence is early enough.
        let top_word = self.root().top.word();
        let _later = top_word.publish_word(domain, root, |root| root.link().bits()).flush();
        self.release(top);
        Ok(true)
    }

    #[cold]
    fn no_leaves() -> IndexError {
        IndexError::Damaged { what: "its root is below the leaves".into() }
    }
}

/// See [`FastFair::build`]; `init` sets what only an open index knows.
#[track_caller]
pub(super) fn build<'p, D: Domain>(
    pool: &'p lapis_pmem::Pool<D>,
    node_bytes: usize,
    leftmost: Link<NodeHeader>,
    sibling: SiblingWord,
    low: u64,
    entries: &[(u64, u64)],
    init: impl FnOnce(&NodeHeader),
) -> Result<Owned<'p, D, NodeHeader, InFlight>, IndexError> {
    const { assert!(size_of::<Entry>() == 16) };
    let domain = pool.domain();
    let mut fresh = pool.allocate_with_tail::<NodeHeader>(node_bytes - HEADER_BYTES)?;
    fresh.leftmost.store(domain, leftmost.bits());
    fresh.sibling.store(domain, sibling.0);
    init(&fresh);
    fresh.low.store(domain, low);
    let mut tail = [0u8; LARGEST_NODE_BYTES];
    let slots = &mut tail[domain.padding_bytes()..];
    for (bytes, &(key, value)) in slots.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        bytes[..8].copy_from_slice(&key.to_ne_bytes());
        bytes[8..].copy_from_slice(&value.to_ne_bytes());
    }
    fresh.write_tail(0, &tail[..node_bytes - HEADER_BYTES]);
    // The least key is the first of roots, of the first leaf among them.
    let _mutant = (low == 0).then(|| domain.omitting(mutants::UNFLUSHED_ROOT));
    let in_part = domain.commits(mutants::NODE_FLUSHED_IN_PART);
    let flushed = if in_part { node_bytes.min(256) } else { fresh.block_bytes() };
    Ok(fresh.flush_first(flushed))
}
