//! Insert, update and remove.

use lapis_pmem::{Committed, Domain, GenerationLock, Guard, Link, Owned};

use super::bits::{Bits, bit_at, first_difference};
use super::contents::{Contents, FANOUT, sharing};
use super::entry::Entry;
use super::node::Node;
use super::read::{Level, Spot};
use super::rebuild::Rebuild;
use super::{LOCK_MUTANTS, PHot, mutants};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;
use crate::radix::{HeldNodes, Leaf, lock_at};

/// Where a key is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adding {
    /// To the node in which its way ends.
    Here,
    /// To the node below, above everything in it.
    Below,
    /// To a new node beside the entry, which takes the place of that.
    Pair,
}

/// What an attempt comes to: none if others have been there before.
type Attempt<T = Committed> = Result<Option<T>, IndexError>;

impl<D: Domain, K: IndexKey + ?Sized> PHot<D, K> {
    /// Makes `change` where a walk without locks leads.
    pub(super) fn try_change(&self, key: &Bits<'_, K>, change: Change) -> Attempt<Outcome> {
        let handle = &self.handle;
        let pool = &handle.pool;
        let pinned = pool.pin();
        let spot = self.follow(key, u32::MAX);
        let differs = (!spot.entry.is_none())
            .then(|| first_difference(key, &self.key_of_leaf(spot.entry.as_leaf())));
        let present = (differs == Some(None)).then(|| spot.entry.as_leaf().cast());
        if let Some(previous) = handle.answer(change, present, mutants::UNPERSISTED_ANSWER) {
            return Ok(Some(Outcome::unchanged(previous)));
        }
        let mut previous = None;
        let committed = match (change, differs) {
            (Change::Insert(value) | Change::Put(value) | Change::Update(value), differs) => {
                match differs {
                    None => self.fill(key, value, spot, pinned)?,
                    Some(Some(position)) => self.add(key, value, position, spot, pinned)?,
                    Some(None) => self.set_value(key, value, spot, &mut previous, pinned)?,
                }
            }
            (Change::Remove, _) => self.remove(key, spot, &mut previous, pinned)?,
        };
        Ok(committed.map(|committed| Outcome { previous, committed }))
    }

    /// Takes the lock of a node, or of the root, if it is free (H5).
    #[inline]
    pub(super) fn try_lock(&self, node: Entry) -> Option<HeldNodes<'_, D>> {
        let pool = &self.handle.pool;
        HeldNodes::try_take(pool.domain(), LOCK_MUTANTS.generation(pool), self.lock_of(node))
    }

    /// The lock of a node, or of the root.
    #[inline]
    pub(super) fn lock_of(&self, node: Entry) -> &GenerationLock {
        if node.is_none() {
            return self.handle.root_lock();
        }
        lock_at(&self.handle.pool, node.as_node().cast())
    }

    /// Takes the lock of the node where a walk ended, if that has still the entry.
    fn lock_entry(&self, spot: &Spot) -> Option<HeldNodes<'_, D>> {
        let held = self.try_lock(spot.level.node)?;
        let is_there = self.handle.pool.domain().commits(mutants::STALE_DECISION)
            || self.entry_at(spot.slot) == spot.entry;
        is_there.then_some(held)
    }

    /// The same, and the lock of the node above, if that has still this one.
    fn lock_node<'t>(&'t self, level: &Level, held: &mut HeldNodes<'t, D>) -> bool {
        held.try_take_also(self.lock_of(level.above))
            && (self.entry_at(level.place) == level.node
                || self.handle.pool.domain().commits(mutants::ABOVE_UNCHECKED))
    }

    fn set_value(
        &self,
        key: &Bits<'_, K>,
        value: u64,
        spot: Spot,
        previous: &mut Option<u64>,
        pinned: Guard<'_, D>,
    ) -> Attempt {
        let Some(_held) = self.lock_entry(&spot) else { return Ok(None) };
        // What is locked stays. The pool is not pinned while there may be room to wait for, which retired
        // blocks give.
        drop(pinned);
        let leaf = spot.entry.as_leaf();
        *previous = Some(self.value_of(leaf));
        let missing_flush = mutants::MISSING_LEAF_FLUSH;
        let places = [leaf.cast(), spot.slot];
        let word = |leaf| Entry::leaf(leaf).0;
        Ok(Some(self.handle.set_value(key, value, places, missing_flush, word)?))
    }

    fn value_of(&self, leaf: Link<Leaf>) -> u64 {
        let pool = &self.handle.pool;
        pool.at(leaf).value.load(pool.domain())
    }

    /// Adds a key to an empty trie. An entry of a node that is nothing is taken out instead, and the walk
    /// begins again.
    fn fill(&self, key: &Bits<'_, K>, value: u64, spot: Spot, pinned: Guard<'_, D>) -> Attempt {
        let Some(mut held) = self.lock_entry(&spot) else { return Ok(None) };
        let handle = &self.handle;
        if spot.level.node.is_none() {
            drop(pinned);
            let leaf = handle.make_leaf(key, value, mutants::MISSING_LEAF_FLUSH)?;
            let leaf = self.fence_new(leaf);
            let word = |leaf: &Owned<'_, D, Leaf, _>| Entry::leaf(leaf.link()).0;
            return Ok(Some(handle.publish(spot.slot, leaf, word)));
        }
        if self.lock_node(&spot.level, &mut held) {
            handle.pool.domain().happens("empty entries are taken out");
            let contents = Node::at(&handle.pool, spot.level.node).contents(&handle.pool);
            drop(pinned);
            let _: Option<Committed> =
                Rebuild::begin(self, key, spot.level, held).settle(contents, None)?;
        }
        Ok(None)
    }

    /// Adds `key`, which differs at `position` from that of the leaf to which it leads.
    fn add(
        &self,
        key: &Bits<'_, K>,
        value: u64,
        position: u32,
        found: Spot,
        pinned: Guard<'_, D>,
    ) -> Attempt {
        let (handle, pool) = (&self.handle, &self.handle.pool);
        let domain = pool.domain();
        let spot = self.follow(key, position);
        let bit = bit_at(key, position);
        let way = self.way_of_adding(&spot, position);
        // All keys below an entry agree up to its trie's first position (H3). So where the leaf is below
        // the entry, `position` is right, and stays so while the node is locked.
        let is_right = || {
            domain.commits(mutants::STALE_DECISION)
                || spot.entry == found.entry
                || self.follow_from(key, spot.entry) == found.entry
        };
        if way == Adding::Pair {
            let Some(_held) = self.lock_entry(&spot) else { return Ok(None) };
            if !is_right() {
                return Ok(None);
            }
            drop(pinned);
            domain.happens(match spot.entry.is_leaf() {
                true => "a leaf becomes a node of two",
                false => "an intermediate node is created above a full one",
            });
            let leaf = handle.make_leaf(key, value, mutants::MISSING_LEAF_FLUSH)?;
            let new = Entry::leaf(leaf.link());
            let two = if bit { [spot.entry, new] } else { [new, spot.entry] };
            let pair = self.make_node(&Contents::of(&two, &[position]))?;
            let (lock, word) = (pair.lock_place(), pair.entry);
            let new = self.fence_new((leaf, pair.block));
            let committed = handle.publish(spot.slot, new, |_| word.0);
            LOCK_MUTANTS.unlock_new(pool, lock);
            return Ok(Some(committed));
        }
        let (level, index) = match way {
            Adding::Below => {
                (Level { node: spot.entry, place: spot.slot, above: spot.level.node }, 0)
            }
            _ => (spot.level, spot.index),
        };
        let Some(mut held) = self.try_lock(level.node) else { return Ok(None) };
        let is_there = way == Adding::Below
            || domain.commits(mutants::STALE_DECISION)
            || self.entry_at(spot.slot) == spot.entry;
        if !is_there || !self.lock_node(&level, &mut held) || !is_right() {
            return Ok(None);
        }
        let mut contents = Node::at(pool, level.node).contents(pool);
        drop(pinned);
        domain.happens(match way {
            Adding::Below => "a key is added to a copy of a node as its new root",
            _ => "a key is added to a copy of a node",
        });
        let leaf = handle.make_leaf(key, value, mutants::MISSING_LEAF_FLUSH)?;
        contents.insert(index, position, bit, Entry::leaf(leaf.link()));
        Rebuild::begin(self, key, level, held).settle(contents, Some(leaf))
    }

    /// How to add a key that differs at `position` from what is below the entry at `spot`.
    #[inline]
    fn way_of_adding(&self, spot: &Spot, position: u32) -> Adding {
        let node = spot.level.node;
        if node.is_none() {
            return Adding::Pair;
        }
        let has_room = |height| height < node.height();
        if spot.entry.is_leaf() && !has_room(1) {
            return Adding::Here;
        }
        let pool = &self.handle.pool;
        let mut gaps = [0; FANOUT];
        let is_alone = Node::at(pool, node)
            .gaps(&mut gaps)
            .is_some_and(|gaps| sharing(gaps, spot.index, position).len() == 1);
        if !is_alone {
            Adding::Here
        } else if spot.entry.is_node() && Node::at(pool, spot.entry).shape.count < FANOUT {
            Adding::Below
        } else if has_room(spot.entry.height() + 1) {
            Adding::Pair
        } else {
            Adding::Here
        }
    }

    fn remove(
        &self,
        key: &Bits<'_, K>,
        spot: Spot,
        previous: &mut Option<u64>,
        pinned: Guard<'_, D>,
    ) -> Attempt {
        let (handle, pool) = (&self.handle, &self.handle.pool);
        let Some(mut held) = self.lock_entry(&spot) else { return Ok(None) };
        let leaf = spot.entry.as_leaf();
        let level = spot.level;
        let committed = if level.node.is_none() {
            drop(pinned);
            *previous = Some(self.value_of(leaf));
            handle.publish(spot.slot, (), |_| Entry::NONE.0)
        } else {
            if !self.lock_node(&level, &mut held) {
                return Ok(None);
            }
            let mut contents = Node::at(pool, level.node).contents(pool);
            drop(pinned);
            *previous = Some(self.value_of(leaf));
            contents.remove(spot.index);
            let mut rebuild = Rebuild::begin(self, key, level, held).joining();
            match rebuild.settle(contents, None) {
                Ok(Some(committed)) => committed,
                // H6: there is no room for a copy.
                Err(IndexError::Alloc(_)) => {
                    pool.domain().happens("a removal leaves an empty entry");
                    handle.publish(spot.slot, (), |_| Entry::NONE.0)
                }
                overtaken => return overtaken,
            }
        };
        handle.retire_leaf(key, leaf, committed);
        Ok(Some(committed))
    }
}
