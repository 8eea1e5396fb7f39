//! Adding a key to a node, and making the node that a split puts in.

use std::mem::offset_of;

use lapis_pmem::{AllocError, Committed, Dirty, Domain, Durable, Owned};
use smallvec::SmallVec;

use super::Art;
use super::entries::{ChildIndex, Entries4, Entries16};
use super::node::{Body4, Body16, Body48, Body256, Child, Head, Kind};
use super::policy::Policy;
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::{
    Byte, Changing, Claims, Descending, Digits, Header, Holding, Obstacle, Parent, Place, SlotWord,
    Span, Split, damaged,
};

/// An entry that a byte can have: what is to be stored, in this order.
struct Room {
    /// Where the child goes.
    child: Place,
    /// The word of keys with the new one.
    keys: Option<(Place, u64)>,
    /// The word that makes the entry count.
    counts: (Place, u64),
}

impl Room {
    /// Whether the child is on the line of the word that makes it count, so that the order of the
    /// two stores is that in which they persist.
    fn is_one_line(&self) -> bool {
        self.child.offset() / 64 == self.counts.0.offset() / 64
    }
}

/// What a node refers to.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) end: Child,
    /// In the order of bytes.
    pub(super) children: Children,
}

/// Without the allocator's help for what is copied often: nodes of up to sixteen children, and one more.
type Children = SmallVec<[(u8, Child); 17]>;

impl Contents {
    /// Of two slots.
    fn of(children: [(usize, Child); 2]) -> Self {
        let mut contents = Self { end: Child::NONE, children: SmallVec::new() };
        children.into_iter().for_each(|(slot, child)| contents.add(slot, child));
        contents
    }

    /// With the child of a slot that has none.
    pub(super) fn add(&mut self, slot: usize, child: Child) {
        if slot == Byte::END_SLOT {
            self.end = child;
        } else {
            let at = self.children.partition_point(|&(byte, _)| usize::from(byte) < slot);
            self.children.insert(at, (slot as u8, child));
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> Art<D, K, P> {
    /// An entry of `node` that `byte` can have, if there is one and entries are what this tree adds
    /// to such nodes.
    #[inline]
    fn room_for(&self, node: Child, byte: u8) -> Option<Room> {
        match node.kind() {
            Kind::Four | Kind::Sixteen if P::COPIES => None,
            Kind::Four => {
                let entries = self.entries4(self.body(node));
                let child = entries.free_child()?;
                Some(Room {
                    child: node.child_place::<P>(child),
                    keys: None,
                    counts: (
                        node.in_body::<P>(offset_of!(Body4, entries)),
                        entries.with(byte, child).0,
                    ),
                })
            }
            Kind::Sixteen => {
                let entries = self.entries16(self.body(node));
                let entry = entries.free_entry()?;
                let keys = node.in_body::<P>(offset_of!(Body16, keys) + 8 * (entry / 8));
                Some(Room {
                    child: node.child_place::<P>(entry),
                    keys: Some((keys, entries.keys_with(entry, byte))),
                    counts: (
                        node.in_body::<P>(offset_of!(Body16, bitmap)),
                        entries.bitmap | 1 << entry,
                    ),
                })
            }
            Kind::FortyEight => {
                let index = self.child_index(self.body(node));
                let child = index.free_child()?;
                let (word, shift) = ChildIndex::place(byte);
                Some(Room {
                    child: node.child_place::<P>(child),
                    keys: None,
                    counts: (
                        node.in_body::<P>(offset_of!(Body48, index) + 8 * word),
                        ChildIndex::word_with(index.0[word], shift, Some(child)),
                    ),
                })
            }
            Kind::Full => None,
        }
    }

    /// Gives the node that a descent ended in a leaf for a byte that it has no child for.
    #[inline]
    pub(super) fn add_to_node(
        &self,
        key: &Digits<'_, K, Byte>,
        value: u64,
        parent: &Parent<Child>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let (handle, node) = (&self.handle, parent.node);
        let slot = self.slot_in(key, node)?;
        let Some(room) = self.room_for(node, slot as u8) else {
            held.require(Claims::above(key, parent.depth))?;
            return self.add_to_copy(key, value, parent, slot, held);
        };
        let leaf = self.make_leaf(key, value)?;
        let (place, word) = room.counts;
        if let Some(mutant) = P::MUTANTS.entry_before_child.get(node.kind() as usize)
            && self.domain().commits(*mutant)
        {
            let _ = handle.publish(place, (), |_| word);
        }
        // I9: no word leads to this entry. Keys are on the line of the bitmap.
        if let Some((keys, with_key)) = room.keys {
            handle.pool.at(keys).store_ordered(self.domain(), with_key);
        }
        let child = handle.pool.at(room.child);
        child.store_ordered(self.domain(), Child::leaf(leaf.link()).0);
        if !room.is_one_line() {
            self.domain().flush(child);
        }
        // I1, I9: leaf and entry are durable before the entry counts, but for what is on the same
        // line and so persists before it.
        let leaf = {
            let _mutant = self.domain().omitting(P::MUTANTS.of_all.link_before_fence);
            handle.pool.fence(leaf)
        };
        Ok(handle.publish(place, leaf, |_| word))
    }

    /// Replaces a node by a copy that has a leaf more, of a larger kind if need be.
    fn add_to_copy(
        &self,
        key: &Digits<'_, K, Byte>,
        value: u64,
        parent: &Parent<Child>,
        slot: usize,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let (pool, node) = (&self.handle.pool, parent.node);
        let leaf = self.make_leaf(key, value)?;
        let mut contents = self.contents(node);
        contents.add(slot, Child::leaf(leaf.link()));
        let kind = node.kind().for_count(contents.children.len());
        if kind > node.kind() {
            self.domain().happens(match kind {
                Kind::Four | Kind::Sixteen => "a Node4 grows",
                Kind::FortyEight => "a Node16 grows",
                Kind::Full => "a Node48 grows",
            });
        }
        let copy = self.make_node(kind, self.header_bits(node), &contents)?;
        let copy = {
            let _mutant = self.domain().omitting(P::MUTANTS.missing_copy_flush);
            copy.flush()
        };
        // I1: leaf and copy are durable before the word above refers to the copy.
        let new = pool.fence((leaf, copy));
        let copy = Self::word_of(kind, node)(&new.1);
        let committed = self.replace_nodes(&[node], None, parent.place, new, |_| copy.0, held);
        P::unlock_new(pool, copy);
        Ok(committed)
    }

    /// Puts a node with a new leaf and what is there between that and the word that refers to it.
    #[inline]
    pub(super) fn split_prefix(
        &self,
        key: &Digits<'_, K, Byte>,
        value: u64,
        split: Split<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let Split { place, child, position, slot: old_slot, depth, header, .. } = split;
        let pool = &self.handle.pool;
        pool.domain().happens(match child.is_leaf() {
            true => "a node above two leaves",
            false => "a node above a node",
        });
        let slot = key
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        let leaf = self.make_leaf(key, value)?;
        let in_place = self.domain().commits(P::MUTANTS.header_before_parent);
        let copy = if P::COPIES && !child.is_leaf() && !in_place {
            Some(self.lowered_copy(child, header, position + 1)?)
        } else {
            None
        };
        let below = copy
            .as_ref()
            .map_or(child, |(kind, copy)| Child::node(copy.link(), *kind, child.position::<K>()));
        let contents = Contents::of([(slot, Child::leaf(leaf.link())), (old_slot, below)]);
        let prefix = Header::of(key, depth, position);
        let node = self.make_node(Kind::Four, prefix.bits(), &contents)?.flush();
        // I1: all that is new is durable before the word above refers to it. I2, I3: the node
        // branches where the new key and those below differ first, behind the node above.
        let new = pool.fence((leaf, node, copy.map(|(_, copy)| copy)));
        // A header in place is stored without the child's stripe. It is there until the store below.
        let _pinned = header.filter(|_| new.2.is_none()).map(|_| pool.pin());
        if in_place && let Some(header) = header {
            self.set_header(child, header.claiming(depth));
        }
        let node = Child::node(new.1.link(), Kind::Four, position);
        if new.2.is_some() {
            return Ok(self.put_above_copy(child, place, new, node, held));
        }
        let committed = self.handle.publish(place, new, |_| node.0);
        P::unlock_new(pool, node);
        // I8: a header that was right has become stale with the store, for `depth` is at most
        // `position`. It is rewritten now that the store is durable; the child is the same node
        // with the same keys, so whichever of the two a power cut leaves is true.
        if let Some(header) = header {
            self.set_header(child, header);
        }
        Ok(committed)
    }

    /// The word of a copy of `node`, which is of this kind.
    pub(super) fn word_of(
        kind: Kind,
        node: Child,
    ) -> impl Fn(&Owned<'_, D, Head, Durable>) -> Child {
        move |copy| Child::node(copy.link(), kind, node.position::<K>())
    }

    /// The slot that `key` takes in `node`.
    #[inline(always)]
    pub(super) fn slot_in(
        &self,
        key: &Digits<'_, K, Byte>,
        node: Child,
    ) -> Result<usize, IndexError> {
        key.slot_at(node.position::<K>()).ok_or_else(|| damaged("a key is in the wrong place"))
    }

    #[inline]
    pub(super) fn header_bits(&self, node: Child) -> u64 {
        self.handle.pool.at(node.header_place()).load(self.domain())
    }

    /// All that a node refers to, for writers.
    pub(super) fn contents(&self, node: Child) -> Contents {
        let child_of = |entry| self.child_at(node.child_place::<P>(entry));
        let mut children = Children::with_capacity(node.kind().capacity() + 1);
        match node.kind() {
            Kind::Four => {
                let entries: Entries4 = self.entries4(self.body(node));
                children.extend(entries.iter().map(|(byte, entry)| (byte, child_of(entry))));
            }
            Kind::Sixteen => {
                let entries: Entries16 = self.entries16(self.body(node));
                children.extend(entries.iter().map(|(byte, entry)| (byte, child_of(entry))));
                children.sort_unstable_by_key(|&(byte, _)| byte);
            }
            Kind::FortyEight => {
                let index = self.child_index(self.body(node));
                children.extend(index.iter().map(|(byte, entry)| (byte, child_of(entry))));
            }
            Kind::Full => children.extend((0..=u8::MAX).filter_map(|byte| {
                let child = child_of(usize::from(byte));
                (!child.is_none()).then_some((byte, child))
            })),
        }
        let end = if K::INLINE { Child::NONE } else { self.end_child(node) };
        Contents { end, children }
    }

    /// A new node, not flushed.
    pub(super) fn make_node(
        &self,
        kind: Kind,
        header: u64,
        contents: &Contents,
    ) -> Result<Owned<'_, D, Head, Dirty>, AllocError> {
        let children = &contents.children;
        let bytes = || children.iter().enumerate().map(|(entry, &(byte, _))| (byte, entry));
        let words = || children.iter().map(|&(_, child)| child.0);
        let fill = |room: &mut [u64]| {
            room.iter_mut().zip(words()).for_each(|(word, child)| *word = child);
        };
        let tail_bytes = kind.node_bytes::<P>() - size_of::<Head>();
        let mut node = self.handle.pool.allocate_with_tail::<Head>(tail_bytes)?;
        node.header.store(self.domain(), header);
        node.end.store(self.domain(), contents.end.0);
        P::lock_new(&mut node);
        match kind {
            Kind::Four => write::<P, _, _>(&mut node, |body: &mut [u64; words_of::<Body4>()]| {
                body[0] = Entries4::of(bytes()).0;
                fill(&mut body[1..]);
            }),
            Kind::Sixteen => {
                write::<P, _, _>(&mut node, |body: &mut [u64; words_of::<Body16>()]| {
                    body[0] = (1 << children.len()) - 1;
                    for (byte, entry) in bytes() {
                        body[1 + entry / 8] |= u64::from(byte) << (8 * (entry % 8));
                    }
                    fill(&mut body[3..]);
                })
            }
            Kind::FortyEight => {
                write::<P, _, _>(&mut node, |body: &mut [u64; words_of::<Body48>()]| {
                    for (byte, entry) in bytes() {
                        let (word, shift) = ChildIndex::place(byte);
                        body[word] |= (entry as u64 + 1) << shift;
                    }
                    fill(&mut body[32..]);
                });
            }
            Kind::Full => write::<P, _, _>(&mut node, |body: &mut [u64; words_of::<Body256>()]| {
                for &(byte, child) in children {
                    body[usize::from(byte)] = child.0;
                }
            }),
        }
        Ok(node)
    }
}

/// Words of a node's body.
const fn words_of<B>() -> usize {
    size_of::<B>() / 8
}

/// Writes a node's body; words that `fill` leaves are zero.
fn write<P: Policy, D: Domain, const WORDS: usize>(
    node: &mut Owned<'_, D, Head, Dirty>,
    fill: impl FnOnce(&mut [u64; WORDS]),
) {
    let mut words = [0; WORDS];
    fill(&mut words);
    node.write_tail(P::LOCK_BYTES, words.map(u64::to_le_bytes).as_flattened());
}
