//! Nodes that have become small: merged into their left neighbours, and tops above one node.

use lapis_pmem::{Committed, Domain};

use super::change::NewDelta;
use super::contents::Contents;
use super::descent::{Purpose, Stop};
use super::record::{Delta, Kind, Record};
use super::{PBwTree, mutants};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::damaged;

/// Nodes that are looked at for one that has become small, at most: the others are so another time.
const MOST_LOOKED_AT: usize = 1 << 10;
/// Attempts of one merge that others are in the way of.
const ATTEMPTS: u32 = 1 << 12;

/// What a step of a merge has come to.
pub(super) enum Step {
    /// There is nothing left to do.
    Done,
    /// Others were in the way, or have done it.
    Again,
    /// A block for a base node of so many entries is needed.
    Block(usize),
    /// This node is to be seen to first.
    First(u64),
    /// This was it. These nodes may be small now.
    Merged(Vec<u64>),
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// Merges a node with a neighbour if both together are small, and what becomes small by that. The
    /// caller has not pinned the pool.
    #[cold]
    pub(super) fn tidy(&self, id: u64) -> Result<(), IndexError> {
        let mut open = vec![id];
        for _ in 0..MOST_LOOKED_AT {
            let Some(id) = open.pop() else { break };
            if let Some(parent) = self.begin_merge(id)? {
                open.push(id);
                open.extend(self.complete(parent)?);
            }
        }
        Ok(())
    }

    /// Completes what has been begun at a node. The caller has not pinned the pool.
    pub(super) fn help(&self, id: u64) -> Result<(), IndexError> {
        self.handle.pool.domain().happens("a merge is completed for others");
        self.complete(id).map(drop)
    }

    /// Says in the parent that a node and one of its neighbours are to be one; which parent. None if
    /// nothing is to be done. A top above one node becomes obsolete instead.
    pub(super) fn begin_merge(&self, id: u64) -> Result<Option<u64>, IndexError> {
        let pool = &self.handle.pool;
        let block = pool.allocate::<Delta>()?;
        let pinned = pool.pin();
        let Some(record) = self.newest(id) else { return Ok(None) };
        let node = self.read(record.link)?;
        if !node.is_open() {
            return Ok(None);
        }
        if self.top().id() == id {
            let is_bare = !node.meta.is_leaf() && node.entries.len() == 1 && node.right == 0;
            if !is_bare {
                return Ok(None);
            }
            pool.domain().happens("a top above one node is removed");
            let new = NewDelta { block, kind: Kind::Removed, count: 1, key: 0, value: 0 };
            return Ok(self.put_in_front(id, &record, new, (), &pinned).map(|_| id));
        }
        let admits = |word| node.low.is_some_and(|low| K::cmp_words(pool, word, low).is_le());
        let above = match self.find(node.meta.level() + 1, admits, Purpose::Changing) {
            Ok(above) => above,
            Err(Stop::Unfinished(id)) => return Ok(Some(id)),
            Err(Stop::Lower) => return Ok(None),
        };
        let parent = self.read(above.record.link)?;
        let Some(at) = parent.position_of_child(id).filter(|_| parent.is_open()) else {
            return Ok(None);
        };
        let bare = usize::from(!node.meta.is_leaf());
        let count = |at: usize| {
            let child = self.newest(parent.entries.get(at)?.1)?;
            (child.kind != Kind::Removed).then_some(child.meta.count())
        };
        let joins = |left: usize| {
            let two = count(left).zip(count(left + 1));
            two.is_some_and(|(left, right)| self.geometry.joins(left, right, bare))
        };
        let left =
            at.checked_sub(1).filter(|&left| joins(left)).or(Some(at).filter(|&at| joins(at)));
        let Some(&(key, value)) = left.and_then(|left| parent.entries.get(left + 1)) else {
            return Ok(None);
        };
        if self.geometry.is_full(parent.meta, false) {
            let id = above.id;
            drop((pinned, block));
            return self.restructure(id).map(|()| Some(id));
        }
        pool.domain().happens(match node.meta.is_leaf() {
            true => "two leaves are to be merged",
            false => "two inner nodes are to be merged",
        });
        let count = parent.entries.len();
        let new = NewDelta { block, kind: Kind::Merging, count, key, value };
        Ok(self.put_in_front(above.id, &above.record, new, (), &pinned).map(|_| above.id))
    }

    /// Completes what has been begun at a node, and says which nodes may be small now.
    fn complete(&self, id: u64) -> Result<Vec<u64>, IndexError> {
        let mut entries = 0;
        for _ in 0..ATTEMPTS {
            match self.step(id, entries)? {
                Step::Done => return Ok(Vec::new()),
                Step::Merged(small) => return Ok(small),
                Step::Again => {}
                Step::Block(count) => entries = count,
                Step::First(other) => _ = self.complete(other)?,
            }
        }
        Err(damaged("a merge does not end"))
    }

    /// Takes the next step of what has been begun at a node, with a block for so many entries.
    pub(super) fn step(&self, id: u64, entries: usize) -> Result<Step, IndexError> {
        let pool = &self.handle.pool;
        let delta = pool.allocate::<Delta>()?;
        let block = self.base_block(entries)?;
        let pinned = pool.pin();
        let Some(record) = self.newest(id) else { return Ok(Step::Done) };
        if record.kind == Kind::Removed {
            return self.replace_top(id, &record);
        }
        let parent = self.read(record.link)?;
        let Some((key, right_id)) = parent.merging.filter(|_| record.kind == Kind::Merging) else {
            return Ok(Step::Done);
        };
        let Some(newest) = self.newest(right_id) else { return Ok(Step::Again) };
        if newest.kind == Kind::Merging {
            return Ok(Step::First(right_id));
        }
        // Nothing changes it any more.
        if newest.kind != Kind::Removed && !pool.domain().commits(mutants::MERGED_WITHOUT_REMOVAL) {
            let count = newest.meta.count();
            let new = NewDelta { block: delta, kind: Kind::Removed, count, key: 0, value: 0 };
            let _: Option<Committed> = self.put_in_front(right_id, &newest, new, (), &pinned);
            return Ok(Step::Again);
        }
        let right = self.read(newest.link)?;
        let at = parent.position(self, key).ok().and_then(|at| at.checked_sub(1));
        let at = at.ok_or_else(|| damaged("what is to be merged has no left neighbour"))?;
        let mut left_id = parent.entries[at].1;
        let left = loop {
            let Some(head) = self.mapping.head(left_id) else { return Ok(Step::Again) };
            let left = self.read(head)?;
            let is_beside = left.high.is_some_and(|high| K::cmp_words(pool, high, key).is_lt());
            if !is_beside {
                break left;
            }
            left_id = left.right;
        };
        if left.right == right_id {
            if left.kind == Kind::Merging {
                return Ok(Step::First(left_id));
            }
            let count = left.entries.len() + right.entries.len();
            if !self.geometry.is_for(&block, count) {
                return Ok(Step::Block(count));
            }
            pool.domain().happens(match count > self.geometry.capacity {
                true => "a node takes the entries of its right neighbour, more than fit",
                false => "a node takes the entries of its right neighbour",
            });
            let entries = [&left.entries[..], &right.entries].concat();
            let (high, right) = (right.high, right.right);
            let both = Contents { entries, high, right, ..left.clone() };
            if let Some(committed) = self.replace(left_id, &left, &both, block) {
                self.retire_chain(&left, committed, &pinned);
            }
            return Ok(Step::Again);
        }
        // The entries are in both. The separator goes, and the node with it.
        let mut rest = parent.clone();
        rest.entries.remove(at + 1);
        if !self.geometry.is_for(&block, rest.entries.len()) {
            return Ok(Step::Block(rest.entries.len()));
        }
        let Some(unlinked) = self.replace(id, &parent, &rest, block) else {
            return Ok(Step::Again);
        };
        self.retire_chain(&parent, unlinked, &pinned);
        let seam = (!right.meta.is_leaf()).then(|| right.entries.first().map(|it| it.1)).flatten();
        drop(pinned);
        self.free_removed(right_id, &right, unlinked)?;
        Ok(Step::Merged([seam, Some(left_id), Some(id)].into_iter().flatten().collect()))
    }

    /// Gives back a removed node that no other leads to, durably.
    fn free_removed(
        &self,
        id: u64,
        node: &Contents,
        unlinked: Committed,
    ) -> Result<(), IndexError> {
        let pool = &self.handle.pool;
        let pinned = pool.pin();
        self.retire_chain(node, unlinked, &pinned);
        drop(pinned);
        self.mapping.give_back(id, unlinked);
        let own_low = node.low.filter(|_| node.meta.is_leaf() && !K::INLINE);
        if let Some(low) = own_low {
            // Inner nodes above that had it as their least key have been merged, and perhaps not to the end: then separators
            // borrow it (B9). Where there is no room to end that, its block stays allocated until the pool is reclaimed,
            // which the next opening does.
            let admits = |word| K::cmp_words(pool, word, low).is_le();
            for _ in 0..ATTEMPTS {
                let pinned = pool.pin();
                let found = self.find(1, admits, Purpose::Changing).map(drop);
                drop(pinned);
                match found {
                    Err(stop @ Stop::Unfinished(_)) => {
                        self.finish(stop).inspect_err(|_| pool.abandon())?;
                    }
                    _ => break,
                }
            }
            K::retire_word(pool, low, unlinked, &pool.pin());
        }
        Ok(())
    }

    /// The one child of a removed top takes its place.
    fn replace_top(&self, id: u64, record: &Record<'_>) -> Result<Step, IndexError> {
        let top = self.top();
        if top.id() != id {
            return Ok(Step::Done);
        }
        let node = self.read(record.link)?;
        let &[(_, child)] = &node.entries[..] else {
            return Err(damaged("a removed top has several children"));
        };
        let Some(unlinked) =
            self.exchange(self.handle.top, top.0, (), |()| top.followed_by(child).0)
        else {
            return Ok(Step::Again);
        };
        self.free_removed(id, &node, unlinked)?;
        Ok(Step::Merged(vec![child]))
    }
}
