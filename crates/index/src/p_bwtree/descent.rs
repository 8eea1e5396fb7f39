//! The way down the tree.

use std::cmp::Ordering;

use lapis_pmem::{Domain, Link};

use super::record::{Base, Body, Delta, Entry, Kind, Meta, Record};
use super::{PBwTree, Top};
use crate::key::IndexKey;
use crate::radix::damaged_word;

/// Nodes looked at on one way before it must be a circle: each step beyond the height stands for a change
/// that somebody has finished meanwhile.
const MOST_STEPS: u32 = 1 << 14;

/// What is done with what others have not finished.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is looked through.
    Reading,
    /// It is finished first.
    Changing,
}

/// Why a walk has ended elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// A merge of this node's children, or the removal of this top, is to be finished first.
    Unfinished(u64),
    /// The tree is lower.
    Lower,
}

/// A node that a walk has come to.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'t> {
    pub id: u64,
    pub record: Record<'t>,
    /// The node from which the walk has gone to the right last, and the one that it went to: perhaps no
    /// parent knows of that one.
    pub passed: Option<(u64, u64)>,
}

impl Arrival<'_> {
    pub fn meta(&self) -> Meta {
        self.record.meta
    }
}

/// What a leaf says of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Its word and value.
    Present(u64, u64),
    Absent,
    /// It belongs to this node.
    Right(u64),
}

impl Found {
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Present(_, value) => Some(value),
            _ => None,
        }
    }
}

/// Where an inner node leads.
enum Way {
    Child(u64),
    Right(u64),
}

#[cold]
#[inline(never)]
fn goes_in_circles() -> ! {
    panic!("the index is damaged: the way through the tree does not end")
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// The record at `link`.
    ///
    /// # Panics
    /// If there cannot be one: the pool is damaged.
    #[inline(always)]
    fn record_at(&self, link: Link<Delta>) -> Record<'_> {
        Record::at(&self.handle.pool, link).unwrap_or_else(|| damaged_word(link.bits()))
    }

    /// The record behind a delta.
    #[inline(always)]
    fn behind<'t>(&'t self, record: &Record<'t>, delta: &Delta) -> Record<'t> {
        record.next(&self.handle.pool, delta).unwrap_or_else(|| damaged_word(record.link.bits()))
    }

    #[inline(always)]
    fn word(&self, cell: &lapis_pmem::PCell<u64>) -> u64 {
        cell.load(self.handle.pool.domain())
    }

    pub(super) fn top(&self) -> Top {
        Top(self.handle.pool.at(self.handle.top).load_acquire(self.handle.pool.domain()))
    }

    /// The newest record of a node; none if it is gone.
    #[inline(always)]
    pub(super) fn newest(&self, id: u64) -> Option<Record<'_>> {
        self.mapping.head(id).map(|head| self.record_at(head))
    }

    /// Goes down to the node of a level that leads to the last key that `admits` accepts, or to one
    /// from which it is reached to the right. The caller has pinned the pool.
    #[inline]
    fn descend(
        &self,
        level: u8,
        admits: impl Fn(u64) -> bool + Copy,
        purpose: Purpose,
    ) -> Result<Arrival<'_>, Stop> {
        let mut steps = 0;
        'again: loop {
            let top = self.top().id();
            let (mut id, mut parent, mut passed, mut expected) = (top, None, None, None);
            loop {
                steps += 1;
                if steps > MOST_STEPS {
                    goes_in_circles();
                }
                let Some(record) = self.newest(id) else { continue 'again };
                let at = record.meta.level();
                if expected.is_some_and(|expected| expected != at) {
                    continue 'again;
                }
                match (record.kind, purpose, parent) {
                    // Its entries may have gone to its left neighbour. If they had not when that was read, they
                    // are still here.
                    (Kind::Removed, Purpose::Reading, Some(above)) => {
                        let Some(left) = self.left_of(above, id) else { continue 'again };
                        // It may have been merged itself since, and then it is looked through.
                        (id, parent, passed) = (left, None, None);
                        continue;
                    }
                    (Kind::Removed, Purpose::Changing, Some(above)) => {
                        return Err(Stop::Unfinished(above));
                    }
                    (Kind::Removed, Purpose::Changing, None) if id == top => {
                        return Err(Stop::Unfinished(top));
                    }
                    (Kind::Merging, Purpose::Changing, _) => return Err(Stop::Unfinished(id)),
                    _ => {}
                }
                if at <= level {
                    if at < level {
                        return Err(Stop::Lower);
                    }
                    return Ok(Arrival { id, record, passed });
                }
                match self.way(record, admits) {
                    Way::Child(child) => {
                        (parent, expected) = (Some(id), Some(at - 1));
                        id = child;
                    }
                    Way::Right(right) => {
                        (parent, expected, passed) = (None, Some(at), Some((id, right)));
                        id = right;
                    }
                }
            }
        }
    }

    /// The child before `child` in a node; none if it is not there any more.
    #[cold]
    fn left_of(&self, parent: u64, child: u64) -> Option<u64> {
        let node = self.read(self.mapping.head(parent)?).ok()?;
        let at = node.position_of_child(child)?.checked_sub(1)?;
        Some(node.entries[at].1)
    }

    /// Where an inner node leads whoever looks for the last key that `admits` accepts.
    #[inline]
    fn way(&self, head: Record<'_>, admits: impl Fn(u64) -> bool) -> Way {
        let pool = &self.handle.pool;
        let mut record = head;
        // The greatest separator of a delta that is admitted.
        let mut best: Option<(u64, u64)> = None;
        let (base, entries) = loop {
            let delta = match record.body {
                Body::Delta(delta) => delta,
                Body::Base(base, entries) => break (base, entries),
            };
            if record.kind == Kind::Put {
                let key = self.word(&delta.key);
                let is_greater = |(best, _)| K::cmp_words(pool, key, best) == Ordering::Greater;
                if admits(key) && best.is_none_or(is_greater) {
                    best = Some((key, self.word(&delta.value)));
                }
            }
            record = self.behind(&record, delta);
        };
        let right = self.word(&base.right);
        if right != 0 && admits(self.word(&base.high)) {
            return Way::Right(right);
        }
        let Some((first, others)) = entries.split_first() else { damaged_word(record.link.bits()) };
        let at = others.partition_point(|entry| admits(self.word(&entry.key)));
        let floor = at.checked_sub(1).map(|at| &others[at]);
        Way::Child(match (best, floor) {
            (Some((key, child)), Some(floor))
                if K::cmp_words(pool, key, self.word(&floor.key)) == Ordering::Greater =>
            {
                child
            }
            (_, Some(floor)) => self.word(&floor.value),
            (Some((_, child)), None) => child,
            (None, None) => self.word(&first.value),
        })
    }

    /// The node to the right and the least key there, if there is one.
    pub(super) fn border(&self, head: Record<'_>) -> Option<(u64, u64)> {
        let base = self.base_of(head);
        let right = self.word(&base.right);
        (right != 0).then(|| (right, self.word(&base.high)))
    }

    /// The base node at the end of a chain.
    fn base_of<'t>(&'t self, mut record: Record<'t>) -> &'t Base {
        loop {
            match record.body {
                Body::Delta(delta) => record = self.behind(&record, delta),
                Body::Base(base, _) => return base,
            }
        }
    }

    /// Goes to the right neighbour; false if that is gone.
    #[inline]
    fn go_right<'t>(&'t self, at: &mut Arrival<'t>, right: u64) -> bool {
        let Some(record) = self.newest(right).filter(|it| it.meta.level() == at.meta().level())
        else {
            return false;
        };
        *at = Arrival { id: right, record, passed: Some((at.id, right)) };
        true
    }

    /// The node of a level that leads to the last key that `admits` accepts. The caller has pinned the pool.
    pub(super) fn find(
        &self,
        level: u8,
        admits: impl Fn(u64) -> bool + Copy,
        purpose: Purpose,
    ) -> Result<Arrival<'_>, Stop> {
        let mut at = self.descend(level, admits, purpose)?;
        let mut steps = 0;
        while let Some((right, _)) = self.border(at.record).filter(|&(_, low)| admits(low)) {
            steps += 1;
            if steps > MOST_STEPS {
                goes_in_circles();
            }
            if !self.go_right(&mut at, right) {
                at = self.descend(level, admits, purpose)?;
            }
        }
        Ok(at)
    }

    /// The leaf of `key`, and what it says; from `near` on, if that is not behind it. The caller has
    /// pinned the pool.
    #[inline]
    pub(super) fn seek(
        &self,
        key: &K,
        near: Option<u64>,
        purpose: Purpose,
    ) -> Result<(Arrival<'_>, Found), Stop> {
        let admits = |word| key.cmp_word(&self.handle.pool, word).is_ge();
        let tag = if K::INLINE { 0 } else { key.tag() };
        let mut at = match near.and_then(|near| self.near(near, admits)) {
            Some(at) => at,
            None => self.descend(0, admits, purpose)?,
        };
        let mut steps = 0;
        loop {
            match self.look_up(at.record, key, tag) {
                Found::Right(right) => {
                    steps += 1;
                    if steps > MOST_STEPS {
                        goes_in_circles();
                    }
                    if !self.go_right(&mut at, right) {
                        at = self.descend(0, admits, purpose)?;
                    }
                }
                found => return Ok((at, found)),
            }
        }
    }

    /// A leaf that may have been something else for a while, if it is one and does not begin behind the key.
    fn near(&self, id: u64, admits: impl Fn(u64) -> bool) -> Option<Arrival<'_>> {
        let head = self.newest(id).filter(|it| it.meta.is_leaf() && it.kind != Kind::Removed)?;
        let begins = !head.meta.has_low() || admits(self.word(&self.base_of(head).low));
        begins.then_some(Arrival { id, record: head, passed: None })
    }

    /// What a leaf says of a key. `tag` is that of the key.
    #[inline]
    fn look_up(&self, head: Record<'_>, key: &K, tag: u64) -> Found {
        let pool = &self.handle.pool;
        let mut record = head;
        loop {
            let delta = match record.body {
                Body::Delta(delta) => delta,
                Body::Base(base, entries) => {
                    let right = self.word(&base.right);
                    if right != 0 && key.cmp_word(pool, self.word(&base.high)).is_ge() {
                        return Found::Right(right);
                    }
                    let order = |entry: &Entry| key.cmp_word(pool, self.word(&entry.key)).reverse();
                    return entries.binary_search_by(order).map_or(Found::Absent, |at| {
                        Found::Present(self.word(&entries[at].key), self.word(&entries[at].value))
                    });
                }
            };
            let is_of_key = || key.eq_word(pool, tag, self.word(&delta.key));
            match record.kind {
                Kind::Put if is_of_key() => {
                    return Found::Present(self.word(&delta.key), self.word(&delta.value));
                }
                Kind::Delete if is_of_key() => return Found::Absent,
                _ => {}
            }
            record = self.behind(&record, delta);
        }
    }
}
