//! Changing a record of a leaf, which is latched.

use core::cell::Cell;

use lapis_buffer::ExclusivePage;
use lapis_pmem::Domain;

use super::{BELONGS, OUTSIDE, damaged, sound};
use crate::error::Stop;
use crate::node::{Node, Source, VALUE_BYTES, insert_record, remove_record, replace_record};
use crate::record::make_room;

thread_local! {
    /// A value that is about to be replaced, for who asked to see it.
    static SHOWN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Who is shown a key and the value that a change replaces: none if there was no such key.
pub type ShowOld<'f> = &'f mut dyn FnMut(&[u8], Option<&[u8]>);

/// Puts a record into its leaf. False if that has no room.
pub(super) fn put_in<D: Domain>(
    page: &mut ExclusivePage<'_, D>,
    key: &[u8],
    value: &[u8],
    lsn: u64,
    old: &mut Option<ShowOld<'_>>,
) -> Result<bool, Stop> {
    let node = sound(page)?;
    let suffix = node.suffix_of(key).ok_or_else(|| damaged(page, BELONGS))?;
    let (at, found) = node.search(suffix);
    let record = VALUE_BYTES + suffix.len() + value.len();
    if !found {
        if node.free() < node.entries().bytes(record) {
            return Ok(false);
        }
        show::<&[u8]>(old, key, || None);
        return insert(page, at, suffix, value, lsn).map(|()| true);
    }
    let range = node.value_range(at).ok_or_else(|| damaged(page, OUTSIDE))?;
    let bytes = node.record_bytes(at).ok_or_else(|| damaged(page, OUTSIDE))?;
    let in_place = range.len() == value.len();
    if !in_place && node.free() + bytes < record {
        return Ok(false);
    }
    show(old, key, || Some((page.read(), range.clone())));
    if in_place {
        page.write(lsn).copy_from(range.start, value);
    } else if node.gap() >= record {
        replace_record(&mut page.write(lsn), at, bytes, suffix, value);
    } else {
        // The hole in a table stays for a moment only: as the gap is too small, the page is made anew.
        remove_record(&mut page.write(lsn), at, bytes);
        insert(page, at, suffix, value, lsn)?;
    }
    Ok(true)
}

/// Inserts a record for which a leaf has bytes free, where its slot is to be as the leaf is now.
fn insert<D: Domain>(
    page: &mut ExclusivePage<'_, D>,
    mut at: usize,
    suffix: &[u8],
    value: &[u8],
    lsn: u64,
) -> Result<(), Stop> {
    if make_room(page, VALUE_BYTES + suffix.len() + value.len(), lsn)? {
        (at, _) = Node::new(page.read()).search(suffix);
    }
    insert_record(&mut page.write(lsn), at, suffix, value);
    Ok(())
}

/// Shows the value that is about to be replaced.
#[inline]
pub(super) fn show<S: Source>(
    old: &mut Option<ShowOld<'_>>,
    key: &[u8],
    value: impl FnOnce() -> Option<(S, core::ops::Range<usize>)>,
) {
    let Some(old) = old else { return };
    let Some((page, range)) = value() else { return old(key, None) };
    let mut shown = SHOWN.take();
    shown.resize(range.len(), 0);
    page.copy_to(range.start, &mut shown);
    old(key, Some(&shown));
    SHOWN.set(shown);
}
