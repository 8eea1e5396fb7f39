//! What a radix tree says of itself.

use lapis_pmem::{Committed, Domain, Link, Mutant, Reach};

use super::change::{Change, Changing};
use super::digits::{Digits, Span};
use super::handle::Handle;
use super::header::Header;
use super::leaf::Leaf;
use super::stripes::{Holding, Obstacle};
use super::word::{Place, SlotWord};
use crate::IndexKind;
use crate::index::{Direction, IndexError, Outcome};
use crate::key::IndexKey;

/// A key as the digits of a tree.
pub type KeyOf<'k, T> = Digits<'k, <T as RadixTree>::Key, <T as RadixTree>::Span>;
/// A header of a tree's nodes.
pub type HeaderOf<T> = Header<<T as RadixTree>::Span>;

/// The errors that every radix tree can be told to commit.
#[derive(Debug)]
pub struct Mutants {
    /// A new leaf is not flushed.
    pub missing_leaf_flush: Mutant,
    /// A word refers to a new leaf without a fence after its flush.
    pub link_before_fence: Mutant,
    /// What was found without stripes is not looked at again with them.
    pub stale_decision: Mutant,
    /// An unlinking of nodes is not noted.
    pub unnoted_unlinking: Mutant,
    /// A node that a split makes is not locked.
    pub new_node_unlocked: Mutant,
    /// A change that finds nothing to do does not persist what it may have seen.
    pub unpersisted_answer: Mutant,
}

/// [`Mutants`] by the names that every tree's module of them has.
macro_rules! mutants_of {
    ($module:ident) => {
        $crate::radix::Mutants {
            missing_leaf_flush: $module::MISSING_LEAF_FLUSH,
            link_before_fence: $module::LINK_BEFORE_FENCE,
            stale_decision: $module::STALE_DECISION,
            unnoted_unlinking: $module::UNCOUNTED_UNLINKING,
            new_node_unlocked: $module::NEW_NODE_UNLOCKED,
            unpersisted_answer: $module::UNPERSISTED_ANSWER,
        }
    };
}
pub(crate) use mutants_of;

/// The node that a descent went through last.
#[derive(Clone, Copy)]
pub struct Parent<W> {
    pub node: W,
    /// Where the word that refers to it is.
    pub place: Place,
    /// The digit at which its prefix starts.
    pub depth: usize,
}

/// Where a descent ended: at a leaf, at nothing, at a node whose prefix the key does not share, or
/// at a node whose branch position is behind the key's end.
pub struct Descent<T: RadixTree> {
    pub child: T::Word,
    /// Where that word is; null if the node has no place for it.
    pub place: Place,
    /// The digit at which the child's prefix starts: behind the parent's branch position.
    pub depth: usize,
    pub parent: Option<Parent<T::Word>>,
    /// The key agrees with everything below the parent before `depth`.
    pub(super) exact: bool,
    /// The child's header, and where the key leaves its prefix.
    pub(super) leaves: Option<(HeaderOf<T>, usize)>,
}

impl<T: RadixTree> Clone for Descent<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: RadixTree> Copy for Descent<T> {}

impl<T: RadixTree> Descent<T> {
    /// Whether there is nothing where it ended and the key that it added belongs there, as far as
    /// that shows without looking at another key.
    #[inline(always)]
    pub fn is_plainly_vacant(&self) -> bool {
        self.child.is_none() && (self.exact || self.parent.is_none())
    }
}

/// A node that is to be made: what is at `place` differs from the key at `position`.
pub struct Split<T: RadixTree> {
    pub place: Place,
    /// The node that the place is in; none if it is the root.
    pub above: Option<T::Word>,
    pub child: T::Word,
    pub position: usize,
    /// The slot that `child` takes at `position`.
    pub slot: usize,
    /// Where the prefix of the new node starts.
    pub depth: usize,
    /// The header of `child` below the new node, if it is a node and this is known.
    pub header: Option<HeaderOf<T>>,
}

impl<T: RadixTree> Clone for Split<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: RadixTree> Copy for Split<T> {}

/// A radix tree: what its nodes are and how they change. All methods that take a node take one that
/// lies inside the pool.
pub trait RadixTree: Send + Sync + Sized {
    /// The machine.
    type Domain: Domain;
    /// The keys.
    type Key: IndexKey + ?Sized;
    /// The digits.
    type Span: Span;
    /// What a slot holds.
    type Word: SlotWord;
    /// Which structure it is.
    const KIND: IndexKind;
    /// What it can be told to do wrong.
    const MUTANTS: Mutants;
    /// Whether a split copies the node that sinks.
    const COPIES_WHAT_SINKS: bool;

    /// Whether a reader can find in a node the child of another slot than it asked for, because the
    /// entry has changed hands meanwhile.
    const ENTRIES_CHANGE_HANDS: bool;

    /// The tree with such a handle.
    fn from_handle(handle: Handle<Self::Domain>) -> Self;

    /// The pool, the root and the locks.
    fn handle(&self) -> &Handle<Self::Domain>;

    /// Makes `change`, durably: by locking stripes, unless the tree has locks of its own.
    ///
    /// # Errors
    /// [`IndexError`]; the tree is as it was.
    #[inline]
    fn change_key(&self, key: &Self::Key, change: Change) -> Result<Outcome, IndexError> {
        Changing::change(self, key, change)
    }

    /// The child that `node` has for `slot`, or nothing; none if the node is beyond the reach.
    fn child_below(
        &self,
        reach: &Reach<'_, Self::Domain>,
        node: Self::Word,
        slot: usize,
    ) -> Option<Self::Word>;

    /// Where the word of that child is, or is to be stored alone to add it; none if the node has no
    /// such place. For writers.
    fn place_of(&self, node: Self::Word, slot: usize) -> Option<Place>;

    /// That place, if it is that of no other slot at any time: where entries of `node` do not
    /// change hands.
    fn fixed_place_of(&self, node: Self::Word, slot: usize) -> Option<Place>;

    /// The child at `rank` or the nearest behind it in this direction, and its rank. Ranks are slots
    /// in key order: the end of a key, then its digits.
    fn next_child(
        &self,
        node: Self::Word,
        rank: usize,
        direction: Direction,
    ) -> Option<(usize, Self::Word)>;

    /// The same forward, of the ranks before `end`: the words of others are not read.
    fn next_child_before(
        &self,
        node: Self::Word,
        rank: usize,
        end: usize,
    ) -> Option<(usize, Self::Word)>;

    /// How many ranks are a stretch of children that is a part of walks of its own; none if `node` has
    /// no room for many, or no word for each. See `radix/stretches.rs`.
    fn stretch_ranks(&self, node: Self::Word) -> Option<usize>;

    /// Any child, or nothing.
    fn any_child(&self, node: Self::Word) -> Self::Word;

    /// Hints that the children of `node` will be read soon.
    fn prefetch_children(&self, node: Self::Word, direction: Direction);

    /// Hints that a child is about to be added to `node`, which has no place for it yet.
    fn prefetch_for_adding(&self, node: Self::Word);

    /// Hints that `node` may be locked soon, if it has a lock of its own.
    #[inline(always)]
    fn prefetch_lock(&self, _node: Self::Word) {}

    /// Bytes of the node's block.
    fn node_bytes(&self, node: Self::Word) -> usize;

    /// What is wrong with a node as such. It is inside the pool.
    fn node_problems(&self, node: Self::Word, report: &mut dyn FnMut(String));

    /// Whether adding a key for which `parent` has no place, or removing one of its leaves, takes
    /// another word for `parent` in the node above. A guess, which need not be right: it decides
    /// what is claimed at first.
    fn replaces_parent(
        &self,
        key: &KeyOf<'_, Self>,
        parent: &Parent<Self::Word>,
        removes: bool,
    ) -> bool;

    /// Adds a leaf where the descent found nothing. Held is the stripe of the node that it ended in.
    ///
    /// # Errors
    /// [`Obstacle`]; the tree is as it was.
    fn add(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle>;

    /// Puts a node with a new leaf and what is there between that and the word that refers to it.
    /// Held are the stripes of the node above, of the new one, and of the one that sinks if it is
    /// copied.
    ///
    /// # Errors
    /// [`Obstacle`]; the tree is as it was.
    fn split(
        &self,
        key: &KeyOf<'_, Self>,
        value: u64,
        split: Split<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle>;

    /// Takes `leaf` out, to which the descent has led. Held is the stripe of the node that it is in.
    ///
    /// # Errors
    /// [`Obstacle`]; the tree is as it was.
    fn unlink(
        &self,
        key: &KeyOf<'_, Self>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle>;
}
