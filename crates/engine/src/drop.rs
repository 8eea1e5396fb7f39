//! Taking away what is left of dropped tables.
//!
//! A dropped table is listed in the catalog until its last page is free. The listing ends, by a record `c` of the log, just
//! before the root is freed, by the next record of its tree. A crash between the two is made good when the log is
//! replayed: a root that is in use with an LSN below `c` is still that of the dropped table; one that has become another's
//! page since has a higher one. So is a root freed that was made and that the catalog never came to know.
//!
//! Long values are listed before the first page goes, and the last record of the listing says that they are. So nobody
//! looks for them again where pages are missing, after a crash neither; and a table whose listing does not say so yet has
//! all of its pages, so that recovery brings its records to the state of its end as those of any other (E6).

use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_buffer::{BufferManager, PageNumber};
use lapis_pmem::{Domain, host_lock};
use lapis_tree::{Tree, TreeError};

use crate::commit::Write;
use crate::contents::Contents;
use crate::engine::Shared;
use crate::error::EngineError;
use crate::log::EngineLog;
use crate::tables::{Table, chunks_key, dropped_key};
use crate::value::{self, Stored};

/// Pages that are freed at once.
const PAGES_AT_ONCE: usize = 64;

/// A table that was dropped, by the transaction `lsn`.
#[derive(Debug)]
pub(crate) struct Dropped<D: Domain> {
    pub(crate) table: Arc<Table<D>>,
    pub(crate) lsn: u64,
}

impl<D: Domain> Shared<D> {
    /// Frees some pages of the table that was dropped first. Returns whether there was one.
    pub(crate) fn free_dropped(&self) -> Result<bool, EngineError> {
        // X4, before the list is looked at: whoever looks for lost blocks looks there too.
        let _held = self.hold_indexes();
        // Who frees has the turn; the table stays listed meanwhile.
        let mut dropped = host_lock::lock(&self.domain, &self.dropped);
        let Some(first) = dropped.front_mut() else { return Ok(false) };
        if first.lsn > self.order.oldest_reader() || !self.order.is_applied(first.lsn) {
            return Ok(false);
        }
        self.make_room(0, None)?;
        let table = &first.table;
        let key = dropped_key(table.id(), table.contents().place());
        if table.has_long_values() {
            self.list_long_values(table)?;
            let listed = Write { table: &self.catalog, key: &key, value: Some(&[0]) };
            self.commit(&[listed], None, Durability::Eventual)?;
            table.forget_long_values();
        }
        let unlisted = Write { table: &self.catalog, key: &key, value: None };
        match table.contents() {
            Contents::Tree(tree) => {
                if !tree.free_pages(PAGES_AT_ONCE)? {
                    return Ok(true);
                }
                // No checkpoint cuts the end of the listing off before the root is free: replaying it frees the root.
                let kept = self.order.keep_log();
                let (unlisted, later) = ([unlisted], Durability::Eventual);
                let ended = self.commit_with_log_kept(Some(kept), &unlisted, None, later);
                let freed = ended.and_then(|_| Ok(tree.free_rest()?));
                self.order.let_go_of_log(kept);
                freed?;
            }
            Contents::Index(index) => {
                let reachable = index.reachable();
                // X3
                self.commit(&[unlisted], None, Durability::Immediate)?;
                index.retire_all(&reachable);
            }
        }
        dropped.pop_front();
        Ok(true)
    }

    /// Lists the chunks of all long values of a table as such that are to go.
    fn list_long_values(&self, table: &Table<D>) -> Result<(), EngineError> {
        let mut numbers = Vec::new();
        table.contents().visit_all(|_, record| {
            if let Ok(Some(Stored::Long(long))) = record.map(value::parse) {
                numbers.push(long.number);
            }
        })?;
        for numbers in numbers.chunks(PAGES_AT_ONCE) {
            let listings: Vec<_> = numbers.iter().copied().map(chunks_key).collect();
            let listings =
                listings.iter().map(|key| Write { table: &self.catalog, key, value: Some(&[]) });
            self.commit(&listings.collect::<Vec<_>>(), None, Durability::Eventual)?;
            let numbers = numbers.iter().map(|&number| (0, number));
            host_lock::lock(&self.domain, &self.unwanted).extend(numbers);
        }
        Ok(())
    }
}

/// Frees a root that no table has, if its last change came before the record `lsn`: otherwise it is another's. All structure
/// has been redone.
pub(crate) fn free_unlisted_root<D: Domain>(
    manager: &Arc<BufferManager<D>>,
    log: &Arc<EngineLog<D>>,
    root: PageNumber,
    lsn: u64,
) -> Result<(), EngineError> {
    let found = manager.retry(|| {
        let page = manager.fix(root)?;
        let found = page.read().lsn();
        page.validate()?;
        Ok(found)
    });
    let tree = Tree::open(Arc::clone(manager), Arc::clone(log), root);
    match found.map_err(TreeError::from) {
        Ok(found) if found < lsn => Ok(tree.free_rest()?),
        Ok(_) => Ok(()),
        Err(TreeError::Buffer(error)) if error.is_not_in_use() => Ok(()),
        // The log from `lsn` on was there to be redone: had another got the page since, it would have been made anew (L4).
        Err(error) if error.is_of_damaged_page() => {
            tracing::warn!(%error, "what is left of a dropped table is freed unread");
            Ok(tree.free_damaged_root()?)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use lapis_device::{ModelledSsd, SsdConfig};
    use lapis_pmem::{BLOCK_BYTES, BlockDevice, FlushMethod, Hardware};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::storage::Storage;

    #[test]
    fn a_root_that_no_table_has_is_freed_though_it_has_rotted() {
        let device = |blocks| Arc::new(ModelledSsd::new(blocks, SsdConfig::default()).unwrap());
        let (pages, log) = (device(1), device(2 + 512));
        let storage = || Storage::ssd(Arc::clone(&pages) as _, Arc::clone(&log) as _);
        let options = EngineOptions::small();
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        let engine = Engine::create(domain.clone(), storage(), &options).unwrap();
        let table = engine.create_table("t").unwrap();
        let root = table.contents().as_tree().unwrap().root();
        engine.put(&table, b"a", b"b", Durability::Immediate).unwrap();
        engine.close().unwrap();
        drop((table, engine));
        let mut page = [0; BLOCK_BYTES];
        for block in 0..pages.capacity_blocks() {
            pages.read_blocks(block, &mut page).unwrap();
            if page[5] == 16 && page[8..16] == root.get().to_le_bytes() {
                pages.rot(block, 1, block);
            }
        }
        let engine = Engine::open(domain, storage(), &options).unwrap();
        let Shared { manager, log, .. } = engine.shared();
        let used = manager.space().unwrap().used_pages();
        free_unlisted_root(manager, log, root, u64::MAX).unwrap();
        assert!(manager.fix_exclusive(root).unwrap_err().is_not_in_use());
        engine.checkpoint().unwrap();
        assert_eq!(manager.space().unwrap().used_pages(), used - 1);
    }
}
