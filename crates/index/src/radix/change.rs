//! Insert, update and remove, as far as they are the same for every tree.

use lapis_pmem::{Committed, Domain, Link};

use super::descent::{Descending, Located};
use super::digits::Digits;
use super::leaf::{Leaf, leaf_bytes, make_leaf};
use super::tree::{KeyOf, Place, RadixTree, SlotWord};
pub use crate::index::Change;
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// Changes of every radix tree.
pub trait Changing: RadixTree {
    /// Makes `change`, durably.
    #[inline]
    fn change(&self, key: &Self::Key, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let mut space = [0; 8];
        let key: KeyOf<'_, Self> = Digits::of(key, &mut space);
        let handle = self.handle();
        let domain = handle.pool.domain();
        // Nothing is in flight while the lock is held (I6), and nobody else retires blocks: the
        // writer needs neither persist_before_return nor a pin for its own reads.
        let _turn = lapis_pmem::host_lock::lock(domain, &handle.writer);
        let adds = matches!(change, Change::Insert(_) | Change::Put(_));
        let descent = self.descend(&key, adds)?;
        let located = self.locate(&key, &descent, adds)?;
        let previous = match located {
            Located::Present(leaf) => Some(handle.pool.at(leaf).value.load(domain)),
            _ => None,
        };
        let committed = match (change, located) {
            (Change::Insert(value) | Change::Put(value), Located::Vacant) => {
                self.add(&key, value, &descent)?
            }
            (Change::Insert(value) | Change::Put(value), Located::Differs(split)) => {
                self.split(&key, value, split)?
            }
            (Change::Update(value) | Change::Put(value), Located::Present(leaf)) => {
                self.set_value(&key, value, leaf, descent.place)?
            }
            (Change::Remove, Located::Present(leaf)) => self.unlink(&key, leaf, &descent)?,
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Puts a new leaf into `place`, where there is nothing and the key belongs.
    #[inline]
    fn link_leaf(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        place: Place,
    ) -> Result<Committed, IndexError> {
        let handle = self.handle();
        let leaf = make_leaf(&handle.pool, key, value, Self::MISSING_LEAF_FLUSH)?;
        // I1: the leaf is durable before the slot refers to it.
        let leaf = {
            let _mutant = handle.pool.domain().omitting(Self::LINK_BEFORE_FENCE);
            handle.pool.fence(leaf)
        };
        Ok(handle.publish(place, Self::Word::leaf(leaf.release()).bits()))
    }

    /// Gives the key of `leaf`, to which the word at `place` refers, another value.
    #[inline]
    fn set_value(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        leaf: Link<Leaf>,
        place: Place,
    ) -> Result<Committed, IndexError> {
        let handle = self.handle();
        if Self::Key::INLINE {
            // I5: one store. The value is the first word of the leaf.
            return Ok(handle.publish(leaf.cast(), value));
        }
        let replacement = make_leaf(&handle.pool, key, value, Self::MISSING_LEAF_FLUSH)?;
        // I1, and what the caller has flushed is durable before the value can be reached.
        let replacement = handle.pool.fence(replacement);
        let committed = handle.publish(place, Self::Word::leaf(replacement.release()).bits());
        self.retire(&[], Some((key, leaf)), committed);
        Ok(committed)
    }

    /// Takes a leaf out by the store that leaves no reference to it.
    #[inline]
    #[track_caller]
    fn replace_leaf(
        &self,
        key: &KeyOf<'_, Self>,
        leaf: Link<Leaf>,
        place: Place,
        word: u64,
    ) -> Committed {
        let committed = self.handle().publish(place, word);
        self.retire(&[], Some((key, leaf)), committed);
        committed
    }

    /// Retires what a store has unlinked that is durable (I7).
    #[inline]
    fn retire(
        &self,
        nodes: &[Self::Word],
        leaf: Option<(&KeyOf<'_, Self>, Link<Leaf>)>,
        committed: Committed,
    ) {
        let pool = &self.handle().pool;
        let pinned = pool.pin();
        for &node in nodes {
            pool.retire(node.header_place(), self.node_bytes(node), committed, &pinned);
        }
        if let Some((key, leaf)) = leaf {
            pool.retire(leaf, leaf_bytes(key), committed, &pinned);
        }
    }
}

impl<T: RadixTree> Changing for T {}
