//! Pass 1 of recovery: structure modifications are redone, in the order of the log.

use lapis_buffer::{BufferError, BufferManager, ExclusivePage, PageNumber, SpaceError};
use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::mutants::REDO_WITHOUT_LSN_TEST;
use crate::node::{INNER, LEAF};
use crate::record::{Change, Changes, apply};

/// Redoes a record of a tree's structure, on each page that does not have it. Pages are as the device has
/// them, all earlier records have been redone, and nobody else uses the manager: see the [crate](crate).
/// Returns the root if the record makes a tree: its owner may not have come to note it.
///
/// # Errors
/// [`TreeError`].
pub fn redo<D: Domain>(
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
        let found = find(manager, number)?;
        let has_it = |page: &ExclusivePage<'_, D>| page.read().lsn() >= lsn && tests_lsn;
        match (change, found) {
            (Change::Make(_), Some(page)) if has_it(&page) => {}
            (Change::Make(contents), found) => {
                drop(found);
                let is_leaf = contents.slots.get(6) == Some(&0);
                let kind = if is_leaf { LEAF } else { INNER };
                let mut page = manager.allocate_page_again(number, kind, lsn)?;
                apply(&mut page, change, lsn)?;
            }
            // Of a page that was freed later, what came before is nobody's concern.
            (_, None) => {}
            (Change::Free, Some(page)) => {
                if page.read().lsn() <= lsn {
                    manager.free_page(page, lsn)?;
                }
            }
            (_, Some(page)) if has_it(&page) => {}
            (_, Some(mut page)) => {
                page.unswizzle_all();
                apply(&mut page, change, lsn)?;
            }
        }
    }
    // Whatever else makes a page hangs it in.
    Ok(first.filter(|_| changes == 1))
}

/// The page, if there is one.
fn find<D: Domain>(
    manager: &BufferManager<D>,
    number: PageNumber,
) -> Result<Option<ExclusivePage<'_, D>>, TreeError> {
    match manager.fix_exclusive(number) {
        Ok(page) => Ok(Some(page)),
        Err(BufferError::Space(SpaceError::NotInUse { .. }) | BufferError::NotInUse { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
