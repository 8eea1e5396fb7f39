//! Making new nodes from the bottom up, and putting them in the place of old ones by one store.

use lapis_pmem::{Batch, Committed, Domain, InFlight, Owned};

use super::bits::Bits;
use super::contents::Contents;
use super::entry::Entry;
use super::node::{Masks, Node, NodeHead, TAIL_BYTES, make_linear};
use super::read::Level;
use super::search::Width;
use super::{LOCK_MUTANTS, PHot, mutants};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::{HeldNodes, Leaf, Place, damaged};

/// Two nodes become one if it has no more entries than this: not all that fit, so that the next insertion
/// does not split it again.
const JOINED_ENTRIES: usize = 16;

/// A node that is written, flushed, and locked.
pub struct NewNode<'t, D: Domain> {
    pub block: Owned<'t, D, NodeHead, InFlight>,
    /// The word that is to refer to it.
    pub entry: Entry,
}

impl<D: Domain> NewNode<'_, D> {
    pub fn lock_place(&self) -> Place {
        self.block.link().cast()
    }
}

/// What a node's contents have become.
enum Settled<'t, D: Domain> {
    /// This word, and perhaps a last new node, take the place of the node.
    Here(Entry, Option<NewNode<'t, D>>),
    /// The node above gets what its contents have become.
    Above,
    /// Others have been there before.
    Overtaken,
}

/// Nodes that are to be replaced, each in the one after it, and what has been made for it.
pub struct Rebuild<'t, 'k, D: Domain, K: IndexKey + ?Sized> {
    tree: &'t PHot<D, K>,
    key: &'k Bits<'k, K>,
    held: HeldNodes<'t, D>,
    /// The highest node to be replaced.
    level: Level,
    /// The others.
    replaced: Vec<Entry>,
    new: Vec<NewNode<'t, D>>,
    joins: bool,
}

impl<'t, 'k, D: Domain, K: IndexKey + ?Sized> Rebuild<'t, 'k, D, K> {
    /// Held are the locks of the node and of the one above.
    pub fn begin(
        tree: &'t PHot<D, K>,
        key: &'k Bits<'k, K>,
        level: Level,
        held: HeldNodes<'t, D>,
    ) -> Self {
        Self { tree, key, held, level, replaced: Vec::new(), new: Vec::new(), joins: false }
    }

    /// Such that nodes which have few entries are joined with their partners.
    pub fn joining(self) -> Self {
        Self { joins: true, ..self }
    }

    /// Replaces the node by one with these contents, of which `leaf` may be a new one; by what it takes
    /// to have too many, or few. None if others were in the way; nothing has been stored then.
    pub fn settle(
        &mut self,
        mut contents: Contents,
        leaf: Option<Owned<'t, D, Leaf, InFlight>>,
    ) -> Result<Option<Committed>, IndexError> {
        let domain = self.tree.handle.pool.domain();
        loop {
            contents.remove_empty();
            let settled = if contents.overflows() {
                self.overflow(&mut contents)?
            } else if let &[] | &[_] = contents.entries() {
                domain.happens("a node falls to one entry");
                let last = contents.entries().first().copied().unwrap_or(Entry::NONE);
                Settled::Here(last, None)
            } else {
                match self.join(&mut contents)? {
                    Some(joined) => joined,
                    None => {
                        if self.joins {
                            domain.happens("a key is left out of a copy of a node");
                        }
                        let node = self.tree.make_node(&contents)?;
                        Settled::Here(node.entry, Some(node))
                    }
                }
            };
            match settled {
                Settled::Here(word, last) => return Ok(Some(self.replace(word, last, leaf))),
                Settled::Above => {}
                Settled::Overtaken => return Ok(None),
            }
        }
    }

    /// Divides what is too much for a node at the root of its trie. The halves go into the node above, or
    /// where there is room for the height of a node, or nothing above, into a node of their own.
    fn overflow(&mut self, contents: &mut Contents) -> Result<Settled<'t, D>, IndexError> {
        let pool = &self.tree.handle.pool;
        let (left, position, right) = contents.split();
        let two = [self.half(&left)?, self.half(&right)?];
        let pair = Contents::of(&two, &[position]);
        let Level { node, place, above } = self.level;
        if above.is_none() || pair.height().is_some_and(|height| height < above.height()) {
            pool.domain().happens(match above.is_none() {
                true => "the trie gets a new root",
                false => "an intermediate node is created",
            });
            let pair = self.tree.make_node(&pair)?;
            return Ok(Settled::Here(pair.entry, Some(pair)));
        }
        if !self.climb() {
            return Ok(Settled::Overtaken);
        }
        pool.domain().happens("a branch is pulled up into the node above");
        if pool.domain().commits(mutants::PULL_UP_IN_TWO_STEPS) {
            let _ = self.tree.handle.publish(place, (), |()| two[0].0);
        }
        *contents = Node::at(pool, above).contents(pool);
        let index = contents.index_of(if pool.domain().commits(mutants::PULL_UP_IN_TWO_STEPS) {
            two[0]
        } else {
            node
        });
        let index = index.ok_or_else(|| damaged("a node is not where it was"))?;
        contents.replace_by_two(index, two, position);
        Ok(Settled::Above)
    }

    /// The word for one half of a node: its one entry, or a node of its own.
    fn half(&mut self, contents: &Contents) -> Result<Entry, IndexError> {
        if let &[alone] = contents.entries() {
            return Ok(alone);
        }
        let node = self.tree.make_node(contents)?;
        let entry = node.entry;
        self.new.push(node);
        Ok(entry)
    }

    /// Joins what is left of a node with its partner, if that is a node of the same height, below the
    /// same branch of the node above, and both are small. None if not.
    fn join(&mut self, contents: &mut Contents) -> Result<Option<Settled<'t, D>>, IndexError> {
        let Level { node, above, .. } = self.level;
        let count = contents.entries().len();
        if !self.joins || above.is_none() || count + 2 > JOINED_ENTRIES {
            return Ok(None);
        }
        let pool = &self.tree.handle.pool;
        let mut around = Node::at(pool, above).contents(pool);
        let Some(index) = around.index_of(node) else { return Ok(None) };
        let Some(left) = around.pair_of(index) else { return Ok(None) };
        let partner = around.entries()[if left == index { left + 1 } else { left }];
        if !partner.is_node() || partner.height() != node.height() {
            return Ok(None);
        }
        let other = Node::at(pool, partner);
        if count + other.shape.count > JOINED_ENTRIES {
            return Ok(None);
        }
        // The lock that is taken last is that of the node which stays.
        if !self.held.try_take_also(self.tree.lock_of(partner)) || !self.climb() {
            return Ok(Some(Settled::Overtaken));
        }
        self.replaced.push(partner);
        pool.domain().happens("two small nodes are joined");
        let (other, position) = (other.contents(pool), around.gaps()[left]);
        let mut joined = match left == index {
            true => Contents::join(contents, position, &other),
            false => Contents::join(&other, position, contents),
        };
        joined.remove_empty();
        let joined = self.half(&joined)?;
        around.remove(left + 1);
        around.replace(left, joined);
        *contents = around;
        Ok(Some(Settled::Above))
    }

    /// Goes to the node above, which is locked, and locks the one above that, too. False if others have been there
    /// before.
    #[cold]
    fn climb(&mut self) -> bool {
        let tree = self.tree;
        let _pinned = tree.handle.pool.pin();
        let Some(level) = tree.level_of(self.key, self.level.above) else { return false };
        let is_there = self.held.try_take_also(tree.lock_of(level.above))
            && tree.entry_at(level.place) == level.node;
        if is_there {
            self.replaced.push(self.level.node);
            self.level = level;
        }
        is_there
    }

    /// Makes the one store (H4), after which what was replaced is obsolete.
    fn replace(
        &mut self,
        word: Entry,
        last: Option<NewNode<'t, D>>,
        leaf: Option<Owned<'t, D, Leaf, InFlight>>,
    ) -> Committed {
        let handle = &self.tree.handle;
        let pool = &handle.pool;
        let place = self.level.place;
        let last_lock = last.as_ref().map(NewNode::lock_place);
        let locks: Vec<Place> = self.new.iter().map(NewNode::lock_place).collect();
        let committed = if last.is_none() && leaf.is_none() && locks.is_empty() {
            handle.publish(place, (), |()| word.0)
        } else {
            let new: Vec<_> = self.new.drain(..).map(|node| node.block).collect();
            let new = self.tree.fence_new((leaf, last.map(|node| node.block), new));
            handle.publish(place, new, |_| word.0)
        };
        if !pool.domain().commits(mutants::UNLINKED_NODE_UNLOCKED) {
            self.held.note_unlinking();
        }
        // H5: what is new can be changed by others from here on.
        locks.into_iter().chain(last_lock).for_each(|lock| LOCK_MUTANTS.unlock_new(pool, lock));
        let pinned = pool.pin();
        for &node in self.replaced.iter().chain([&self.level.node]) {
            let bytes = Node::at(pool, node).shape.block_bytes();
            pool.retire(node.as_node(), bytes, committed, &pinned);
        }
        committed
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PHot<D, K> {
    /// Writes and flushes a node with these contents, at least two; it is durable after the next fence.
    pub(super) fn make_node(&self, contents: &Contents) -> Result<NewNode<'_, D>, IndexError> {
        let pool = &self.handle.pool;
        let domain = pool.domain();
        let height = contents.height().ok_or_else(|| damaged("its nodes are too high"))?;
        let mut tail = [0; TAIL_BYTES];
        let (shape, tail_bytes) = make_linear(contents, &mut tail);
        let mut block =
            pool.allocate_with_tail::<NodeHead>(shape.block_bytes() - size_of::<NodeHead>())?;
        block.lock.store(domain, LOCK_MUTANTS.word_of_new(pool).bits());
        block.shape.store(domain, shape.bits());
        block.write_tail(0, &tail[..tail_bytes]);
        note_layout(domain, shape.masks, shape.width);
        let block = {
            let _mutant = domain.omitting(mutants::MISSING_NODE_FLUSH);
            block.flush()
        };
        let entry = Entry::node(block.link(), height);
        Ok(NewNode { block, entry })
    }

    /// H2: what is new is durable before a word refers to it.
    #[track_caller]
    pub(super) fn fence_new<B: Batch>(&self, new: B) -> B::Durable {
        let pool = &self.handle.pool;
        let _mutant = pool.domain().omitting(mutants::LINK_BEFORE_FENCE);
        pool.fence(new)
    }
}

/// Counts nodes by their layout.
fn note_layout<D: Domain>(domain: &D, masks: Masks, width: Width) {
    domain.happens(match (masks, width) {
        (Masks::Single, Width::One) => "a node of one mask and 8-bit partial keys",
        (Masks::Single, Width::Two) => "a node of one mask and 16-bit partial keys",
        (Masks::Single, Width::Four) => "a node of one mask and 32-bit partial keys",
        (Masks::Bytes8, Width::One) => "a node of 8 masks and 8-bit partial keys",
        (Masks::Bytes8, Width::Two) => "a node of 8 masks and 16-bit partial keys",
        (Masks::Bytes8, Width::Four) => "a node of 8 masks and 32-bit partial keys",
        (Masks::Bytes16, Width::Four) => "a node of 16 masks and 32-bit partial keys",
        (Masks::Bytes16, _) => "a node of 16 masks and 16-bit partial keys",
        (Masks::Bytes32, _) => "a node of 32 masks",
    });
}
