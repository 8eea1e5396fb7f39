//! Pass 1 of recovery: structure modifications are redone, in the order of the log.

use std::collections::BTreeMap;

use lapis_buffer::{BufferManager, ExclusivePage, PageNumber};
use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::mutants::REDO_WITHOUT_LSN_TEST;
use crate::node::{Contents, INNER, LEAF};
use crate::record::{Change, Changes, apply};

/// Pass 1 of recovery, under way.
#[derive(Debug, Default)]
pub struct Redo {
    /// Damaged pages that were to be changed. The log may yet say that nobody wants what they held.
    damaged: BTreeMap<PageNumber, TreeError>,
}

impl Redo {
    /// Redoes a record of a tree's structure, on each page that does not have it. Pages are as the device has
    /// them, all earlier records have been redone, and nobody else uses the manager: see the [crate](crate).
    /// Returns the root if the record makes a tree: its owner may not have come to note it.
    ///
    /// # Errors
    /// [`TreeError`]. That a page is damaged [`Redo::end`] says, unless a later record frees it or has all of it.
    pub fn record<D: Domain>(
        &mut self,
        manager: &BufferManager<D>,
        record: &[u8],
        lsn: u64,
    ) -> Result<Option<PageNumber>, TreeError> {
        let (mut first, mut changes) = (None, 0);
        let tests_lsn = !manager.domain().commits(REDO_WITHOUT_LSN_TEST);
        for change in Changes::of(record, manager.page_bytes())? {
            let (number, change) = change?;
            if changes == 0 && matches!(change, Change::Make(_)) {
                first = Some(number);
            }
            changes += 1;
            let needs_old = !matches!(change, Change::Make(_) | Change::Replace(_) | Change::Free);
            // R1: a page that lacks a change is not ready for the next one.
            if needs_old && self.damaged.contains_key(&number) {
                continue;
            }
            match redo_change(manager, number, change, lsn, tests_lsn) {
                Err(error) if needs_old && error.is_of_damaged_page() => {
                    self.damaged.insert(number, error);
                }
                redone => {
                    redone?;
                    self.damaged.remove(&number);
                }
            }
        }
        // Whatever else makes a page hangs it in.
        Ok(first.filter(|_| changes == 1))
    }

    /// All records have been redone.
    ///
    /// # Errors
    /// [`TreeError`]: a damaged page of which the log does not have what it lacks.
    pub fn end(self) -> Result<(), TreeError> {
        self.damaged.into_values().next().map_or(Ok(()), Err)
    }
}

/// Redoes what can be redone of a record, where pages are damaged or the log is not whole. A page of which the record has
/// all contents is made anew.
pub fn redo_damaged<D: Domain>(manager: &BufferManager<D>, record: &[u8], lsn: u64) {
    let Ok(changes) = Changes::of(record, manager.page_bytes()) else { return };
    for (number, change) in changes.filter_map(Result::ok) {
        // What is still wrong with the page is found when it is read.
        let _ = redo_change(manager, number, change, lsn, true);
    }
}

fn redo_change<D: Domain>(
    manager: &BufferManager<D>,
    number: PageNumber,
    change: Change<'_>,
    lsn: u64,
    tests_lsn: bool,
) -> Result<(), TreeError> {
    let has_it = |page: &ExclusivePage<'_, D>| page.read().lsn() >= lsn && tests_lsn;
    let contents = match change {
        Change::Make(contents) | Change::Replace(contents) => Some(contents),
        _ => None,
    };
    let found = match (find(manager, number), contents) {
        // The log has all of the page, and what came later comes later.
        (Err(error), Some(contents)) if error.is_of_damaged_page() => {
            return make_again(manager, number, contents, lsn);
        }
        // Nobody asks what it was. If it was given out again, the log makes it further on.
        (Err(error), None) if change == Change::Free && error.is_of_damaged_page() => {
            return Ok(manager.free_unread(number, lsn)?);
        }
        (found, _) => found?,
    };
    match (change, found) {
        (_, Some(page)) if has_it(&page) && change != Change::Free => Ok(()),
        (Change::Make(contents), found) => {
            drop(found);
            make_again(manager, number, contents, lsn)
        }
        // Of a page that was freed later, what came before is nobody's concern.
        (_, None) => Ok(()),
        (Change::Free, Some(page)) => match page.read().lsn() <= lsn {
            true => Ok(manager.free_page(page, lsn)?),
            false => Ok(()),
        },
        (_, Some(mut page)) => {
            page.unswizzle_all();
            apply(&mut page, change, lsn)
        }
    }
}

fn make_again<D: Domain>(
    manager: &BufferManager<D>,
    number: PageNumber,
    contents: Contents<'_>,
    lsn: u64,
) -> Result<(), TreeError> {
    let is_leaf = contents.slots.get(6) == Some(&0);
    let kind = if is_leaf { LEAF } else { INNER };
    let mut page = manager.allocate_page_again(number, kind, lsn)?;
    contents.install(&mut page, lsn, 0);
    Ok(())
}

/// The page, if there is one.
fn find<D: Domain>(
    manager: &BufferManager<D>,
    number: PageNumber,
) -> Result<Option<ExclusivePage<'_, D>>, TreeError> {
    match manager.fix_exclusive(number) {
        Ok(page) => Ok(Some(page)),
        Err(error) if error.is_not_in_use() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
