//! Insert, update and remove in a border node.

use lapis_pmem::{Batch, Committed, Domain, Guard, InFlight, Link, Owned};

use super::locks::Locked;
use super::node::{
    BORDER, Key, Node, Slice, View, Word, is_beside_permutation, write_node, written_bytes,
};
use super::read::{Above, Found, Spot};
use super::{LOCK_MUTANTS, PMasstree, mutants};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;
use crate::radix::{Leaf, Place, damaged, leaf_key};

/// What an attempt comes to: none if others have been there before, or made room for.
pub type Attempt<T = Committed> = Result<Option<T>, IndexError>;

/// Nodes with as many entries, or fewer, are joined with a neighbour if they can.
pub const SPARSE: usize = 3;

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// Makes `change` where a walk without locks leads.
    pub(super) fn try_change(&self, key: &Key<'_, K>, change: Change) -> Attempt<Outcome> {
        let handle = &self.handle;
        let domain = handle.pool.domain();
        let pinned = handle.pool.pin();
        let spot = self.spot::<true>(key);
        let found = spot.as_ref().map_or(Some(Found::Nothing), |spot| self.found_at(key, spot));
        let Some(found) = found else { return Ok(None) };
        let present = match found {
            Found::Key(place) => Some(place),
            _ => None,
        };
        if let Some(previous) = handle.answer(change, present, mutants::UNPERSISTED_ANSWER) {
            let is_right = spot.is_none_or(|spot| spot.step.view.has_its_entries(domain));
            return Ok(is_right.then(|| Outcome::unchanged(previous)));
        }
        let Some(spot) = spot else { return self.plant(key, change, pinned) };
        let mut view = spot.step.view;
        let Some(locked) = self.try_lock(&mut view) else { return Ok(None) };
        // What is locked stays. The pool is not pinned while there may be room to wait for, which retired
        // blocks give.
        drop(pinned);
        let previous = present.map(|place| self.value_at(place));
        let committed = match (change, found) {
            (Change::Insert(value) | Change::Put(value) | Change::Update(value), found) => {
                match found {
                    Found::Key(place) => self.set_value(key, value, place, &spot, &locked)?,
                    Found::Other(leaf) => self.add_layers(key, value, leaf, &spot, &locked)?,
                    Found::Nothing => {
                        let Some(slot) = view.permutation.free_slot() else {
                            drop(locked);
                            self.make_room(key)?;
                            return Ok(None);
                        };
                        let slice = Slice::of(key, spot.step.layer);
                        self.add(key, value, slice, [spot.index, slot], &view, &locked)?
                    }
                }
            }
            (Change::Remove, _) => {
                let Some(committed) = self.remove(key, &spot, &view, locked) else {
                    return Ok(None);
                };
                committed
            }
        };
        Ok(Some(Outcome { previous, committed }))
    }

    /// Gives a key that is there another value.
    #[inline(always)]
    fn set_value(
        &self,
        key: &Key<'_, K>,
        value: u64,
        place: Place,
        spot: &Spot<'_>,
        locked: &Locked<'_, D>,
    ) -> Result<Committed, IndexError> {
        let class = Slice::of(key, spot.step.layer).class;
        let word_place = spot.step.view.place(spot.slot.unwrap_or_default());
        let committed = self.handle.set_value(
            key,
            value,
            [place, word_place],
            mutants::MISSING_LEAF_FLUSH,
            |leaf| Word::new(leaf, class).0,
        )?;
        // An integer's entry stays where it is: readers need not notice.
        if !K::INLINE {
            locked.note_change();
        }
        Ok(committed)
    }

    /// Adds an entry to a node, before the one that is at `index`, in a free slot.
    #[inline(always)]
    fn add(
        &self,
        key: &Key<'_, K>,
        value: u64,
        slice: Slice,
        [index, slot]: [usize; 2],
        view: &View<'_>,
        locked: &Locked<'_, D>,
    ) -> Result<Committed, IndexError> {
        let domain = self.handle.pool.domain();
        let leaf = self.make_leaf(key, value)?;
        let word = leaf.as_ref().map_or(value, |leaf| Word::new(leaf.link(), slice.class).0);
        view.write_entry(domain, slot, (slice.bits, word));
        // In the line of the permutation the order of stores is enough (R2).
        let is_beside = is_beside_permutation(slot);
        if !is_beside {
            let _mutant = domain.omitting(mutants::MISSING_ENTRY_FLUSH);
            domain.flush(&view.node.entries[slot]);
        }
        let after = view.permutation.with(index, slot);
        let place = view.permutation_place();
        // M2: what the permutation makes count is durable.
        let committed = match (leaf, is_beside) {
            (None, true) => self.handle.publish(place, (), |()| after.0),
            (leaf, _) => {
                let leaf = self.fence_new(leaf);
                self.handle.publish(place, leaf, |_| after.0)
            }
        };
        locked.note_change();
        Ok(committed)
    }

    /// Adds the first key.
    #[cold]
    fn plant(&self, key: &Key<'_, K>, change: Change, pinned: Guard<'_, D>) -> Attempt<Outcome> {
        let (Change::Insert(value) | Change::Put(value)) = change else { return Ok(None) };
        let mut above = Above { view: None, place: self.handle.top, word: Word(0) };
        let Some(_locked) = self.try_lock_above(&mut above) else { return Ok(None) };
        drop(pinned);
        self.handle.pool.domain().happens("the first key gets a node");
        let slice = Slice::of(key, 0);
        let leaf = self.make_leaf(key, value)?;
        let word = leaf.as_ref().map_or(value, |leaf| Word::new(leaf.link(), slice.class).0);
        let node = self.make_node([BORDER, 0], &[(slice.bits, word)])?;
        let link = node.link();
        let new = self.fence_new((leaf, node));
        let committed = self.handle.publish(above.place, new, |_| link.bits());
        self.unlock_new(link);
        Ok(Some(Outcome { previous: None, committed }))
    }

    /// Gives a key, and that of the leaf which is where it belongs, layers of their own, down to where they
    /// differ: all of them are reachable by one store (M1).
    #[cold]
    fn add_layers(
        &self,
        key: &Key<'_, K>,
        value: u64,
        other: Link<Leaf>,
        spot: &Spot<'_>,
        locked: &Locked<'_, D>,
    ) -> Result<Committed, IndexError> {
        let pool = &self.handle.pool;
        let known: Key<'_, K> = leaf_key(pool, other).ok_or_else(|| damaged("a leaf is gone"))?;
        let slices = |layer| [Slice::of(key, layer), Slice::of(&known, layer)];
        let first = spot.step.layer + 1;
        let mut last = first;
        while slices(last)[0] == slices(last)[1] {
            last += 1;
        }
        pool.domain().happens(match last == first {
            true => "two keys get a layer",
            false => "two keys get several layers",
        });
        // All blocks first: where there is no room for one of them, these are given back.
        let leaf = self.make_leaf(key, value)?;
        let mut layers = Vec::with_capacity(last - first);
        for layer in first..last {
            let entry = (slices(layer)[0].bits, 0);
            let lock = LOCK_MUTANTS.word_of_new(pool);
            layers.push(write_node(pool, lock, [BORDER, layer as u64], &[entry])?);
        }
        let [slice, known] = slices(last);
        let word = leaf.as_ref().map_or(0, |leaf| Word::new(leaf.link(), slice.class).0);
        let mut two = [(slice, word), (known, Word::new(other, known.class).0)];
        two.sort_unstable();
        let mut node =
            self.make_node([BORDER, last as u64], &two.map(|(at, word)| (at.bits, word)))?;
        let mut new = vec![node.link()];
        while let Some(mut above) = layers.pop() {
            let word = |below: &Owned<'_, D, Node, InFlight>| Word::layer(below.link()).0;
            above.link_children(|above| &above.entries[0].word, node, word);
            node = above.flush_first(written_bytes(1));
            new.push(node.link());
        }
        let slot = spot.slot.unwrap_or_default();
        let top = Word::layer(node.link());
        let node = self.fence_new((leaf, node));
        let committed = self.handle.publish(spot.step.view.place(slot), node, |_| top.0);
        locked.note_change();
        new.into_iter().for_each(|link| self.unlock_new(link));
        Ok(committed)
    }

    /// Takes a key out. None if others have been there before.
    #[inline]
    fn remove(
        &self,
        key: &Key<'_, K>,
        spot: &Spot<'_>,
        view: &View<'_>,
        locked: Locked<'_, D>,
    ) -> Option<Committed> {
        let domain = self.handle.pool.domain();
        let word = view.word(domain, spot.slot?);
        let left = view.permutation.without(spot.index);
        let committed = if spot.step.is_layer_root() && self.gives_way(view, left, spot.step.layer)
        {
            let _pinned = self.handle.pool.pin();
            self.lift(&self.path(key), left, locked)?
        } else {
            let committed = self.handle.publish(view.permutation_place(), (), |()| left.0);
            locked.note_change();
            drop(locked);
            committed
        };
        if !K::INLINE {
            self.handle.retire_leaf(key, word.leaf(), committed);
        }
        if left.count() <= SPARSE {
            self.tidy(key);
        }
        Some(committed)
    }

    /// Writes and flushes the leaf of a byte string; it is durable after the next fence.
    #[inline(always)]
    #[track_caller]
    fn make_leaf(
        &self,
        key: &Key<'_, K>,
        value: u64,
    ) -> Result<Option<Owned<'_, D, Leaf, InFlight>>, IndexError> {
        if K::INLINE {
            return Ok(None);
        }
        Ok(Some(self.handle.make_leaf(key, value, mutants::MISSING_LEAF_FLUSH)?))
    }

    /// Writes and flushes a node of a height and in a layer, locked, with these entries; it is durable after the next
    /// fence.
    pub(super) fn make_node(
        &self,
        place: [u64; 2],
        entries: &[(u64, u64)],
    ) -> Result<Owned<'_, D, Node, InFlight>, IndexError> {
        let pool = &self.handle.pool;
        let node = write_node(pool, LOCK_MUTANTS.word_of_new(pool), place, entries)?;
        let _mutant = pool.domain().omitting(mutants::MISSING_NODE_FLUSH);
        Ok(node.flush_first(written_bytes(entries.len())))
    }

    /// M1, M2: what is new is durable before a word refers to it, or makes it count.
    #[inline(always)]
    #[track_caller]
    pub(super) fn fence_new<B: Batch>(&self, new: B) -> B::Durable {
        let pool = &self.handle.pool;
        let _mutant = pool.domain().omitting(mutants::LINK_BEFORE_FENCE);
        pool.fence(new)
    }

    /// M6: the word that refers to a new node is durable.
    pub(super) fn unlock_new(&self, node: Link<Node>) {
        LOCK_MUTANTS.unlock_new(&self.handle.pool, node.cast());
    }
}
