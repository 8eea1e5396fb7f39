//! The way down the tree.

use std::cmp::Ordering;

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, LINE_BYTES, Link};

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

/// A walk down: the node that it has come to.
struct Walk {
    /// Where it began.
    top: u64,
    id: u64,
    parent: Option<u64>,
    passed: Option<(u64, u64)>,
    /// The level that the node has.
    expected: Option<u8>,
    steps: u32,
}

impl Walk {
    #[inline(always)]
    fn from(top: u64) -> Self {
        Self { top, id: top, parent: None, passed: None, expected: None, steps: 0 }
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
        let mut walk = Walk::from(self.top().id());
        loop {
            if let Some(arrival) = self.pass(&mut walk, level, admits, purpose)? {
                return Ok(arrival);
            }
        }
    }

    /// Looks at the node that a walk has come to, and goes on to the next if it is not the one.
    #[inline(always)]
    fn pass(
        &self,
        walk: &mut Walk,
        level: u8,
        admits: impl Fn(u64) -> bool + Copy,
        purpose: Purpose,
    ) -> Result<Option<Arrival<'_>>, Stop> {
        walk.steps += 1;
        if walk.steps > MOST_STEPS {
            goes_in_circles();
        }
        let id = walk.id;
        let Some(record) = self.newest(id) else { return Ok(self.again(walk)) };
        let at = record.meta.level();
        // Only where the index is damaged: while the pool is pinned, no other node gets the id (B8).
        if walk.expected.is_some_and(|expected| expected != at) {
            return Ok(self.again(walk));
        }
        match (record.kind, purpose, walk.parent) {
            // Its entries may have gone to its left neighbour. If they had not when that was read, they
            // are still here.
            (Kind::Removed, Purpose::Reading, Some(above)) => {
                let Some(left) = self.left_of(above, id) else { return Ok(self.again(walk)) };
                // It may have been merged itself since, and then it is looked through.
                (walk.id, walk.parent, walk.passed) = (left, None, None);
                return Ok(None);
            }
            (Kind::Removed, Purpose::Changing, Some(above)) => {
                return Err(Stop::Unfinished(above));
            }
            (Kind::Removed, Purpose::Changing, None) if id == walk.top => {
                return Err(Stop::Unfinished(id));
            }
            (Kind::Merging, Purpose::Changing, _) => return Err(Stop::Unfinished(id)),
            _ => {}
        }
        if at <= level {
            if at < level {
                return Err(Stop::Lower);
            }
            return Ok(Some(Arrival { id, record, passed: walk.passed }));
        }
        match self.way(record, admits) {
            Way::Child(child) => {
                (walk.parent, walk.expected) = (Some(id), Some(at - 1));
                walk.id = child;
            }
            Way::Right(right) => {
                (walk.parent, walk.expected, walk.passed) = (None, Some(at), Some((id, right)));
                walk.id = right;
            }
        }
        Ok(None)
    }

    /// A walk that begins anew. The steps count on.
    #[cold]
    fn again<'t>(&self, walk: &mut Walk) -> Option<Arrival<'t>> {
        *walk = Walk { steps: walk.steps, ..Walk::from(self.top().id()) };
        None
    }

    /// The value of `key`, in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let admits = |word| key.cmp_word(&self.handle.pool, word).is_ge();
        let mut walk = Walk::from(self.top().id());
        let arrival = loop {
            self.fetch(walk.id, turn).await;
            match self.pass(&mut walk, 0, admits, Purpose::Reading) {
                Ok(None) => {}
                Ok(Some(arrival)) => break Some(arrival),
                Err(_) => break None,
            }
        };
        let found = arrival.map(|arrival| self.seek_from(arrival, key, Purpose::Reading));
        self.handle.persist_before_return();
        found?.ok().and_then(|(_, found)| found.value())
    }

    /// Has all of a node on its way to the caches, giving way before each record that it must read for that. Only
    /// a hint: what is read here counts for nothing.
    async fn fetch(&self, id: u64, turn: Turn<'_, D>) {
        let pool = &self.handle.pool;
        let Some(mut link) = self.mapping.head(id) else { return };
        let mut most_deltas = usize::MAX;
        loop {
            pool.prefetch(link);
            turn.give_way().await;
            // A chain that does not get shorter is damaged.
            let record = Record::at(pool, link).filter(|it| it.meta.depth() < most_deltas);
            let Some(record) = record else { return };
            most_deltas = record.meta.depth();
            match record.body {
                Body::Delta(delta) => link = Link::from_bits(self.word(&delta.next)),
                Body::Base(_, entries) => {
                    self.prefetch(entries);
                    return turn.give_way().await;
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

    /// Has these on their way to the caches.
    #[inline(always)]
    fn prefetch(&self, entries: &[Entry]) {
        let domain = self.handle.pool.domain();
        if domain.prefetches() {
            for line in entries.chunks(LINE_BYTES / size_of::<Entry>()) {
                domain.prefetch(line.as_ptr().cast());
            }
        }
    }

    /// The quarter of the entries in which a search ends, and where it begins; `is_before` says of an entry that the search
    /// does not end before it. Its lines are on their way to the caches at once: a binary search would ask for them one
    /// after the other. All of a node would be more than many workers' modules can read in the time, and what is read drives
    /// half-filled XPLines out of their buffers.
    #[inline(always)]
    fn quarter<'e>(
        &self,
        entries: &'e [Entry],
        is_before: impl Fn(&Entry) -> bool,
    ) -> (usize, &'e [Entry]) {
        let (mut start, mut part) = (0, entries);
        for _ in 0..2 {
            let middle = part.len() / 2;
            let (before, behind) = part.split_at(middle);
            match behind.first() {
                Some(entry) if is_before(entry) => (start, part) = (start + middle, behind),
                _ => part = before,
            }
        }
        self.prefetch(part);
        (start, part)
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
                for change in record.changes_of(delta).iter().rev() {
                    let key = self.word(&change.key);
                    let is_greater = |(best, _)| K::cmp_words(pool, key, best) == Ordering::Greater;
                    if admits(key) && best.is_none_or(is_greater) {
                        best = Some((key, self.word(&change.value)));
                    }
                }
            }
            record = self.behind(&record, delta);
        };
        let right = self.word(&base.right);
        if right != 0 && admits(self.word(&base.high)) {
            return Way::Right(right);
        }
        let Some((first, others)) = entries.split_first() else { damaged_word(record.link.bits()) };
        let admitted = |entry: &Entry| admits(self.word(&entry.key));
        let (start, quarter) = self.quarter(others, admitted);
        let at = start + quarter.partition_point(admitted);
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

    /// Goes to the right neighbour; false if that is gone. It is of the same level unless the index is damaged, for B8 holds
    /// as on the way down.
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
        let at = match near.and_then(|near| self.near(near, admits)) {
            Some(at) => at,
            None => self.descend(0, admits, purpose)?,
        };
        self.seek_from(at, key, purpose)
    }

    /// As [`PBwTree::seek`], from a leaf that is not behind the key on.
    #[inline(always)]
    fn seek_from<'t>(
        &'t self,
        mut at: Arrival<'t>,
        key: &K,
        purpose: Purpose,
    ) -> Result<(Arrival<'t>, Found), Stop> {
        let admits = |word| key.cmp_word(&self.handle.pool, word).is_ge();
        let tag = if K::INLINE { 0 } else { key.tag() };
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

    /// A leaf that may have been something else for a while, if it is one and does not begin behind the key. Not a removed
    /// one: another thread may give its right neighbour's id back before its own. (On the modelled machine, where what was
    /// retired is given back together, nothing tells the difference: who would change a removed leaf begins anew, and an
    /// answer of it was true while its caller looked.)
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
                    let (_, quarter) = self.quarter(entries, |entry| order(entry).is_le());
                    return quarter.binary_search_by(order).map_or(Found::Absent, |at| {
                        Found::Present(self.word(&quarter[at].key), self.word(&quarter[at].value))
                    });
                }
            };
            if matches!(record.kind, Kind::Put | Kind::Delete) {
                let mut newest_first = record.changes_of(delta).iter().rev();
                if let Some(change) =
                    newest_first.find(|it| key.eq_word(pool, tag, self.word(&it.key)))
                {
                    return match record.kind {
                        Kind::Delete => Found::Absent,
                        _ => Found::Present(self.word(&change.key), self.word(&change.value)),
                    };
                }
            }
            record = self.behind(&record, delta);
        }
    }
}
