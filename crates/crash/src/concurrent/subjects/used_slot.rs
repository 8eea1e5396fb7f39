//! A history for readers that take no lock: between two looks at a slot its key is taken out, and another one gets it.
//!
//! Only what a reader looks at once more tells it so. Random schedules hardly ever stop it there for several calls of
//! another; one deviation from worker after worker is enough (`lapis crash p-masstree:used-slot --workers 2 --deviations 1`).
//!
//! With keys whose hashes begin alike the slots are those of one chain, and so are the buckets that a larger table leaves
//! to be used again (`p-clht:used-chain`, `p-clht:outgrown`).
//!
//! A scan looks once more by checks of its own (`cceh:scanned-slot`): then it is the reader.

use lapis_index::Direction;

use super::index_call::IndexCall;
use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// Keys that are read, of which half are taken out.
const READ: usize = 8;

/// With so many of `keys` beforehand, to which so many are added.
pub(super) fn used_slot(
    keys: impl Iterator<Item = u64>,
    before: usize,
    added: usize,
) -> Plan<(u64, MapAction)> {
    let keys: Vec<_> = keys.take(before + added).collect();
    let insert = |(value, &key): (u64, &u64)| (key, MapAction::Insert(value));
    let mut inserts = (1..).zip(&keys).map(insert);
    let before = inserts.by_ref().take(before).collect();
    let read = &keys[..READ.min(keys.len())];
    let reader = read.iter().map(|&key| (key, MapAction::Get)).collect();
    let removed = &read[..read.len() / 2];
    let mut writer: Vec<_> = removed.iter().map(|&key| (key, MapAction::Remove)).collect();
    writer.extend(inserts);
    Plan { before, workers: vec![reader, writer] }
}

/// The same with a reader that scans.
pub(super) fn scanned(mut plan: Plan<IndexCall<u64>>) -> Plan<IndexCall<u64>> {
    plan.workers[0] = vec![
        IndexCall::Scan(0, Direction::Forward),
        IndexCall::Scan(u64::MAX, Direction::Backward),
    ];
    plan
}
