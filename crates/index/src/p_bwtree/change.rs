//! Insert, update and remove.

use lapis_pmem::{AllocError, Batch, Blocks, Committed, Dirty, Domain, Durable, Guard, Owned};

use super::contents::Contents;
use super::descent::{Found, Purpose, Stop};
use super::record::{Delta, Kind, Record};
use super::{PBwTree, mutants};
use crate::index::{Change, IndexError, Outcome};
use crate::key::{IndexKey, KeyWord};
use crate::radix::{Place, attempt_again, damaged};

/// What an attempt comes to: none if others have been there before.
pub type Attempt<T = Committed> = Result<Option<T>, IndexError>;

/// A delta that is to be written.
pub struct NewDelta<'p, D: Domain> {
    pub block: Owned<'p, D, Delta, Dirty>,
    pub kind: Kind,
    /// Entries of the node with it.
    pub count: usize,
    pub key: u64,
    pub value: u64,
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        match self.try_change(key, change) {
            Ok(Some(outcome)) => Ok(outcome),
            overtaken => {
                attempt_again(self.handle.pool.domain(), overtaken, || self.try_change(key, change))
            }
        }
    }

    /// Exchanges a word that others may exchange, too, and makes it durable, after all that was seen of
    /// their changes. The caller has pinned the pool. None if it is another.
    pub(super) fn exchange<B: Blocks<Durable>>(
        &self,
        place: Place,
        current: u64,
        new: B,
        word: impl FnOnce(&B) -> u64,
    ) -> Option<Committed> {
        self.handle.persist_before_return();
        self.handle.publish_if(place, current, new, word).ok()
    }

    /// Puts a delta in front of the newest record of a node, as found, or in its place with its changes, and makes it
    /// and `with` durable before. None if there is a newer one.
    pub(super) fn put_in_front<'p, B>(
        &'p self,
        id: u64,
        newest: &Record<'_>,
        new: NewDelta<'p, D>,
        with: B,
        pinned: &Guard<'_, D>,
    ) -> Option<Committed>
    where
        B: Batch,
        B::Durable: Blocks<Durable>,
    {
        let NewDelta { block, kind, count, key, value } = new;
        let pool = &self.handle.pool;
        let domain = pool.domain();
        let place = self.mapping.place(id)?;
        let (gathered, next) = match newest.gathers(kind) {
            Some(delta) => (newest.changes_of(delta), delta.next.load(domain)),
            None => (&[][..], newest.link.bits()),
        };
        block.meta.store(domain, newest.meta.changed(kind, gathered.len(), count).bits());
        block.next.store(domain, next);
        for (new, old) in block.changes.iter().zip(gathered) {
            new.key.store(domain, old.key.load(domain));
            new.value.store(domain, old.value.load(domain));
        }
        let change = &block.changes[gathered.len()];
        change.key.store(domain, key);
        change.value.store(domain, value);
        let block = {
            let _mutant = domain.omitting(mutants::MISSING_DELTA_FLUSH);
            block.flush()
        };
        let new = {
            let _mutant = domain.omitting(mutants::LINK_BEFORE_FENCE);
            pool.fence((block, with))
        };
        let committed =
            self.exchange(place, newest.link.bits(), new, |(delta, _)| delta.link().bits())?;
        if !gathered.is_empty() {
            pool.retire(newest.link, size_of::<Delta>(), committed, pinned);
        }
        Some(committed)
    }

    /// Makes `change` where a walk without locks leads.
    fn try_change(&self, key: &K, change: Change) -> Attempt<Outcome> {
        let pool = &self.handle.pool;
        // Before the pool is pinned: there may be room to wait for, which retired blocks give.
        let block = pool.allocate::<Delta>();
        // A byte string is written when it is known to be absent, an integer is its own word.
        let (mut word, mut near, mut makes_word) = (None, None, K::INLINE);
        loop {
            if makes_word {
                word = Some(key.make_word(pool)?);
            }
            let pinned = pool.pin();
            let (at, found) = match self.seek(key, near, Purpose::Changing) {
                Ok(found) => found,
                Err(stop) => {
                    drop(pinned);
                    self.finish(stop)?;
                    return Ok(None);
                }
            };
            let previous = found.value();
            let changes = match change {
                Change::Insert(_) => previous.is_none(),
                Change::Update(_) | Change::Remove => previous.is_some(),
                Change::Put(_) => true,
            };
            if !changes {
                let _mutant = pool.domain().omitting(mutants::UNPERSISTED_ANSWER);
                self.handle.persist_before_return();
                return Ok(Some(Outcome::unchanged(previous)));
            }
            if at.record.kind == Kind::Removed {
                // Its neighbour was read before it was merged.
                return Ok(None);
            }
            let adds = previous.is_none();
            if self.geometry.is_full(at.meta(), adds) {
                let id = at.id;
                drop(pinned);
                match self.restructure(id) {
                    Err(IndexError::Alloc(why)) if !adds => {
                        return self.change_without_room(key, change, why);
                    }
                    done => done?,
                }
                return Ok(None);
            }
            let (kind, value) = match change {
                Change::Insert(value) | Change::Update(value) | Change::Put(value) => {
                    (Kind::Put, value)
                }
                Change::Remove => (Kind::Delete, 0),
            };
            let count = match kind {
                Kind::Put => at.meta().count() + usize::from(adds),
                _ => at.meta().count().saturating_sub(1),
            };
            let word = match (found, word.take()) {
                (Found::Present(word, _), _) => KeyWord::again(word),
                (_, Some(word)) => word,
                (_, None) => {
                    (near, makes_word) = (Some(at.id), true);
                    continue;
                }
            };
            let block = match block {
                Ok(block) => block,
                Err(why) => {
                    drop((pinned, word));
                    return self.change_without_room(key, change, why);
                }
            };
            let new = NewDelta { block, kind, count, key: word.bits(), value };
            let Some(committed) = self.put_in_front(at.id, &at.record, new, word, &pinned) else {
                return Ok(None);
            };
            let is_long = at.meta().depth() + 1 >= self.geometry.chain;
            let (id, passed) = (at.id, at.passed);
            drop(pinned);
            // The change is made: what comes now may as well be left to others, if there is no room.
            if is_long || (kind == Kind::Delete && count == 0) {
                let _: Result<(), IndexError> = self.restructure(id);
            }
            if let Some((left, right)) = passed {
                let _: Result<(), IndexError> = self.post(left, right);
            }
            return Ok(Some(Outcome { previous, committed }));
        }
    }

    /// Finishes what a walk has come upon, and begins anew. The caller has not pinned the pool.
    #[cold]
    pub(super) fn finish(&self, stop: Stop) -> Result<(), IndexError> {
        match stop {
            Stop::Unfinished(id) => self.help(id),
            Stop::Lower => Err(damaged("there is no leaf")),
        }
    }

    /// Changes a key that is there by a new base node, for which a block is kept: a pool without room gets
    /// blocks back in this way. The caller has not pinned the pool.
    #[cold]
    fn change_without_room(&self, key: &K, change: Change, why: AllocError) -> Attempt<Outcome> {
        let done = self.rewrite(key, change, why);
        self.refill_reserve();
        let (id, outcome, is_empty) = match done? {
            Some(done) => done,
            None => return Ok(None),
        };
        if is_empty {
            let _: Result<(), IndexError> = self.tidy(id);
        }
        Ok(Some(outcome))
    }

    /// The leaf that was replaced, and whether it is empty.
    fn rewrite(&self, key: &K, change: Change, why: AllocError) -> Attempt<(u64, Outcome, bool)> {
        let pool = &self.handle.pool;
        let block = self.base_block(0)?;
        let pinned = pool.pin();
        let (at, found) = match self.seek(key, None, Purpose::Changing) {
            Ok(found) => found,
            Err(stop) => {
                drop((pinned, block));
                self.refill_reserve();
                return self.finish(stop).map(|()| None);
            }
        };
        let Found::Present(word, previous) = found else { return Err(why.into()) };
        let mut node = self.read(at.record.link)?;
        if node.entries.len() > self.geometry.capacity || !node.is_open() {
            return Err(why.into());
        }
        pool.domain().happens("a change is made without room for a delta");
        match (change, node.position(self, word)) {
            (Change::Remove, Ok(place)) => {
                node.entries.remove(place);
                node.dead.push(word);
            }
            (Change::Insert(value) | Change::Update(value) | Change::Put(value), Ok(place)) => {
                node.entries[place].1 = value;
            }
            (_, Err(_)) => return Ok(None),
        }
        let Some(committed) = self.replace(at.id, &node, &node, block) else { return Ok(None) };
        self.retire_chain(&node, committed, &pinned);
        let outcome = Outcome { previous: Some(previous), committed };
        Ok(Some((at.id, outcome, node.entries.is_empty())))
    }

    /// Puts a base node with the contents of `new` in the place of `old`. None if there is a newer record.
    pub(super) fn replace(
        &self,
        id: u64,
        old: &Contents,
        new: &Contents,
        block: Owned<'_, D, super::record::Base, Dirty>,
    ) -> Option<Committed> {
        let pool = &self.handle.pool;
        let place = self.mapping.place(id)?;
        let base = new.write(block);
        let base = pool.fence(base);
        let _mutant = pool.domain().omitting(mutants::CHAIN_RETIRED_EARLY);
        self.exchange(place, old.head.bits(), base, |base| base.link().bits())
    }
}
