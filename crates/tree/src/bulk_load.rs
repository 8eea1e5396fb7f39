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

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Fills the tree, which is empty, with records whose keys ascend; leaves are filled to `fill_factor` percent, 100
    /// at most. Nobody else changes the tree meanwhile. Returns how many there were. After an error the tree has what
    /// came before.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`], [`TreeError::NotAscending`], [`TreeError::RecordTooLong`], and all others.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        fill_factor: u8,
    ) -> Result<u64, TreeError> {
        let page_bytes = self.manager.page_bytes();
        let entries = self.begin_load()?;
        let (room, reserve) = (entries.room(page_bytes), fence_reserve(page_bytes));
        let most = room * usize::from(fill_factor.min(100)) / 100;
        let of = (mark_of(self.root), entries);
        let leaf_from = |fence: &[u8]| Builder::leaf(page_bytes, of, fence, None);
        let mut leaf = leaf_from(&[]);
        let (mut fence, mut last, mut loaded) = (Vec::new(), Vec::<u8>::new(), 0);
        for (key, value) in records {
            let (key, value) = (key.as_ref(), value.as_ref());
            let bytes = key.len() + value.len();
            if bytes > self.largest_record() {
                return Err(TreeError::RecordTooLong { bytes, most: self.largest_record() });
            }
            if loaded > 0 && *key <= last[..] {
                return Err(TreeError::NotAscending);
            }
            // The fence behind the leaf is no longer than its last key and a byte.
            let fences = fence.len() + reserve.max(key.len() + 1);
            let is_full = leaf.entry_bytes() + 2 * WORD + bytes + fences > most;
            if is_full && leaf.entry_bytes() > 0 {
                let next = separator(&last, key).to_vec();
                let done = core::mem::replace(&mut leaf, leaf_from(&next));
                self.append_leaf(&fence, &done.finish())?;
                fence = next;
            }
            let most = self.largest_record();
            leaf.push(key, value).map_err(|_| TreeError::RecordTooLong { bytes, most })?;
            last.clear();
            last.extend_from_slice(key);
            loaded += 1;
        }
        if leaf.entry_bytes() > 0 {
            self.append_leaf(&fence, &leaf.finish())?;
        }
        Ok(loaded)
    }

    /// Whether the tree is a leaf without records, and what its records will be.
    fn begin_load(&self) -> Result<Entries, TreeError> {
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
