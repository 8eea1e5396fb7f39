//! The way of a key down a tree: to its leaf, or to where it belongs.

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Guard, Link, Observed, Reach};

use super::digits::{Digits, Span};
use super::header::Header;
use super::leaf::{Leaf, key_in_leaf, leaf_key};
use super::stripes::Claims;
use super::tree::{Descent, HeaderOf, KeyOf, Parent, RadixTree, Split};
use super::word::{Place, SlotWord};
use super::{damaged, damaged_word};
use crate::in_turns;
use crate::index::{Direction, IndexError};

impl<T: RadixTree> Descent<T> {
    /// The beginning of every descent.
    #[inline(always)]
    pub fn at_top(tree: &T) -> Self {
        let (place, child) = (tree.handle().top, tree.top_child());
        Self { child, place, depth: 0, parent: None, exact: true, leaves: None }
    }
}

/// Where a key is, or belongs.
pub enum Located<T: RadixTree> {
    Present(Link<Leaf>),
    /// Where the descent ended there is nothing and the key belongs.
    Vacant,
    Differs(Split<T>),
    /// Somewhere else; nobody wants to add it.
    Absent,
}

/// The first word on a way that refers to what lies behind a position.
pub struct FirstBehind<T: RadixTree> {
    place: Place,
    /// The node that it is in; none if it is the root's.
    above: Option<T::Word>,
    child: T::Word,
    /// Where the prefix of what it refers to starts.
    depth: usize,
}

/// Descents of every radix tree.
pub trait Descending: RadixTree {
    /// The word at `place`; what it refers to was written before it.
    #[inline(always)]
    fn child_at(&self, place: Place) -> Self::Word {
        let handle = self.handle();
        Self::Word::from_bits(handle.pool.at(place).load_acquire(handle.pool.domain()))
    }

    /// The child that `node` has for `slot` and where its word is, or where it is to be stored; no
    /// place if the node has none. What is found was in that slot at some instant during the call.
    #[inline(always)]
    fn step(&self, node: Self::Word, slot: usize) -> (Place, Self::Word) {
        if let Some(place) = self.fixed_place_of(node, slot) {
            return (place, self.child_at(place));
        }
        loop {
            let Some(place) = self.place_of(node, slot) else {
                return (Link::NULL, Self::Word::NONE);
            };
            let child = self.child_at(place);
            // Entries change hands.
            if self.place_of(node, slot) == Some(place) {
                return (place, child);
            }
        }
    }

    /// The branch position of a node, which is at least `floor` (I2).
    ///
    /// # Panics
    /// If it is not: the pool is damaged, and going on might never end.
    #[inline(always)]
    fn position_from(&self, node: Self::Word, floor: usize) -> usize {
        let position = node.position::<Self::Key>();
        if position < floor {
            damaged_word(node.bits());
        }
        position
    }

    /// The key of the leaf at `link`; none if there cannot be a leaf.
    #[inline(always)]
    fn key_of_leaf(&self, link: Link<Leaf>) -> Option<KeyOf<'_, Self>> {
        leaf_key(&self.handle().pool, link)
    }

    /// The value of the leaf of `key`, if there is one. The caller has pinned the pool.
    #[inline(always)]
    fn find(&self, key: &KeyOf<'_, Self>) -> Option<u64> {
        let reach = &self.handle().pool.reach();
        match self.find_within(reach, key) {
            Ok(value) => value,
            Err(child) => self.find_beyond(*reach, *key, child),
        }
    }

    /// As [`Descending::find`]; or the word that led out of the reach.
    #[inline(always)]
    fn find_within(
        &self,
        reach: &Reach<'_, Self::Domain>,
        key: &KeyOf<'_, Self>,
    ) -> Result<Option<u64>, Self::Word> {
        let mut child = self.top_child();
        let mut floor = 0;
        while !child.is_leaf() {
            let Some(slot) = self.slot_on_way(key, child, &mut floor) else { return Ok(None) };
            child = self.child_below(reach, child, slot).ok_or(child)?;
        }
        self.find_in_leaf(reach, key, child)
    }

    /// The value of `leaf` if it is that of `key`; or the word, if it leads out of the reach.
    #[inline(always)]
    fn find_in_leaf(
        &self,
        reach: &Reach<'_, Self::Domain>,
        key: &KeyOf<'_, Self>,
        leaf: Self::Word,
    ) -> Result<Option<u64>, Self::Word> {
        let (pool, link) = (reach.pool(), leaf.as_leaf());
        let leaf = reach.try_at(link).ok_or(leaf)?;
        let found: Option<KeyOf<'_, Self>> = key_in_leaf(pool, leaf, link);
        Ok(found.filter(|found| key.is(found)).map(|_| leaf.value.load_acquire(pool.domain())))
    }

    /// As [`Descending::find`], where `child` is beyond the reach: the pool has grown, or is damaged.
    ///
    /// # Panics
    /// If the pool is damaged where nodes should be.
    #[cold]
    #[inline(never)]
    fn find_beyond(
        &self,
        reach: Reach<'_, Self::Domain>,
        key: KeyOf<'_, Self>,
        child: Self::Word,
    ) -> Option<u64> {
        match reach.renewed() {
            Some(_) => self.find(&key),
            None if child.is_leaf() => None,
            None => damaged_word(child.bits()),
        }
    }

    /// What the root refers to.
    #[inline(always)]
    fn top_child(&self) -> Self::Word {
        let handle = self.handle();
        Self::Word::from_bits(handle.root_block.top.word().load_acquire(handle.pool.domain()))
    }

    /// The slot of `key` in `node`, whose branch position is at least `floor`; none if there is
    /// neither.
    #[inline(always)]
    fn slot_on_way(
        &self,
        key: &KeyOf<'_, Self>,
        node: Self::Word,
        floor: &mut usize,
    ) -> Option<usize> {
        // Of words that are whole only nothing has no link: one test for it, and for where the node is.
        if node.header_place().is_null() {
            return self.nothing(node);
        }
        let position = self.position_from(node, *floor);
        *floor = position + 1;
        key.slot_at(position)
    }

    /// # Panics
    /// If the word is not nothing.
    #[cold]
    fn nothing(&self, child: Self::Word) -> Option<usize> {
        if child.is_none() { None } else { damaged_word(child.bits()) }
    }

    /// As [`Descending::find`], in turns with others: each step has its line on its way before
    /// another's goes on.
    async fn find_in_turns(
        &self,
        key: &KeyOf<'_, Self>,
        turn: Turn<'_, Self::Domain>,
    ) -> Option<u64> {
        let pool = &self.handle().pool;
        let reach = &pool.reach();
        let mut child = self.top_child();
        let mut floor = 0;
        while !child.is_leaf() {
            let slot = self.slot_on_way(key, child, &mut floor)?;
            pool.prefetch(self.fixed_place_of(child, slot).unwrap_or(child.header_place()));
            turn.give_way().await;
            let Some(below) = self.child_below(reach, child, slot) else { return self.find(key) };
            child = below;
        }
        pool.prefetch(child.as_leaf());
        turn.give_way().await;
        self.find_in_leaf(reach, key, child).unwrap_or_else(|_| self.find(key))
    }

    /// See [`crate::Index::get_many`].
    fn get_values(&self, keys: &[&Self::Key], answer: &mut dyn FnMut(usize, Option<u64>)) {
        let handle = self.handle();
        let look_up = async |key: &Self::Key, turn: Turn<'_, Self::Domain>| {
            let mut space = [0; 8];
            let value = self.find_in_turns(&Digits::of(key, &mut space), turn).await;
            handle.persist_before_return();
            value
        };
        in_turns::get_many(&handle.pool, keys, look_up, answer);
    }

    /// See [`crate::Index::get`].
    #[inline]
    fn get_value(&self, key: &Self::Key) -> Option<u64> {
        self.get_value_pinned(key, &self.handle().pool.pin())
    }

    /// See [`crate::Index::get_pinned`].
    #[inline]
    fn get_value_pinned(&self, key: &Self::Key, _pinned: &Guard<'_, Self::Domain>) -> Option<u64> {
        let mut space = [0; 8];
        let key = Digits::of(key, &mut space);
        let value = self.find(&key);
        self.handle().persist_before_return();
        value
    }

    /// Follows `key` from the top to where it ends. If it `adds` the key, compares it with the headers on the
    /// way as long as they hold whole prefixes; otherwise skips prefixes, as readers do. The caller
    /// has pinned the pool; others may be writing.
    #[inline(always)]
    fn descend(
        &self,
        key: &KeyOf<'_, Self>,
        adds: bool,
        descent: &mut Descent<Self>,
    ) -> Result<(), IndexError> {
        // In variables of its own, and few: as long as a processor drains what the change before this one has
        // stored, it goes down no farther than its store buffer has room for what the loop stores.
        let (mut place, mut child, mut depth) = (descent.place, descent.child, descent.depth);
        let (mut above, mut above_place, mut above_depth) = (Self::Word::NONE, place, depth);
        let mut exact = adds;
        while !child.is_none() && !child.is_leaf() {
            self.prefetch_lock(child);
            let position = self.position_from(child, depth);
            if position > depth && exact {
                let header = self.header_of(child, depth)?;
                if let Some(differs) = header.first_difference(key) {
                    descent.leaves = Some((header, differs));
                    break;
                }
                exact = header.is_whole();
            }
            let Some(slot) = key.slot_at(position) else { break };
            (above, above_place, above_depth) = (child, place, depth);
            (place, child) = self.step(child, slot);
            depth = position + 1;
        }
        (descent.place, descent.child, descent.depth, descent.exact) = (place, child, depth, exact);
        let parent = Parent { node: above, place: above_place, depth: above_depth };
        descent.parent = (!above.is_none()).then_some(parent);
        Ok(())
    }

    /// Compares `key` with what the descent found. An error that is [`IndexError::Damaged`] may come of
    /// others who are writing; with all stripes held it does not.
    #[inline(always)]
    fn locate(
        &self,
        key: &KeyOf<'_, Self>,
        descent: &Descent<Self>,
        adds: bool,
    ) -> Result<Located<Self>, IndexError> {
        let Descent { child, place, depth, ref parent, leaves, .. } = *descent;
        let above = parent.as_ref().map(|parent| parent.node);
        if let Some((header, position)) = leaves {
            let slot = header.digit_at(position);
            let header = header.sunk_to(position + 1);
            let split = Split { place, above, child, position, slot, depth, header };
            return Ok(Located::Differs(split));
        }
        if !child.is_leaf() && !adds {
            return Ok(Located::Absent);
        }
        if descent.is_plainly_vacant() {
            return Ok(Located::Vacant);
        }
        let witness = match parent {
            // Any leaf below the node knows its prefix (I3).
            Some(parent) if child.is_none() => parent.node,
            _ => child,
        };
        let (witness, known) = self.leaf_below(witness)?;
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
        let (known, place, above, child, depth) = if !child.is_none() && depth <= position {
            (known, place, above, child, depth)
        } else {
            let FirstBehind { place, above, child, depth } = self.first_behind(key, position)?;
            // Between the two walks others may have put something else there.
            let (_, known) = self.leaf_below(child)?;
            if depth > position || key.first_difference(&known) != Some(position) {
                return Err(damaged("a key is in the wrong place"));
            }
            (known, place, above, child, depth)
        };
        let slot = known
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        let header = (!child.is_leaf())
            .then(|| Header::of(&known, position + 1, child.position::<Self::Key>()));
        Ok(Located::Differs(Split { place, above, child, position, slot, depth, header }))
    }

    /// Whether `above`, or the root, has still `child` at `place` for `key`, or no place if that is
    /// null. The caller holds its stripe, and has pinned the pool since it found them.
    #[inline(always)]
    fn has_still(
        &self,
        key: &KeyOf<'_, Self>,
        above: Option<Self::Word>,
        place: Place,
        child: Self::Word,
    ) -> bool {
        let now = match above {
            Some(node) => match key.slot_at(node.position::<Self::Key>()) {
                Some(slot) => self.place_of(node, slot).unwrap_or(Link::NULL),
                None => return false,
            },
            None => place,
        };
        // A child may be left over in an entry that does not count any more: its place says so.
        now == place && (place.is_null() || self.child_at(place) == child)
    }

    /// The first word on the way of `key` that is a leaf or a node branching behind `position`.
    fn first_behind(
        &self,
        key: &KeyOf<'_, Self>,
        position: usize,
    ) -> Result<FirstBehind<Self>, IndexError> {
        let wrong_place = || damaged("a key is in the wrong place");
        let mut place = self.handle().top;
        let mut child = self.child_at(place);
        let mut above = None;
        let mut depth = 0;
        loop {
            if child.is_none() {
                return Err(wrong_place());
            }
            if child.is_leaf() || child.position::<Self::Key>() > position {
                return Ok(FirstBehind { place, above, child, depth });
            }
            let branch = child.position::<Self::Key>();
            let slot = key.slot_at(branch).ok_or_else(wrong_place)?;
            above = Some(child);
            (place, child) = self.step(child, slot);
            depth = branch + 1;
        }
    }

    /// The header of `node`, whose prefix starts at `depth`.
    #[inline]
    fn header_of(&self, node: Self::Word, depth: usize) -> Result<HeaderOf<Self>, IndexError> {
        let handle = self.handle();
        let word = handle.pool.at(node.header_place()).load(handle.pool.domain());
        let header = HeaderOf::<Self>::from_bits(word);
        if header.depth() != depth {
            return self.recover_header(node, depth);
        }
        // I8: true at its own depth, and so right at this one.
        if header.position() != node.position::<Self::Key>() {
            return Err(damaged("a node's header does not end at its branch position"));
        }
        Ok(header)
    }

    /// Rebuilds the header of `node`, which is stale, from a leaf below it. Nobody need hold the
    /// node's stripe: what two writers store at the same time is true, whichever comes last (I8).
    #[cold]
    fn recover_header(&self, node: Self::Word, depth: usize) -> Result<HeaderOf<Self>, IndexError> {
        let header = self.true_header(node, depth)?;
        self.handle().pool.domain().happens("a stale header is made right");
        self.set_header(node, header);
        Ok(header)
    }

    /// The header that is right for `node` if its prefix starts at `depth`, from a leaf below it.
    fn true_header(&self, node: Self::Word, depth: usize) -> Result<HeaderOf<Self>, IndexError> {
        let _pinned = self.handle().pool.pin();
        let (_, known) = self.leaf_below(node)?;
        Ok(Header::of(&known, depth, node.position::<Self::Key>()))
    }

    /// The stripe of `node`, whose own digits a leaf below it knows.
    fn claims_of(&self, node: Self::Word) -> Result<Claims, IndexError> {
        let _pinned = self.handle().pool.pin();
        let (_, known) = self.leaf_below(node)?;
        Ok(Claims::of_branch(&known, node.position::<Self::Key>()))
    }

    /// Gives `node` a header that is right where it is now. Not flushed: whichever of a node's
    /// headers a power cut leaves is true (I8), and has another depth if it is not the last.
    /// The caller has pinned the pool since the node was reachable.
    #[inline]
    fn set_header(&self, node: Self::Word, header: HeaderOf<Self>) {
        let handle = self.handle();
        handle.pool.at(node.header_place()).store_ordered(handle.pool.domain(), header.bits());
    }

    /// A leaf below `child`, which is not nothing. None if there is a node without children.
    fn any_leaf(&self, child: Self::Word) -> Option<Link<Leaf>> {
        let mut child = child;
        let mut floor = 0;
        while !child.is_leaf() {
            let position = self.position_from(child, floor);
            child = self.any_child(child);
            if child.is_none() {
                return None;
            }
            floor = position + 1;
        }
        Some(child.as_leaf())
    }

    /// A leaf below `child`, which is not nothing, and its key, while others may be writing. The
    /// caller has pinned the pool.
    fn leaf_below(&self, child: Self::Word) -> Result<(Link<Leaf>, KeyOf<'_, Self>), IndexError> {
        // A node has children at every instant (I4), yet writers can fill a slot behind this walk
        // and empty the one before it. They would have to do so again in every attempt.
        const ATTEMPTS: usize = 1000;
        let leaf = (0..ATTEMPTS)
            .find_map(|_| self.any_leaf(child))
            .ok_or_else(|| damaged("a node has no children"))?;
        let key =
            self.key_of_leaf(leaf).ok_or_else(|| damaged("a leaf's key is outside the pool"))?;
        Ok((leaf, key))
    }

    /// The rank before all others of a node that branches at `position`, seen in this direction.
    #[inline(always)]
    fn first_rank(position: usize, direction: Direction) -> usize {
        match direction {
            Direction::Forward => usize::from(!Self::Span::has_end_slot::<Self::Key>(position)),
            Direction::Backward => Self::Span::SLOTS,
        }
    }
}

impl<T: RadixTree> Descending for T {}
