//! A history for readers that take no lock: between two looks at a slot its key is taken out, and another one gets it.
//!
//! Only what a reader looks at once more tells it so. Random schedules hardly ever stop it there for several calls of
//! another; one deviation from worker after worker is enough (`lapis crash p-masstree:used-slot --workers 2 --deviations 1`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// Keys that are read, of which half are taken out.
const READ: u64 = 8;

/// With so many keys beforehand, to which so many are added.
pub(super) fn used_slot(before: u64, added: u64) -> Plan<(u64, MapAction)> {
    let inserts = |keys: std::ops::Range<u64>| keys.map(|key| (key, MapAction::Insert(key + 1)));
    let reader = (0..READ).map(|key| (key, MapAction::Get)).collect();
    let mut writer: Vec<_> = (0..READ / 2).map(|key| (key, MapAction::Remove)).collect();
    writer.extend(inserts(before..before + added));
    Plan { before: inserts(0..before).collect(), workers: vec![reader, writer] }
}
