//! Insert, update and remove.

use lapis_pmem::{Committed, Domain, Link};

use super::Wort;
use super::header::Header;
use super::leaf::{Leaf, leaf_bytes, leaf_key, make_leaf};
use super::mutants;
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

/// Where a descent ended: at a leaf, at an empty slot, at a node whose prefix the key does not
/// share, or at a node whose branch position is behind the key's end.
struct Descent {
    child: Child,
    /// Where that word is.
    place: Place,
    /// The nibble at which the child's prefix starts: behind the parent's branch position.
    depth: usize,
    parent: Option<Parent>,
    /// The key agrees with everything below the parent before `depth`.
    exact: bool,
    /// The child's header, and where the key leaves its prefix.
    leaves: Option<(Header, usize)>,
}

/// Where a key is, or belongs.
enum Located {
    Present(Link<Leaf>),
    /// The slot at which the descent ended is empty and the key's.
    Vacant,
    Differs(Split),
    /// Somewhere else; nobody wants to add it.
    Absent,
}

/// A node that is to be made: what is at `place` differs from the key at `position`.
struct Split {
    place: Place,
    child: Child,
    position: usize,
    /// The slot that `child` takes at `position`.
    slot: usize,
    /// Where the prefix of the new node starts.
    depth: usize,
    /// The header of `child` below the new node, if it is a node and this is known.
    header: Option<Header>,
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
        let _turn = lapis_pmem::host_lock::lock(self.domain(), &self.writer);
        let adds = matches!(change, Change::Insert(_) | Change::Put(_));
        let descent = self.descend(&key, adds)?;
        let located = self.locate(&key, &descent, adds)?;
        let previous = match located {
            Located::Present(leaf) => Some(self.pool.at(leaf).value.load(self.domain())),
            _ => None,
        };
        let committed = match (change, located) {
            (Change::Insert(value) | Change::Put(value), Located::Vacant) => {
                self.add(&key, value, descent.place)?
            }
            (Change::Insert(value) | Change::Put(value), Located::Differs(split)) => {
                self.split(&key, value, split)?
            }
            (Change::Update(value) | Change::Put(value), Located::Present(leaf)) => {
                self.set_value(&key, value, leaf, descent.place)?
            }
            (Change::Remove, Located::Present(leaf)) => self.unlink(&key, leaf, &descent),
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Follows `key` to where it ends. If it `adds` the key, compares it with the headers on the
    /// way as long as they hold whole prefixes; otherwise skips prefixes, as readers do.
    #[inline(always)]
    fn descend(&self, key: &Nibbles<'_, K>, adds: bool) -> Result<Descent, IndexError> {
        let mut descent = Descent {
            child: self.child_at(self.top),
            place: self.top,
            depth: 0,
            parent: None,
            exact: true,
            leaves: None,
        };
        while !descent.child.is_none() && !descent.child.is_leaf() {
            let node = descent.child;
            let position = self.position_from(node, descent.depth);
            if position > descent.depth && descent.exact && adds {
                let header = self.header_of(node, descent.depth)?;
                if let Some(differs) = header.first_difference(key) {
                    descent.leaves = Some((header, differs));
                    break;
                }
                descent.exact = header.is_whole();
            }
            let Some(slot) = key.slot_at(position) else { break };
            descent.parent = Some(Parent { node, place: descent.place });
            descent.place = node.place(slot);
            descent.child = self.child_at(descent.place);
            descent.depth = position + 1;
        }
        Ok(descent)
    }

    /// Compares `key` with what the descent found.
    #[inline(always)]
    fn locate(
        &self,
        key: &Nibbles<'_, K>,
        descent: &Descent,
        adds: bool,
    ) -> Result<Located, IndexError> {
        let Descent { child, place, depth, parent, exact, leaves } = *descent;
        if let Some((header, position)) = leaves {
            let slot = header.nibble_at(position);
            let header = header.sunk_to(position + 1);
            return Ok(Located::Differs(Split { place, child, position, slot, depth, header }));
        }
        let witness = match (child.is_none(), parent) {
            _ if !child.is_leaf() && !adds => return Ok(Located::Absent),
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
        if !adds {
            return Ok(Located::Absent);
        }
        if child.is_none() && position + 1 == depth {
            return Ok(Located::Vacant);
        }
        let slot = known
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        let (place, child, depth) = if !child.is_none() && depth <= position {
            (place, child, depth)
        } else {
            self.first_behind(key, position)?
        };
        let header =
            (!child.is_leaf()).then(|| Header::of(&known, position + 1, child.position::<K>()));
        Ok(Located::Differs(Split { place, child, position, slot, depth, header }))
    }

    /// The first word on the way of `key` that is a leaf or a node branching behind `position`,
    /// and where the prefix of what it refers to starts.
    fn first_behind(
        &self,
        key: &Nibbles<'_, K>,
        position: usize,
    ) -> Result<(Place, Child, usize), IndexError> {
        let mut place = self.top;
        let mut depth = 0;
        loop {
            let child = self.child_at(place);
            if child.is_none() {
                return Err(damaged("a key is in the wrong place"));
            }
            if child.is_leaf() || child.position::<K>() > position {
                return Ok((place, child, depth));
            }
            let branch = child.position::<K>();
            let slot = key.slot_at(branch).ok_or_else(|| damaged("a key is in the wrong place"))?;
            place = child.place(slot);
            depth = branch + 1;
        }
    }

    /// The header of `node`, whose prefix starts at `depth`.
    #[inline]
    fn header_of(&self, node: Child, depth: usize) -> Result<Header, IndexError> {
        let header = Header(self.pool.at(node.as_node()).header.load(self.domain()));
        if header.depth() != depth {
            return self.recover_header(node, depth);
        }
        // I8: true at its own depth, and so right at this one.
        if header.position() != node.position::<K>() {
            return Err(damaged("a node's header does not end at its branch position"));
        }
        Ok(header)
    }

    /// Rebuilds the header of `node`, which is stale, from a leaf below it.
    #[cold]
    fn recover_header(&self, node: Child, depth: usize) -> Result<Header, IndexError> {
        let witness = self.any_leaf(node).ok_or_else(|| damaged("a node has no children"))?;
        let known = leaf_key::<D, K>(&self.pool, witness)
            .ok_or_else(|| damaged("a leaf's key is outside the pool"))?;
        let header = Header::of(&known, depth, node.position::<K>());
        self.set_header(node, header);
        Ok(header)
    }

    /// Gives `node` a header that is right where it is now. Not flushed: whichever of a node's
    /// headers a power cut leaves is true (I8), and has another depth if it is not the last.
    #[inline]
    fn set_header(&self, node: Child, header: Header) {
        self.pool.at(node.as_node()).header.store_ordered(self.domain(), header.0);
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
        let leaf = {
            let _mutant = self.domain().omitting(mutants::LINK_BEFORE_FENCE);
            self.pool.fence(leaf)
        };
        Ok(self.publish(place, Child::leaf(leaf.release()).0))
    }

    /// Puts a node with a new leaf and what is there between that and the word that refers to it.
    #[inline]
    fn split(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        split: Split,
    ) -> Result<Committed, IndexError> {
        let Split { place, child, position, slot: old_slot, depth, header } = split;
        let slot = key
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        let leaf = make_leaf(&self.pool, key, value)?;
        let children = [(slot, Child::leaf(leaf.link())), (old_slot, child)];
        let prefix = Header::of(key, depth, position);
        let node = make_node::<D, K>(&self.pool, prefix, position, children)?.flush();
        // I1: leaf and node are durable before the slot refers to them. I2, I3: the node branches
        // where the new key and those below differ first, behind the branch of the node above.
        let (leaf, node) = self.pool.fence((leaf, node));
        let _ = leaf.release();
        if let Some(header) = header
            && self.domain().commits(mutants::HEADER_BEFORE_PARENT)
        {
            self.set_header(child, header.claiming(depth));
        }
        let committed = self.publish(place, Child::node(node.release(), position).0);
        // I8: a header that was right has become stale with the store, for `depth` is at most
        // `position`. It is rewritten now that the store is durable; the child is the same node
        // with the same keys, so whichever of the two a power cut leaves is true.
        if let Some(header) = header {
            self.set_header(child, header);
        }
        Ok(committed)
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
        // behind whatever is above (I2); its keys agree on all before that (I3). If it is a node,
        // its header is stale now (I8) and stays so until an insert comes by: writing it would
        // touch a line of a block that is not needed otherwise.
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
