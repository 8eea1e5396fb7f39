//! Nodes with long chains: consolidated, divided, and made known to the level above.

use lapis_pmem::{Committed, Domain};

use super::change::NewDelta;
use super::contents::Contents;
use super::descent::{Purpose, Stop};
use super::record::{Delta, Kind};
use super::{PBwTree, Top, mutants};
use crate::index::IndexError;
use crate::key::{IndexKey, KeyWord};
use crate::radix::damaged;

/// Attempts to make a node known that others are in the way of: whoever comes upon it tries again.
const ATTEMPTS: u32 = 100;

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// Divides a node, or consolidates it and looks whether it is to be merged. The caller has not pinned
    /// the pool.
    #[cold]
    pub(super) fn restructure(&self, id: u64) -> Result<(), IndexError> {
        let meta = {
            let _pinned = self.handle.pool.pin();
            self.newest(id).map(|it| it.meta)
        };
        let Some(meta) = meta else { return Ok(()) };
        self.refill_reserve();
        if self.geometry.divides(meta.count()) {
            return match self.divide(id, meta.count())? {
                Some(right) => self.post(id, right),
                None => Ok(()),
            };
        }
        self.consolidate(id)?;
        if meta.count() <= self.geometry.capacity / 2 { self.tidy(id) } else { Ok(()) }
    }

    /// Replaces a chain by a base node.
    fn consolidate(&self, id: u64) -> Result<(), IndexError> {
        let pool = &self.handle.pool;
        let block = self.base_block(0)?;
        let pinned = pool.pin();
        let Some(head) = self.mapping.head(id) else { return Ok(()) };
        let node = self.read(head)?;
        if !node.is_open() || node.meta.depth() == 0 || self.geometry.divides(node.entries.len()) {
            return Ok(());
        }
        pool.domain().happens(match node.meta.is_leaf() {
            true => "a leaf is consolidated",
            false => "an inner node is consolidated",
        });
        if let Some(committed) = self.replace(id, &node, &node, block) {
            self.retire_chain(&node, committed, &pinned);
        }
        Ok(())
    }

    /// Where a node of so many entries is divided.
    fn middle(node: &Contents) -> usize {
        node.entries.len() / 2
    }

    /// Divides a node of about so many entries: the upper half of them gets an id. None if others were in
    /// the way.
    pub(super) fn divide(&self, id: u64, count: usize) -> Result<Option<u64>, IndexError> {
        let pool = &self.handle.pool;
        let domain = pool.domain();
        let half = count / 2;
        let blocks = [self.base_block(half)?, self.base_block(count - half)?];
        let (right, place) = self.mapping.take_id()?;
        let given_up = || self.mapping.give_up(right);
        // A leaf has its least key for itself.
        let own_low = match self.make_low(id) {
            Ok(low) => low,
            Err(error) => {
                given_up();
                return Err(error);
            }
        };
        let pinned = pool.pin();
        let node = match self.mapping.head(id).map(|head| self.read(head)) {
            Some(Ok(node)) if node.is_open() && self.geometry.divides(node.entries.len()) => node,
            other => {
                given_up();
                return other.map_or(Ok(None), |it| it.map(|_| None));
            }
        };
        let middle = Self::middle(&node);
        let (middle, low) = match own_low.filter(|_| node.meta.is_leaf()) {
            Some(low) => match node.position(self, low.bits()) {
                Ok(at) | Err(at) => (at, low),
            },
            None if K::INLINE || !node.meta.is_leaf() => {
                (middle, KeyWord::again(node.entries[middle].0))
            }
            None => (0, KeyWord::again(0)),
        };
        let (lower, upper) = node.entries.split_at(middle);
        let fit = self.geometry.is_for(&blocks[0], lower.len())
            && self.geometry.is_for(&blocks[1], upper.len());
        if lower.is_empty() || upper.is_empty() || !fit {
            given_up();
            return Ok(None);
        }
        domain.happens(match node.meta.is_leaf() {
            true => "a leaf is divided",
            false => "an inner node is divided",
        });
        let [lower_block, upper_block] = blocks;
        let border = Some(low.bits());
        let upper = Contents { low: border, entries: upper.to_vec(), ..node.clone() };
        let lower = Contents { high: border, right, entries: lower.to_vec(), ..node.clone() };
        let upper = upper.write(upper_block);
        // Nobody can come by the id yet. It and what it leads to are durable before somebody can.
        let cell = pool.at(place);
        cell.store_ordered(domain, upper.link().bits());
        {
            let _mutant = domain.omitting(mutants::MISSING_WORD_FLUSH);
            domain.flush(cell);
        }
        let new = pool.fence((lower.write(lower_block), upper, low));
        let committed = self.mapping.place(id).and_then(|place| {
            let _mutant = domain.omitting(mutants::POST_BEFORE_SPLIT);
            self.exchange(place, node.head.bits(), new, |(lower, ..)| lower.link().bits())
        });
        if let Some(committed) = committed {
            self.retire_chain(&node, committed, &pinned);
        }
        drop(pinned);
        if committed.is_none() {
            given_up();
        }
        Ok(committed.map(|_| right))
    }

    /// A copy of the middle key of a leaf, if it is one and keys are not in their words.
    fn make_low(&self, id: u64) -> Result<Option<KeyWord<'_, D>>, IndexError> {
        if K::INLINE {
            return Ok(None);
        }
        let pool = &self.handle.pool;
        let key = {
            let _pinned = pool.pin();
            let Some(head) = self.mapping.head(id) else { return Ok(None) };
            let node = self.read(head)?;
            match node.entries.get(Self::middle(&node)) {
                Some(&(word, _)) if node.meta.is_leaf() => K::with_word(pool, word, K::to_buf),
                _ => return Ok(None),
            }
        };
        let key = key.ok_or_else(|| damaged("a key is gone"))?;
        Ok(Some(K::borrow(&key).make_word(pool)?))
    }

    /// Makes the right neighbour of a node known to the level above. The caller has not pinned the pool.
    #[cold]
    pub(super) fn post(&self, left: u64, right: u64) -> Result<(), IndexError> {
        for _ in 0..ATTEMPTS {
            if self.try_post(left, right)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether `right` is still the right neighbour of `left`: the level of both, and the key between.
    fn still_right(&self, left: u64, right: u64) -> Option<(u8, u64)> {
        let record = self.newest(left)?;
        let (found, key) = self.border(record)?;
        (found == right).then_some((record.meta.level(), key))
    }

    /// False if others were in the way.
    fn try_post(&self, left: u64, right: u64) -> Result<bool, IndexError> {
        let pool = &self.handle.pool;
        let block = pool.allocate::<Delta>()?;
        let pinned = pool.pin();
        let Some((level, key)) = self.still_right(left, right) else { return Ok(true) };
        let top = self.top();
        let admits = |word| K::cmp_words(pool, word, key).is_le();
        let above = match self.find(level + 1, admits, Purpose::Changing) {
            Ok(above) => above,
            Err(Stop::Lower) => {
                drop((pinned, block));
                return self.grow(top, left, right);
            }
            Err(stop) => {
                drop(pinned);
                return self.finish(stop).map(|()| false);
            }
        };
        let node = self.read(above.record.link)?;
        let begins = node.low.is_some_and(|low| K::cmp_words(pool, low, key).is_eq());
        if begins || node.position(self, key).is_ok() {
            return Ok(true);
        }
        if self.geometry.is_full(node.meta, true) {
            let id = above.id;
            drop(pinned);
            return self.restructure(id).map(|()| false);
        }
        // It was there after the node above was read. A merge would have to change that first.
        let is_there = self.still_right(left, right) == Some((level, key));
        if !node.is_open() || !is_there && !pool.domain().commits(mutants::KNOWN_LATE) {
            return Ok(false);
        }
        pool.domain().happens("a node gets to be known to the level above");
        let count = node.entries.len() + 1;
        let new = NewDelta { block, kind: Kind::Put, count, key, value: right };
        if self.put_in_front(above.id, &above.record, new, (), &pinned).is_none() {
            return Ok(false);
        }
        let (id, is_long) = (above.id, node.meta.depth() + 1 >= self.geometry.chain);
        let passed = above.passed;
        drop(pinned);
        if is_long {
            self.restructure(id)?;
        }
        match passed {
            Some((left, right)) => self.post(left, right).map(|()| true),
            None => Ok(true),
        }
    }

    /// Puts a node above the top and its right neighbour.
    fn grow(&self, top: Top, left: u64, right: u64) -> Result<bool, IndexError> {
        let pool = &self.handle.pool;
        let domain = pool.domain();
        let block = self.base_block(0)?;
        let (id, place) = self.mapping.take_id()?;
        let pinned = pool.pin();
        // The top was this before: if it is the same now, it has been all the time.
        let Some((level, key)) = self.still_right(left, right).filter(|_| top.id() == left) else {
            self.mapping.give_up(id);
            return Ok(true);
        };
        let node = Contents::alone(level + 1, vec![(0, left), (key, right)]);
        domain.happens("the tree gets a new top");
        let base = node.write(block);
        let cell = pool.at(place);
        cell.store_ordered(domain, base.link().bits());
        {
            let _mutant = domain.omitting(mutants::MISSING_WORD_FLUSH);
            domain.flush(cell);
        }
        let base = pool.fence(base);
        let committed: Option<Committed> =
            self.exchange(self.handle.top, top.0, base, |_| top.followed_by(id).0);
        drop(pinned);
        if committed.is_none() {
            self.mapping.give_up(id);
        }
        Ok(committed.is_some())
    }
}
