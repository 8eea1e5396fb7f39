//! Insert, update and remove.

use lapis_pmem::{Committed, Domain, Link};

use super::Wort;
use super::leaf::{Leaf, leaf_bytes, leaf_key, make_leaf};
use super::nibbles::Nibbles;
use super::node::{Child, END_SLOT, NIBBLE_SLOTS, Place, has_end_slot, make_node, node_bytes};
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// What is to happen to a key.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// Add it if it is absent.
    Insert(u64),
    /// Change its value if it is present.
    Update(u64),
    /// Add it or change its value.
    Put(u64),
    /// Take it away.
    Remove,
}

/// The node that the descent went through last.
#[derive(Clone, Copy)]
struct Parent {
    /// The word that refers to it.
    node: Child,
    /// Where that word is.
    place: Place,
}

/// Where a descent ended: at a leaf, at an empty slot, or at a node whose branch position is
/// behind the key's end.
struct Descent {
    child: Child,
    /// Where that word is.
    place: Place,
    parent: Option<Parent>,
    /// No prefix was skipped: the key agrees with everything below the parent.
    exact: bool,
}

/// Where a key is, or belongs.
enum Located {
    Present(Link<Leaf>),
    /// The slot at `place` is empty and the key's.
    Vacant,
    /// What is at `place` differs from the key at `position`, where it takes the slot `slot`.
    Differs {
        place: Place,
        child: Child,
        position: usize,
        slot: usize,
    },
}

fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}

impl<D: Domain, K: IndexKey + ?Sized> Wort<D, K> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let mut space = [0; 8];
        let key = Nibbles::of(key, &mut space);
        // Nothing is in flight while the lock is held (I6), and nobody else retires blocks: the
        // writer needs neither persist_before_return nor a pin for its own reads.
        let _turn = self.writer.lock();
        let descent = self.descend(&key);
        let located = self.locate(&key, &descent)?;
        let previous = match located {
            Located::Present(leaf) => Some(self.pool.at(leaf).value.load(self.domain())),
            _ => None,
        };
        let committed = match (change, located) {
            (Change::Insert(value) | Change::Put(value), Located::Vacant) => {
                self.add(&key, value, descent.place)?
            }
            (
                Change::Insert(value) | Change::Put(value),
                Located::Differs { place, child, position, slot },
            ) => self.split(&key, value, place, position, (slot, child))?,
            (Change::Update(value) | Change::Put(value), Located::Present(leaf)) => {
                self.set_value(&key, value, leaf, descent.place)?
            }
            (Change::Remove, Located::Present(leaf)) => self.unlink(&key, leaf, &descent),
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Follows `key` to where it ends, skipping compressed prefixes.
    #[inline(always)]
    fn descend(&self, key: &Nibbles<'_, K>) -> Descent {
        let mut descent =
            Descent { child: self.child_at(self.top), place: self.top, parent: None, exact: true };
        let mut floor = 0;
        while !descent.child.is_none() && !descent.child.is_leaf() {
            let node = descent.child;
            let position = self.position_from(node, floor);
            let Some(slot) = key.slot_at(position) else { break };
            descent.exact &= position == floor;
            descent.parent = Some(Parent { node, place: descent.place });
            descent.place = node.place(slot);
            descent.child = self.child_at(descent.place);
            floor = position + 1;
        }
        descent
    }

    /// Compares `key` with what the descent found.
    #[inline(always)]
    fn locate(&self, key: &Nibbles<'_, K>, descent: &Descent) -> Result<Located, IndexError> {
        let Descent { child, place, parent, exact } = *descent;
        let parent_position = parent.map(|parent| parent.node.position::<K>());
        let witness = match (child.is_none(), parent) {
            (true, None) => return Ok(Located::Vacant),
            (true, Some(_)) if exact => return Ok(Located::Vacant),
            // Any leaf below the node knows its prefix (I3).
            (true, Some(parent)) => self.any_leaf(parent.node),
            (false, _) => self.any_leaf(child),
        };
        let witness = witness.ok_or_else(|| damaged("a node has no children"))?;
        let known = leaf_key::<D, K>(&self.pool, witness)
            .ok_or_else(|| damaged("a leaf's key is outside the pool"))?;
        let Some(position) = key.first_difference(&known) else {
            return if child.is_leaf() {
                Ok(Located::Present(witness))
            } else {
                Err(damaged("a key is in the wrong place"))
            };
        };
        if child.is_none() && parent_position == Some(position) {
            return Ok(Located::Vacant);
        }
        let slot = known
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        if !child.is_none() && parent_position.is_none_or(|above| above < position) {
            return Ok(Located::Differs { place, child, position, slot });
        }
        let (place, child) = self.first_behind(key, position)?;
        Ok(Located::Differs { place, child, position, slot })
    }

    /// The first word on the way of `key` that is a leaf or a node branching behind `position`.
    fn first_behind(
        &self,
        key: &Nibbles<'_, K>,
        position: usize,
    ) -> Result<(Place, Child), IndexError> {
        let mut place = self.top;
        loop {
            let child = self.child_at(place);
            if child.is_none() {
                return Err(damaged("a key is in the wrong place"));
            }
            if child.is_leaf() || child.position::<K>() > position {
                return Ok((place, child));
            }
            let slot = key
                .slot_at(child.position::<K>())
                .ok_or_else(|| damaged("a key is in the wrong place"))?;
            place = child.place(slot);
        }
    }

    /// A leaf below `child`, which is not nothing. None if there is a node without children.
    pub(super) fn any_leaf(&self, child: Child) -> Option<Link<Leaf>> {
        let mut child = child;
        let mut floor = 0;
        while !child.is_leaf() {
            let position = self.position_from(child, floor);
            let slots = NIBBLE_SLOTS + usize::from(has_end_slot::<K>(position));
            // The end slot first: a leaf is there if anything is.
            child = (0..slots)
                .rev()
                .map(|slot| self.child_at(child.place(slot)))
                .find(|below| !below.is_none())?;
            floor = position + 1;
        }
        Some(child.as_leaf())
    }

    /// Puts a new leaf into the empty slot at `place`.
    #[inline]
    fn add(&self, key: &Nibbles<'_, K>, value: u64, place: Place) -> Result<Committed, IndexError> {
        let leaf = make_leaf(&self.pool, key, value)?;
        // I1: the leaf is durable before the slot refers to it.
        let leaf = self.pool.fence(leaf);
        Ok(self.publish(place, Child::leaf(leaf.release()).0))
    }

    /// Puts a node between the word at `place` and `below`, what is there and its slot in the
    /// node, and a new leaf into the node.
    #[inline]
    fn split(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        place: Place,
        position: usize,
        below: (usize, Child),
    ) -> Result<Committed, IndexError> {
        let slot = key
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        let leaf = make_leaf(&self.pool, key, value)?;
        let children = [(slot, Child::leaf(leaf.link())), below];
        let node = make_node::<D, K>(&self.pool, position, children)?.flush();
        // I1: leaf and node are durable before the slot refers to them. I2, I3: the node branches
        // where the new key and those below differ first, behind the branch of the node above.
        let (leaf, node) = self.pool.fence((leaf, node));
        let _ = leaf.release();
        Ok(self.publish(place, Child::node(node.release(), position).0))
    }

    /// Gives the key of `leaf`, to which the word at `place` refers, another value.
    #[inline]
    fn set_value(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        leaf: Link<Leaf>,
        place: Place,
    ) -> Result<Committed, IndexError> {
        if K::INLINE {
            // I5: one store. The value is the first word of the leaf.
            return Ok(self.publish(leaf.cast(), value));
        }
        let replacement = make_leaf(&self.pool, key, value)?;
        // I1, and what the caller has flushed is durable before the value can be reached.
        let replacement = self.pool.fence(replacement);
        let committed = self.publish(place, Child::leaf(replacement.release()).0);
        // I7.
        self.pool.retire(leaf, leaf_bytes(key), committed, &self.pool.pin());
        Ok(committed)
    }

    /// Takes `leaf` out, to which the descent has led.
    #[inline]
    fn unlink(&self, key: &Nibbles<'_, K>, leaf: Link<Leaf>, descent: &Descent) -> Committed {
        let Some(Parent { node, place }) = descent.parent else {
            return self.unlink_leaf(key, leaf, descent.place);
        };
        let position = node.position::<K>();
        let last = if has_end_slot::<K>(position) { END_SLOT } else { NIBBLE_SLOTS - 1 };
        let mut others = (0..=last).map(|slot| node.place(slot)).filter_map(|other| {
            let child = self.child_at(other);
            (other != descent.place && !child.is_none()).then_some(child)
        });
        let remaining = others.next().unwrap_or(Child::NONE);
        if others.next().is_some() {
            return self.unlink_leaf(key, leaf, descent.place);
        }
        // I4: with the leaf goes the node. The remaining child branches behind the node and so
        // behind whatever is above (I2); its keys agree on all before that (I3).
        let committed = self.publish(place, remaining.0);
        // I7.
        let pinned = self.pool.pin();
        self.pool.retire(node.as_node(), node_bytes::<K>(position), committed, &pinned);
        self.pool.retire(leaf, leaf_bytes(key), committed, &pinned);
        committed
    }

    /// Empties the slot at `place`, which refers to `leaf`.
    #[inline]
    fn unlink_leaf(&self, key: &Nibbles<'_, K>, leaf: Link<Leaf>, place: Place) -> Committed {
        let committed = self.publish(place, Child::NONE.0);
        // I7.
        self.pool.retire(leaf, leaf_bytes(key), committed, &self.pool.pin());
        committed
    }
}
