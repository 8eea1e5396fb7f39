//! Making room: a full node is split, and before it the full nodes above it, from the highest one on.

use lapis_pmem::{Domain, InFlight, Owned};

use super::node::{Key, Node, Slice, Word, is_beside_permutation, write_node, written_bytes};
use super::permutation::WIDTH;
use super::read::Step;
use super::{LOCK_MUTANTS, PMasstree, mutants};
use crate::index::IndexError;
use crate::key::IndexKey;

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    /// Splits the highest node of those that are full from the border node of `key` upwards without a gap. Or does
    /// nothing, if others are at work there.
    #[cold]
    pub(super) fn make_room(&self, key: &Key<'_, K>) -> Result<(), IndexError> {
        let pinned = self.handle.pool.pin();
        let path = self.path(key);
        let is_full = |at: usize| path[at].view.permutation.is_full();
        let Some(mut at) = path.len().checked_sub(1).filter(|&last| is_full(last)) else {
            return Ok(());
        };
        while path[at].above.parent().is_some() && is_full(at - 1) {
            at -= 1;
        }
        let mut step = path[at];
        let Some(locked) = self.try_lock(&mut step.view) else { return Ok(()) };
        let Some(above_locked) = self.try_lock_above(&mut step.above) else { return Ok(()) };
        drop(pinned);
        // There may have been something beyond its bound.
        if step.view.permutation.is_full() {
            self.split(Slice::of(key, step.layer), &mut step)?;
            locked.note_change();
            if !self.handle.pool.domain().commits(mutants::SPLIT_UNNOTED) {
                above_locked.note_change();
            }
        }
        Ok(())
    }

    /// Moves the upper entries of a node to a new one. M4: they count there as soon as the word above is durable, and
    /// are taken out of the old node afterwards.
    fn split(&self, slice: Slice, step: &mut Step<'_>) -> Result<(), IndexError> {
        let pool = &self.handle.pool;
        let domain = pool.domain();
        let (view, layer) = (&mut step.view, step.layer as u64);
        let index = match view.is_interior() {
            true => view.child_index(domain, slice, false) + 1,
            false => view.search(domain, slice).0,
        };
        // Keys that come in order leave full nodes behind.
        let kept = if index == WIDTH && view.upper.is_none() { WIDTH - 1 } else { WIDTH / 2 };
        let separator = view.slice(domain, kept);
        let right = self.make_node([view.height, layer], &view.entries(domain, kept..WIDTH))?;
        let right_link = right.link();
        domain.happens(match view.is_interior() {
            true => "an interior node is split",
            false => "a border node is split",
        });
        let is_early = domain.commits(mutants::LEFT_NODE_TRUNCATED_FIRST);
        if is_early {
            self.truncate(view, kept);
        }
        if let Some(parent) = step.above.parent() {
            let Some(slot) = parent.permutation.free_slot() else { return Ok(()) };
            let word = Word::new(right_link, separator.class).0;
            parent.write_entry(domain, slot, (separator.bits, word));
            if !is_beside_permutation(slot) {
                let _mutant = domain.omitting(mutants::MISSING_ENTRY_FLUSH);
                domain.flush(&parent.node.entries[slot]);
            }
            let index = parent.child_index(domain, slice, false) + 1;
            let after = parent.permutation.with(index, slot);
            let right = self.fence_new(right);
            let _ = self.handle.publish(parent.permutation_place(), right, |_| after.0);
        } else {
            domain.happens("a layer gets a new root");
            let entries = [(0, view.link.bits()), (separator.bits, 0)];
            let lock = LOCK_MUTANTS.word_of_new(pool);
            let mut root = write_node(pool, lock, [view.height + 1, layer], &entries)?;
            let word =
                |right: &Owned<'_, D, Node, InFlight>| Word::new(right.link(), separator.class).0;
            root.link_children(|root| &root.entries[1].word, right, word);
            let root = {
                let _mutant = domain.omitting(mutants::MISSING_NODE_FLUSH);
                root.flush_first(written_bytes(2))
            };
            let root = self.fence_new(root);
            let (link, word) = (root.link(), step.above.word.with_node(root.link()));
            let _ = self.handle.publish(step.above.place, root, |_| word.0);
            self.unlock_new(link);
        }
        if !is_early {
            self.truncate(view, kept);
        }
        self.unlock_new(right_link);
        Ok(())
    }
}
