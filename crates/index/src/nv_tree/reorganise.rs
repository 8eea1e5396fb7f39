//! Changes of the structure: leaves that come, are replaced, merged, and go. They take turns.

use lapis_pmem::{
    Blocks, Committed, Domain, Durable, Guard, InFlight, Link, Owned, PCell, host_lock,
};

use super::inner::{Directory, Edit, Entry, Found, Probe, Rebuilt, Separator};
use super::leaf::{Leaf, LeafHeader, Newest, RECORD_BYTES, leaf_at};
use super::write::Supplies;
use super::{NvTree, mutants};
use crate::index::IndexError;
use crate::key::{IndexKey, KeyWord};
use crate::leaf_locks::LeafLocks;

/// What the inner nodes will be when the change is durable.
enum Prepared {
    InPlace,
    Rebuilt(Rebuilt),
}

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// Writes a leaf of these records, which are sorted. Only the lines in use are flushed.
    fn make_leaf<'p>(
        &'p self,
        supplies: &mut Supplies<'p, D>,
        records: &[Newest],
        next: Link<LeafHeader>,
    ) -> Result<Owned<'p, D, LeafHeader, InFlight>, IndexError> {
        let domain = self.domain();
        let mut leaf = self.leaf_block(supplies)?;
        leaf.count.store(domain, records.len() as u64);
        for word in leaf.deleted.iter().chain(&leaf.reserved) {
            word.store(domain, 0);
        }
        leaf.set_link(|leaf| &leaf.next, next);
        let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
        for record in records {
            bytes.extend_from_slice(&record.word.to_ne_bytes());
            bytes.extend_from_slice(&record.value.to_ne_bytes());
        }
        leaf.write_tail(0, &bytes);
        let _mutant = domain.omitting(mutants::SWAP_BEFORE_FLUSH);
        if let Some(written) = leaf_at(&self.pool, leaf.link(), records.len()) {
            let in_part = domain.commits(mutants::LEAF_FLUSHED_IN_PART);
            let count = if in_part { written.records.len().min(8) } else { written.records.len() };
            domain.flush(&written.records[..count]);
        }
        Ok(leaf.flush_head())
    }

    /// The word that refers to the leaf behind `before`, or to the first leaf.
    fn link_behind(&self, before: Option<u64>) -> &PCell<u64> {
        match before {
            Some(link) => self.leaf(Link::from_bits(link)).header.next.word(),
            None => self.root().top.word(),
        }
    }

    /// The one store of a change of the structure, durable on return (I6).
    fn swing<B: Blocks<Durable>>(
        &self,
        before: Option<u64>,
        new: B,
        to: Link<LeafHeader>,
    ) -> Committed {
        self.link_behind(before).publish_word(self.domain(), new, |_| to.bits()).persist()
    }

    /// Plants the first leaf, with one key, in an empty tree. None if it is no longer empty.
    #[cold]
    pub(super) fn plant<'p>(
        &'p self,
        key: &K,
        value: u64,
        supplies: &mut Supplies<'p, D>,
        pinned: &Guard<'_, D>,
    ) -> Result<Option<Committed>, IndexError> {
        let _turn = host_lock::lock(self.domain(), &self.structure);
        if self.directory(pinned).is_some() {
            return Ok(None);
        }
        self.domain().happens("the first leaf");
        let word = self.key_word(key, supplies)?;
        let record = Newest { slot: 0, word: word.bits(), value, deleted: false };
        let leaf = self.make_leaf(supplies, &[record], Link::NULL)?;
        let entry = Entry { key: self.separator(word.bits())?, link: leaf.link().bits() };
        let new = self.pool.fence((leaf, word));
        let first = new.0.link();
        let committed = self.swing(None, new, first);
        self.domain().synchronize();
        self.set_directory(self.build(&[entry]), pinned);
        Ok(Some(committed))
    }

    /// The separator that the key of a word is.
    pub(super) fn separator(&self, word: u64) -> Result<Separator, IndexError> {
        if K::INLINE {
            return Ok(Separator::integer(word));
        }
        K::with_word(&self.pool, word, |key| Separator::string(key.bytes(&mut [0; 8])))
            .ok_or_else(|| damaged("a leaf has a key outside the pool"))
    }

    /// Where a leaf is, which the caller has locked and which therefore stays.
    fn place_of(&self, directory: &Directory, leaf: Leaf<'_>, probe: Probe<'_>) -> Found {
        let found = directory.find(&self.pool, probe);
        assert_eq!(found.link, leaf.link.bits(), "the index is damaged: a leaf is elsewhere");
        found
    }

    /// Replaces a full leaf, which is locked, by one or two that have the live records and one more.
    #[cold]
    #[inline(never)]
    pub(super) fn reorganise<'p>(
        &'p self,
        leaf: Leaf<'p>,
        count: usize,
        (key_word, value): (KeyWord<'p, D>, u64),
        probe: Probe<'_>,
        supplies: &mut Supplies<'p, D>,
        pinned: &Guard<'_, D>,
    ) -> Result<Committed, IndexError> {
        let domain = self.domain();
        let word = key_word.bits();
        let mut records = self.newest_of_all(leaf, count);
        let added = Newest { slot: count, word, value, deleted: false };
        let at = match records.iter().position(|record| record.word == word) {
            Some(at) => {
                records[at] = added;
                at
            }
            None => {
                let at = records
                    .partition_point(|record| K::cmp_words(&self.pool, record.word, word).is_lt());
                records.insert(at, added);
                at
            }
        };
        let is_last = at + 1 == records.len();
        let dead = words_of(records.iter().filter(|record| record.deleted));
        records.retain(|record| !record.deleted);
        let _turn = host_lock::lock(domain, &self.structure);
        let Some(directory) = self.directory(pinned) else {
            return Err(damaged("a leaf is in no inner node"));
        };
        let found = self.place_of(directory, leaf, probe);
        let next = leaf.next(domain);
        let freed_early = domain.commits(mutants::FREED_BEFORE_SWAP);
        if freed_early {
            self.pool.free_unshared(leaf.link, self.leaf_bytes, Committed::nothing_to_do());
        }
        let split = records.len() > self.capacity * 3 / 4;
        domain.happens(if split { "split of a leaf" } else { "a leaf without its dead records" });
        // Keys that come in order leave full leaves behind.
        let middle = match (split, is_last && next.is_null()) {
            (false, _) => records.len(),
            (true, true) => records.len() - 1,
            (true, false) => records.len() / 2,
        };
        let (left, right) = records.split_at(middle);
        let mut followed_by = None;
        let right = match right.first() {
            None => None,
            Some(first) => {
                let fresh = self.make_leaf(supplies, right, next)?;
                let key = self.separator(first.word)?;
                followed_by = Some(Entry { key, link: fresh.link().bits() });
                Some(fresh)
            }
        };
        let behind = right.as_ref().map_or(next, Owned::link);
        let left = self.make_leaf(supplies, left, behind)?;
        let replaced_by = Some(left.link().bits());
        let edit = Edit { entry: found.entry, removed: 1, replaced_by, followed_by };
        let prepared = self.prepare(directory, &found, &edit);
        let first = left.link();
        // I1: all of both leaves is durable before the link to them can be.
        let new = self.pool.fence((left, right, key_word));
        let committed = self.swing(directory.before(&self.pool, &found), new, first);
        self.settle(directory, &found, &edit, prepared, pinned);
        if !freed_early {
            self.pool.retire(leaf.link, self.leaf_bytes, committed, pinned);
        }
        self.retire_words(&dead, committed, pinned);
        Ok(committed)
    }

    /// Takes out a leaf, which is locked and whose last key goes with it.
    #[cold]
    #[inline(never)]
    pub(super) fn unlink(
        &self,
        leaf: Leaf<'_>,
        count: usize,
        probe: Probe<'_>,
        pinned: &Guard<'_, D>,
    ) -> Committed {
        let domain = self.domain();
        let words = words_of(&self.newest_of_all(leaf, count));
        let _turn = host_lock::lock(domain, &self.structure);
        let Some(directory) = self.directory(pinned) else {
            panic!("the index is damaged: a leaf is in no inner node");
        };
        let found = self.place_of(directory, leaf, probe);
        domain.happens("a leaf leaves with its last key");
        // The leaf to the left takes over the range, or the leaf to the right if there is none in
        // the same PLN.
        let edit = if found.entry == 0 && found.siblings() > 1 {
            let right = directory.entry(&self.pool, &found, 1).link;
            Edit { entry: 0, removed: 2, replaced_by: Some(right), followed_by: None }
        } else {
            Edit { entry: found.entry, removed: 1, replaced_by: None, followed_by: None }
        };
        let prepared = self.prepare(directory, &found, &edit);
        let before = directory.before(&self.pool, &found);
        let committed = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_UNLINK);
            self.swing(before, (), leaf.next(domain))
        };
        self.settle(directory, &found, &edit, prepared, pinned);
        self.pool.retire(leaf.link, self.leaf_bytes, committed, pinned);
        self.retire_words(&words, committed, pinned);
        committed
    }

    /// Replaces a sparse leaf, which is locked, and a neighbour by one leaf, if both fit half of
    /// one and nobody is at work in the neighbour. No key changes; if there is no room nothing does.
    #[cold]
    #[inline(never)]
    pub(super) fn merge(&self, leaf: Leaf<'_>, probe: Probe<'_>, pinned: &Guard<'_, D>) {
        let domain = self.domain();
        let _turn = host_lock::lock(domain, &self.structure);
        let Some(directory) = self.directory(pinned) else { return };
        let found = self.place_of(directory, leaf, probe);
        let left = found.entry.checked_sub(1);
        let right = Some(found.entry + 1).filter(|&right| right < found.siblings());
        for (neighbour, entry) in [(left, left), (right, Some(found.entry))] {
            let (Some(neighbour), Some(entry)) = (neighbour, entry) else { continue };
            let link = Link::from_bits(directory.entry(&self.pool, &found, neighbour).link);
            // Whoever holds this lock may be waiting for the lock of the structure.
            let Some(_other) = self.locks.try_hold(domain, LeafLocks::number_of(link)) else {
                continue;
            };
            let other = self.leaf(link);
            let pair = if neighbour < found.entry { (other, leaf) } else { (leaf, other) };
            if self.merge_pair(directory, &found, entry, pair, pinned) {
                return;
            }
        }
    }

    fn merge_pair(
        &self,
        directory: &Directory,
        found: &Found,
        entry: usize,
        (left, right): (Leaf<'_>, Leaf<'_>),
        pinned: &Guard<'_, D>,
    ) -> bool {
        let domain = self.domain();
        let mut records = self.newest_of_all(left, left.count(domain));
        records.extend(self.newest_of_all(right, right.count(domain)));
        let dead = words_of(records.iter().filter(|record| record.deleted));
        records.retain(|record| !record.deleted);
        if records.len() > self.capacity / 2 {
            return false;
        }
        domain.happens("merge of leaves");
        let next = right.next(domain);
        let Ok(fresh) = self.make_leaf(&mut Supplies::none(), &records, next) else {
            return false;
        };
        let at = found.at(entry);
        let link = fresh.link();
        let edit = Edit { entry, removed: 2, replaced_by: Some(link.bits()), followed_by: None };
        let prepared = self.prepare(directory, &at, &edit);
        // I1.
        let fresh = self.pool.fence(fresh);
        let committed = self.swing(directory.before(&self.pool, &at), fresh, link);
        self.settle(directory, &at, &edit, prepared, pinned);
        for leaf in [left, right] {
            self.pool.retire(leaf.link, self.leaf_bytes, committed, pinned);
        }
        self.retire_words(&dead, committed, pinned);
        true
    }

    /// Builds what an edit makes necessary, while nobody sees it.
    fn prepare(&self, directory: &Directory, found: &Found, edit: &Edit) -> Prepared {
        if directory.takes(&self.pool, found, edit) {
            return Prepared::InPlace;
        }
        let place = |bytes| self.dram_place(bytes);
        Prepared::Rebuilt(directory.rebuilt(&self.pool, found, edit, &place))
    }

    /// Shows readers and writers what has become durable (I7).
    fn settle(
        &self,
        directory: &Directory,
        found: &Found,
        edit: &Edit,
        prepared: Prepared,
        pinned: &Guard<'_, D>,
    ) {
        // Words of the host change at once: what they lead to is visible before.
        self.domain().synchronize();
        match prepared {
            Prepared::InPlace => directory.edit(&self.pool, found, edit),
            Prepared::Rebuilt(mut rebuilt) => {
                self.domain().happens("inner nodes are built anew");
                self.count_rebuild(rebuilt.entries);
                self.set_directory(rebuilt.directory.take(), pinned);
                directory.retire(&self.pool, &rebuilt, pinned);
            }
        }
    }

    /// Replaces the directory; the old one is dropped when its readers have gone.
    fn set_directory(&self, directory: Option<Directory>, pinned: &Guard<'_, D>) {
        let new = directory.map_or(std::ptr::null_mut(), |it| Box::into_raw(Box::new(it)));
        let old = self.directory.swap(new, std::sync::atomic::Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: it was a box, and is swapped out once. Those who may still have it are pinned.
            self.pool.retire_value(unsafe { Box::from_raw(old) }, pinned);
        }
    }

    fn retire_words(&self, words: &[u64], unlinked: Committed, pinned: &Guard<'_, D>) {
        for &word in words {
            K::retire_word(&self.pool, word, unlinked, pinned);
        }
    }
}

fn words_of<'r>(records: impl IntoIterator<Item = &'r Newest>) -> Vec<u64> {
    records.into_iter().map(|record| record.word).collect()
}

fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}
