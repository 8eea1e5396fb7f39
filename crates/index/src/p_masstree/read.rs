//! The way of a key down the layers.
//!
//! A reader looks at a node's lock and permutation, and then once more at the node above: if that has changed,
//! or the word there that led here, it begins anew. So the permutation was that of the node to which the key belonged
//! when it was read. What lies in its slots stays there as long as no section of the node's lock ends (M5).

use std::ops::ControlFlow;

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, LINE_BYTES, Link, PCell};

use super::node::{BORDER, Key, Node, Slice, View, Word};
use super::{PMasstree, mutants};
use crate::key::IndexKey;
use crate::radix::{Digits, Leaf, Place, damaged_word, leaf_key};

/// The word that led to a node, and the node it is in; none if it is the root's.
#[derive(Clone, Copy)]
pub struct Above<'t> {
    pub view: Option<View<'t>>,
    pub place: Place,
    pub word: Word,
}

impl<'t> Above<'t> {
    /// The node it is in, if that is an interior node of the same layer.
    #[inline(always)]
    pub fn parent(&self) -> Option<&View<'t>> {
        self.view.as_ref().filter(|view| view.is_interior())
    }
}

/// What is looked for in a layer.
#[derive(Clone, Copy)]
pub struct Aim {
    pub slice: Slice,
    /// What comes right before it is looked for.
    pub strictly_below: bool,
    /// The way goes on in the next layer, if the slice has one.
    pub enters: bool,
}

impl Aim {
    #[inline(always)]
    fn at<K: IndexKey + ?Sized>(key: &Key<'_, K>, layer: usize) -> Self {
        let slice = Slice::of(key, layer);
        Self { slice, strictly_below: false, enters: slice.is_long() }
    }
}

/// A node on the way.
#[derive(Clone, Copy)]
pub struct Step<'t> {
    pub above: Above<'t>,
    pub view: View<'t>,
    pub layer: usize,
}

impl Step<'_> {
    /// Whether it is the highest of its layer.
    #[inline(always)]
    pub fn is_layer_root(&self) -> bool {
        self.above.parent().is_none()
    }
}

/// A way down: the word that leads on, and what is looked for behind it.
#[derive(Clone, Copy)]
pub struct Way<'t> {
    above: Above<'t>,
    layer: usize,
    aimed: Aim,
    bounds: [Option<Slice>; 2],
}

/// The border node where a way ends.
#[derive(Clone, Copy)]
pub struct Spot<'t> {
    pub step: Step<'t>,
    /// Where the entry of the slice is, or would be, and its slot if it is there.
    pub index: usize,
    pub slot: Option<usize>,
}

/// What a border node has for a key.
#[derive(Clone, Copy)]
pub enum Found {
    Nothing,
    /// The key; this is where its value is.
    Key(Place),
    /// The leaf of another key that goes on from the same slice.
    Other(Link<Leaf>),
}

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// The word at `place`; what it refers to was written before it.
    #[inline(always)]
    pub(super) fn word_at(&self, place: Place) -> Word {
        Word(self.handle.pool.at(place).load_acquire(self.handle.pool.domain()))
    }

    #[inline(always)]
    pub(super) fn view(&self, link: Link<Node>, bounds: [Option<Slice>; 2]) -> View<'_> {
        let pool = &self.handle.pool;
        self.prefetch_rest(link);
        View::of(pool.domain(), pool.at(link), link, K::INLINE, bounds)
    }

    /// All lines of a node but the first.
    #[inline(always)]
    fn prefetch_rest(&self, link: Link<Node>) {
        let pool = &self.handle.pool;
        if pool.domain().prefetches() {
            for line in 1..(size_of::<Node>() / LINE_BYTES) as u64 {
                pool.prefetch::<PCell<u64>>(Link::from_bits(
                    link.offset() + line * LINE_BYTES as u64,
                ));
            }
        }
    }

    #[inline(always)]
    fn still_leads(&self, above: &Above<'_>) -> bool {
        self.word_at(above.place) == above.word
            && above.view.is_none_or(|view| view.is_unchanged(self.handle.pool.domain()))
    }

    /// Goes down to a border node, and shows the nodes on the way to `show`, from the first layer's root on; if
    /// that comes again, the way has begun anew. None if there is no node. Bounds are found only where they
    /// are asked for. The caller has pinned the pool.
    ///
    /// # Panics
    /// If a node is of another height or layer than its place: the pool is damaged, and going on might never end.
    #[inline(always)]
    pub(super) fn descend<'t, const BOUNDS: bool>(
        &'t self,
        aim: impl Fn(usize) -> Aim,
        show: impl FnMut(&Step<'t>),
    ) -> Option<Spot<'t>> {
        self.descend_from::<BOUNDS>(self.begin(&aim)?, aim, show)
    }

    /// The same, from a node that somebody has gone down to before and has pinned the pool since.
    #[inline(always)]
    pub(super) fn descend_from<'t, const BOUNDS: bool>(
        &'t self,
        mut way: Way<'t>,
        aim: impl Fn(usize) -> Aim,
        mut show: impl FnMut(&Step<'t>),
    ) -> Option<Spot<'t>> {
        loop {
            match self.pass::<BOUNDS>(&mut way, &aim, &mut show) {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(None) => way = self.begin(&aim)?,
                ControlFlow::Break(spot) => return spot,
            }
        }
    }

    /// At the root of the first layer. None if there is no node.
    #[inline(always)]
    pub(super) fn begin(&self, aim: impl Fn(usize) -> Aim) -> Option<Way<'_>> {
        let place = self.handle.top;
        let above = Above { view: None, place, word: self.word_at(place) };
        (above.word.0 != 0).then(|| Way { above, layer: 0, aimed: aim(0), bounds: [None; 2] })
    }

    /// Looks at the node that a way has come to, and goes on to the next, unless it is the border node. Breaks with
    /// nothing if what led to it does no longer: the way begins again.
    #[inline(always)]
    fn pass<'t, const BOUNDS: bool>(
        &'t self,
        way: &mut Way<'t>,
        aim: impl Fn(usize) -> Aim,
        mut show: impl FnMut(&Step<'t>),
    ) -> ControlFlow<Option<Spot<'t>>> {
        let domain = self.handle.pool.domain();
        let Way { above, layer, aimed, bounds } = *way;
        let view = self.view(above.word.node(), bounds);
        if !self.still_leads(&above) {
            return ControlFlow::Break(None);
        }
        let is_in_place = view.height >= BORDER
            && view.node.layer.load(domain) == layer as u64
            && above.parent().is_none_or(|parent| parent.height == view.height + 1);
        if !is_in_place {
            damaged_word(above.word.0);
        }
        let step = Step { above, view, layer };
        show(&step);
        if view.is_interior() {
            let index = view.child_index(domain, aimed.slice, aimed.strictly_below);
            if BOUNDS {
                way.bounds = view.bounds_below(domain, index);
            }
            let slot = view.permutation.slot(index);
            let word = view.word(domain, slot);
            way.above = Above { view: Some(view), place: view.place(slot), word };
            return ControlFlow::Continue(());
        }
        let (index, slot) = view.search(domain, aimed.slice);
        if aimed.enters
            && let Some(slot) = slot
        {
            let word = view.word(domain, slot);
            if word.is_layer() {
                let above = Above { view: Some(view), place: view.place(slot), word };
                let layer = layer + 1;
                *way = Way { above, layer, aimed: aim(layer), bounds: [None; 2] };
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(Some(Spot { step, index, slot }))
    }

    /// The way to another place of the layer in which somebody has been at `last`, if it goes through the node above
    /// that.
    #[inline(always)]
    pub(super) fn way_beside<'t>(&self, last: &Step<'t>, aimed: Aim) -> Option<Way<'t>> {
        let domain = self.handle.pool.domain();
        let &Step { above, layer, .. } = last;
        let Some(parent) = above.parent() else {
            return Some(Way { above, layer, aimed, bounds: [None; 2] });
        };
        let is_below = parent.upper.is_none_or(|upper| aimed.slice < upper)
            && parent.lower.is_none_or(|lower| match aimed.strictly_below {
                true => aimed.slice > lower,
                false => aimed.slice >= lower,
            });
        if !is_below {
            return None;
        }
        let index = parent.child_index(domain, aimed.slice, aimed.strictly_below);
        let slot = parent.permutation.slot(index);
        let above = Above { place: parent.place(slot), word: parent.word(domain, slot), ..above };
        Some(Way { above, layer, aimed, bounds: parent.bounds_below(domain, index) })
    }

    /// Where `key` belongs. The caller has pinned the pool.
    #[inline(always)]
    pub(super) fn spot<'t, const BOUNDS: bool>(&'t self, key: &Key<'_, K>) -> Option<Spot<'t>> {
        self.descend::<BOUNDS>(|layer| Aim::at(key, layer), |_| ())
    }

    /// All nodes on the way of `key`. The caller has pinned the pool.
    pub(super) fn path(&self, key: &Key<'_, K>) -> Vec<Step<'_>> {
        let mut path = Vec::with_capacity(16);
        let _ = self.descend::<true>(
            |layer| Aim::at(key, layer),
            |step| {
                if step.above.view.is_none() {
                    path.clear();
                }
                path.push(*step);
            },
        );
        path
    }

    /// What the border node at `spot` has for `key`; none if a layer has come there since the way ended there.
    #[inline(always)]
    pub(super) fn found_at(&self, key: &Key<'_, K>, spot: &Spot<'_>) -> Option<Found> {
        let Some(slot) = spot.slot else { return Some(Found::Nothing) };
        let view = &spot.step.view;
        if K::INLINE {
            return Some(Found::Key(view.place(slot)));
        }
        let word = view.word(self.handle.pool.domain(), slot);
        if word.is_layer() {
            return None;
        }
        let leaf = word.leaf();
        Some(match self.key_of_leaf(leaf, view) {
            Some(known) if known.is(key) => Found::Key(leaf.cast()),
            Some(_) => Found::Other(leaf),
            None => Found::Nothing,
        })
    }

    /// The key of a leaf in `view`; none if the node's entries are others by now.
    ///
    /// # Panics
    /// If there cannot be a leaf: the pool is damaged.
    #[inline(always)]
    pub(super) fn key_of_leaf(&self, leaf: Link<Leaf>, view: &View<'_>) -> Option<Key<'_, K>> {
        let key = leaf_key(&self.handle.pool, leaf);
        if key.is_none() && view.has_its_entries(self.handle.pool.domain()) {
            damaged_word(leaf.bits());
        }
        key
    }

    /// The value of `key`. The caller has pinned the pool.
    #[inline(always)]
    pub(super) fn find(&self, key: &Key<'_, K>) -> Option<u64> {
        loop {
            let spot = self.spot::<false>(key)?;
            if let Some(answer) = self.answer_at(key, &spot) {
                return answer;
            }
        }
    }

    /// The value of `key`, in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let mut space = [0; 8];
        let key = Digits::of(key, &mut space);
        let aim = |layer| Aim::at(&key, layer);
        let value = loop {
            let Some(mut way) = self.begin(aim) else { break None };
            let spot = loop {
                let node = way.above.word.node();
                self.handle.pool.prefetch(node);
                self.prefetch_rest(node);
                turn.give_way().await;
                if let ControlFlow::Break(spot) = self.pass::<false>(&mut way, aim, |_| ()) {
                    break spot;
                }
            };
            if let Some(answer) = spot.and_then(|spot| self.answer_at(&key, &spot)) {
                break answer;
            }
        };
        let _mutant = self.handle.pool.domain().omitting(mutants::UNPERSISTED_IN_TURNS);
        self.handle.persist_before_return();
        value
    }

    /// The value of `key` in the border node at `spot`; nothing if that has other entries by now.
    #[inline(always)]
    fn answer_at(&self, key: &Key<'_, K>, spot: &Spot<'_>) -> Option<Option<u64>> {
        let value = match self.found_at(key, spot)? {
            Found::Key(place) => Some(self.value_at(place)),
            Found::Nothing | Found::Other(_) => None,
        };
        let domain = self.handle.pool.domain();
        let counts =
            spot.step.view.has_its_entries(domain) || domain.commits(mutants::ANSWER_UNCHECKED);
        counts.then_some(value)
    }

    #[inline(always)]
    pub(super) fn value_at(&self, place: Place) -> u64 {
        self.handle.pool.at(place).load_acquire(self.handle.pool.domain())
    }
}
