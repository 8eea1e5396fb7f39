//! What removals leave is made smaller: sparse nodes are joined, roots of one child give way to it, and layers of one key
//! to that key.

use lapis_pmem::{Committed, Domain, LockWait};

use super::change::SPARSE;
use super::locks::Locked;
use super::node::{Key, Slice, View, Word, is_beside_permutation};
use super::permutation::{Permutation, WIDTH};
use super::read::Step;
use super::{PMasstree, mutants};
use crate::key::IndexKey;
use crate::radix::Place;

/// Two nodes become one if it has no more entries than this, so that the next insertions do not split it again.
const JOINED: usize = 10;

/// What a look at the way of a key leads to.
enum Tidied {
    /// There is nothing to be done.
    Done,
    /// Something was done, and more may have to be.
    Again,
    /// Others were in the way.
    Overtaken,
}

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// Makes smaller what can be on the way of `key`, which was removed, and completes what a crash has left undone
    /// there.
    #[cold]
    pub(super) fn tidy(&self, key: &Key<'_, K>) {
        let mut wait = LockWait::default();
        loop {
            match self.try_tidy(key) {
                Tidied::Done => return,
                Tidied::Again => {}
                Tidied::Overtaken => wait.once(self.handle.pool.domain()),
            }
        }
    }

    fn try_tidy(&self, key: &Key<'_, K>) -> Tidied {
        let domain = self.handle.pool.domain();
        let _pinned = self.handle.pool.pin();
        let path = self.path(key);
        let said = |done: Option<Committed>| done.map_or(Tidied::Overtaken, |_| Tidied::Again);
        let Some(mut step) = path.last().copied() else { return Tidied::Done };
        let keys = step.view.permutation;
        if step.is_layer_root() && self.gives_way(&step.view, keys, step.layer) {
            let Some(locked) = self.try_lock(&mut step.view) else { return Tidied::Overtaken };
            return said(self.lift(&path, keys, locked));
        }
        for step in path.iter().rev() {
            let count = step.view.live_count(domain);
            let Some(parent) = step.above.parent() else {
                if step.view.is_interior() && count == 1 {
                    return said(self.collapse(*step));
                }
                break;
            };
            if count <= SPARSE {
                let index = parent.child_index(domain, Slice::of(key, step.layer), false);
                let neighbours = [index.checked_sub(1), Some(index + 1)];
                for neighbour in neighbours.into_iter().flatten() {
                    if neighbour < parent.live_count(domain)
                        && let Some(partner) = self.partner(parent, neighbour, &step.view)
                    {
                        let (left, right) = match neighbour < index {
                            true => (partner, step.view),
                            false => (step.view, partner),
                        };
                        return said(self.join(left, right, *parent, index.max(neighbour)));
                    }
                }
            }
        }
        Tidied::Done
    }

    /// The child at `index`, if it can take in the entries of `view`, which is beside it, or give it its own.
    fn partner(&self, parent: &View<'_>, index: usize, view: &View<'_>) -> Option<View<'_>> {
        let domain = self.handle.pool.domain();
        let link = parent.word(domain, parent.permutation.slot(index)).node();
        let partner = self.view(link, parent.bounds_below(domain, index));
        let count = view.live_count(domain);
        // As few as there can be.
        let is_bare = count == usize::from(view.is_interior());
        let limit = if is_bare { WIDTH } else { JOINED };
        (count + partner.live_count(domain) <= limit).then_some(partner)
    }

    /// Moves the entries of the child at `index` of `parent` to the one before it. M4: they are beyond its bound until
    /// the parent has no separator between the two any more.
    fn join<'t>(
        &'t self,
        mut left: View<'t>,
        mut right: View<'t>,
        mut parent: View<'t>,
        index: usize,
    ) -> Option<Committed> {
        let domain = self.handle.pool.domain();
        let left_locked = self.try_lock(&mut left)?;
        let right_locked = self.try_lock(&mut right)?;
        let parent_locked = self.try_lock(&mut parent)?;
        let mut moved = right.entries(domain, 0..right.permutation.count());
        domain.happens(match (right.is_interior(), moved.len()) {
            (true, _) => "two interior nodes are joined",
            (false, 0) => "an empty border node goes",
            (false, _) => "two border nodes are joined",
        });
        if let (true, Some((bits, word))) = (right.is_interior(), moved.first_mut()) {
            let separator = parent.slice(domain, index);
            *bits = separator.bits;
            *word = Word::new(Word(*word).node(), separator.class).0;
        }
        let take_out = || {
            let fewer = parent.permutation.without(index);
            self.unlink(parent.permutation_place(), fewer.0, [right])
        };
        let early = domain.commits(mutants::RIGHT_NODE_UNLINKED_FIRST).then(take_out);
        if !moved.is_empty() {
            self.append(&left, &moved)?;
            if !domain.commits(mutants::JOINING_UNNOTED) {
                left_locked.note_change();
            }
        }
        let committed = early.unwrap_or_else(take_out);
        parent_locked.note_change();
        if !(right.is_interior() && domain.commits(mutants::INTERIOR_NODE_UNCOUNTED)) {
            right_locked.note_unlinking();
        }
        Some(committed)
    }

    /// Makes the one store after which these nodes cannot be reached (M8).
    fn unlink<'v>(
        &self,
        place: Place,
        word: u64,
        nodes: impl IntoIterator<Item = View<'v>>,
    ) -> Committed {
        let committed = self.handle.publish(place, (), |()| word);
        let pool = &self.handle.pool;
        let pinned = pool.pin();
        for view in nodes {
            pool.retire(view.link, size_of_val(view.node), committed, &pinned);
        }
        committed
    }

    /// Adds entries behind the last one of a node, which has room.
    fn append(&self, view: &View<'_>, entries: &[(u64, u64)]) -> Option<Committed> {
        let domain = self.handle.pool.domain();
        let mut after = view.permutation;
        for &entry in entries {
            let slot = after.free_slot()?;
            view.write_entry(domain, slot, entry);
            after = after.with(after.count(), slot);
        }
        let mut written: Vec<usize> = after.slots().skip(view.permutation.count()).collect();
        written.retain(|&slot| !is_beside_permutation(slot));
        // One flush for each line, of which there are four entries.
        written.sort_unstable();
        written.dedup_by_key(|slot| (*slot + 2) / 4);
        for &slot in &written {
            let _mutant = domain.omitting(mutants::MISSING_ENTRY_FLUSH);
            domain.flush(&view.node.entries[slot]);
        }
        if !written.is_empty() {
            self.fence_new(());
        }
        Some(self.handle.publish(view.permutation_place(), (), |()| after.0))
    }

    /// Puts the only child of a layer's root in its place.
    fn collapse<'t>(&'t self, mut step: Step<'t>) -> Option<Committed> {
        let domain = self.handle.pool.domain();
        let locked = self.try_lock(&mut step.view)?;
        let above_locked = self.try_lock_above(&mut step.above)?;
        domain.happens("a root gives way to its only child");
        let child = step.view.word(domain, step.view.permutation.slot(0)).node();
        let word = step.above.word.with_node(child);
        let committed = self.unlink(step.above.place, word.0, [step.view]);
        above_locked.note_change();
        locked.note_unlinking();
        Some(committed)
    }

    /// Whether a layer whose only node keeps these entries is none: it has no key, or below the first one it
    /// has one, which the layer above has a place for.
    pub(super) fn gives_way(&self, view: &View<'_>, left: Permutation, layer: usize) -> bool {
        let word = || view.word(self.handle.pool.domain(), left.slot(0));
        match left.count() {
            _ if view.is_interior() => false,
            0 => true,
            1 => layer > 0 && !word().is_layer(),
            _ => false,
        }
    }

    /// Takes a layer out, whose only node is the last on the `path` and locked: the one key that it may keep goes to
    /// the layer above, and so past those that have nothing but this one. None, and nothing stored, if
    /// others are in the way.
    pub(super) fn lift(
        &self,
        path: &[Step<'_>],
        left: Permutation,
        locked: Locked<'_, D>,
    ) -> Option<Committed> {
        let domain = self.handle.pool.domain();
        let bottom = path.last()?.view;
        let survivor = (left.count() == 1).then(|| bottom.word(domain, left.slot(0)).leaf());
        let mut unlinked = vec![locked];
        let mut at = path.len() - 1;
        while let Some(mut step) = at.checked_sub(1).map(|before| path[before]) {
            let goes_too = step.is_layer_root()
                && step.view.permutation.count() == 1
                && (step.layer > 0 || survivor.is_none());
            if !goes_too {
                break;
            }
            unlinked.push(self.try_lock(&mut step.view)?);
            at -= 1;
        }
        let mut above = path[at].above;
        let above_locked = self.try_lock_above(&mut above)?;
        domain.happens(match (unlinked.len(), survivor) {
            (1, Some(_)) => "a layer gives way to its last key",
            (_, Some(_)) => "several layers give way to their last key",
            (_, None) => "the last key goes with its layer",
        });
        let (place, word) = match (survivor, above.view) {
            (Some(leaf), _) => (above.place, Word::new(leaf, Slice::LONG).0),
            (None, None) => (above.place, 0),
            (None, Some(view)) => {
                let index = view.permutation.slots().position(|it| view.place(it) == above.place);
                (view.permutation_place(), view.permutation.without(index?).0)
            }
        };
        let committed = self.unlink(place, word, path[at..].iter().map(|step| step.view));
        above_locked.note_change();
        unlinked.iter().for_each(Locked::note_unlinking);
        Some(committed)
    }
}
