//! A table that is dropped and made again while others are written to, of another kind each time.

use lapis::{Error, IndexKind, Store, TableOptions};

const NAME: &str = "remade";
/// Entries, which one transaction puts.
const ENTRIES: u8 = 40;
/// Operations of the first thread from one of these to the next.
const EVERY: u64 = 16;

/// Drops the table and makes it again, if it is time to.
pub fn remake(store: &Store, operation: u64) -> Result<(), Error> {
    if !operation.is_multiple_of(EVERY) {
        return Ok(());
    }
    match store.drop_table(NAME) {
        Ok(()) | Err(Error::NoSuchTable { .. }) => {}
        Err(error) => return Err(error),
    }
    // Behind the last of the indexes comes a B+-tree.
    let kind = (operation / EVERY) as usize % (IndexKind::ALL.len() + 1);
    let options =
        TableOptions { index: IndexKind::ALL.get(kind).copied(), ..TableOptions::default() };
    let table = store.create_table_with(NAME, &options)?;
    store.retry(|transaction| {
        (0..ENTRIES).try_for_each(|number| transaction.put(&table, &[number], &[number; 100]))
    })
}

/// Whether the table is not there, is empty or has everything.
pub fn is_whole(store: &Store) -> Result<bool, Error> {
    let table = match store.table(NAME) {
        Err(Error::NoSuchTable { .. }) => return Ok(true),
        found => found?,
    };
    let mut found = 0;
    for number in 0..ENTRIES {
        match table.get(&[number])? {
            Some(value) if value == [number; 100] => found += 1,
            Some(_) => return Ok(false),
            None => {}
        }
    }
    Ok(found == 0 || found == ENTRIES)
}
