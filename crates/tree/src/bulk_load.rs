//! Bulk load: an empty tree is filled from records in order, leaf by leaf.
//!
//! A leaf is made in private, and hung in at the end of the tree when it is full, by the record that a split
//! at the end writes, but with the leaf's contents. So the tree is whole all the time, and holds
//! what came so far: a crash leaves nothing to collect, and whoever has begun a load and finds it unfinished
//! drops the tree like any other ([`Tree::free_pages`]). The price is that the log has the leaves, once,
//! in place of logical records. The other way, to write pages to the device first and log their hanging in
//! alone, leaves pages that nobody refers to after a crash, and keeps the log from being cut while it lasts.

use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::log::StructureLog;
use crate::node::{Builder, Contents, Entries, Node, WORD, fence_reserve, mark_of, separator};
use crate::record::Change;
use crate::tree::{Tree, Wanted};

/// An empty tree that is being filled with records whose keys ascend. Nobody else changes it meanwhile.
///
/// What is pushed is in the tree with the leaf that it fills; what is then left, with [`BulkLoad::finish`].
#[derive(Debug)]
pub struct BulkLoad<D: Domain, L> {
    tree: Tree<D, L>,
    entries: Entries,
    /// Bytes of a leaf that are filled.
    most: usize,
    leaf: Builder,
    /// Of `leaf`: its keys are this one or behind it.
    fence: Vec<u8>,
    last: Vec<u8>,
    loaded: u64,
}

impl<D: Domain, L: StructureLog> BulkLoad<D, L> {
    /// Begins, with leaves that are filled to `fill_factor` percent, 100 at most.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`], and those of reading a page.
    pub fn begin(tree: Tree<D, L>, fill_factor: u8) -> Result<Self, TreeError> {
        let page_bytes = tree.manager.page_bytes();
        let entries = tree.entries_if_empty()?;
        let most = entries.room(page_bytes) * usize::from(fill_factor.min(100)) / 100;
        let leaf = Self::leaf_from(&tree, entries, &[]);
        Ok(Self { tree, entries, most, leaf, fence: Vec::new(), last: Vec::new(), loaded: 0 })
    }

    fn leaf_from(tree: &Tree<D, L>, entries: Entries, fence: &[u8]) -> Builder {
        Builder::leaf(tree.manager.page_bytes(), (mark_of(tree.root), entries), fence, None)
    }

    /// The next record.
    ///
    /// # Errors
    /// [`TreeError::NotAscending`], [`TreeError::RecordTooLong`]: it is not taken, and others may follow. All others
    /// of a change of structure: the tree has what came before the leaf at hand.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let (bytes, most) = (key.len() + value.len(), self.tree.largest_record());
        if bytes > most {
            return Err(TreeError::RecordTooLong { bytes, most });
        }
        if self.loaded > 0 && *key <= self.last[..] {
            return Err(TreeError::NotAscending);
        }
        // The fence behind the leaf is no longer than its last key and a byte.
        let reserve = fence_reserve(self.tree.manager.page_bytes());
        let fences = self.fence.len() + reserve.max(key.len() + 1);
        let filled = self.leaf.entry_bytes();
        if filled > 0 && filled + 2 * WORD + bytes + fences > self.most {
            let next = separator(&self.last, key).to_vec();
            let empty = Self::leaf_from(&self.tree, self.entries, &next);
            let done = core::mem::replace(&mut self.leaf, empty);
            self.tree.append_leaf(&self.fence, &done.finish())?;
            self.fence = next;
        }
        self.leaf.push(key, value).map_err(|_| TreeError::RecordTooLong { bytes, most })?;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.loaded += 1;
        Ok(())
    }

    /// Hangs in the last leaf. Returns how many records there were.
    ///
    /// # Errors
    /// Those of a change of structure: the tree has what came before this leaf.
    pub fn finish(self) -> Result<u64, TreeError> {
        if self.leaf.entry_bytes() > 0 {
            self.tree.append_leaf(&self.fence, &self.leaf.finish())?;
        }
        Ok(self.loaded)
    }
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// What the records of the tree will be, if it is a leaf without any.
    fn entries_if_empty(&self) -> Result<Entries, TreeError> {
        let (is_empty, entries) = self.retry(|| {
            let root = self.manager.fix(self.root)?;
            let node = Node::new(root.read());
            let (is_empty, entries) = (node.level() == 0 && node.count() == 0, node.entries());
            root.validate()?;
            Ok((is_empty, entries))
        })?;
        if is_empty { Ok(entries) } else { Err(TreeError::NotEmpty) }
    }

    /// Hangs in a leaf, which has the keys from `fence` on, at the end.
    fn append_leaf(&self, fence: &[u8], leaf: &[u8]) -> Result<(), TreeError> {
        self.manager.relieve()?;
        if !fence.is_empty() {
            return self.make_room(0, &Wanted::Leaf { fence, leaf });
        }
        let mut root = self.manager.fix_exclusive(self.root)?;
        let what = "it is no leaf any more";
        let contents = Contents::of(leaf).ok_or(TreeError::Damaged { page: self.root, what })?;
        self.modify(&mut [(&mut root, Change::Replace(contents))], &[]).map(|_| ())
    }
}
