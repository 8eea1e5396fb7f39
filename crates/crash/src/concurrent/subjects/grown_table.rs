//! Histories for hash tables. In the first one writer fills a small table until it grows, another changes what is in it.
//!
//! What the second one acknowledges may be in a table that a power cut still takes back, or in one that has been
//! replaced. One deviation from worker after worker is enough (`lapis crash p-clht:growing --workers 2 --deviations 1
//! --schedules 2000`).
//!
//! In the second both add one key, and a structure says which two have something to do with each other: the same
//! free slot, or, in full tables, what there is one of to make room with.

use std::ops::Range;

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// Keys that are added.
const ADDED: u64 = 10;

fn inserts(keys: Range<u64>) -> Vec<(u64, MapAction)> {
    keys.map(|key| (key, MapAction::Insert(1))).collect()
}

/// For tables that grow when some more are added to `before` keys.
pub(super) fn grown_table(before: u64) -> Plan<(u64, MapAction)> {
    let end = before + ADDED;
    let second =
        vec![(0, MapAction::Update(2)), (1, MapAction::Remove), (end, MapAction::Insert(2))];
    Plan { before: inserts(0..before), workers: vec![inserts(before..end), second] }
}

/// For keys `before` and `other`.
pub(super) fn two_inserts(before: u64, other: u64) -> Plan<(u64, MapAction)> {
    let workers = vec![inserts(before..before + 1), inserts(other..other + 1)];
    Plan { before: inserts(0..before), workers }
}
