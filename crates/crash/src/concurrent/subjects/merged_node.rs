//! A history for trees whose inner nodes are merged: a reader has read one when it is taken out, and
//! then a leaf below it is split.
//!
//! ```text
//!  before                          after the removal       after the insertion
//!         top                              0                       0
//!        /   \                          / / | \ \               / / | | \ \
//!       0     1  ← the reader          e f  b  c d             e f b  c c' d
//!     / | \  /|\
//!    a  e f b c d                    the key is in c         the key is in c'
//! ```
//!
//! Nothing else changes node 1, neither in memory nor in what is durable: only what a merge does to it
//! for the sake of readers tells them that it no longer leads to all of its keys. Random schedules
//! hardly ever stop a reader for as long as both take; one deviation from worker after worker is enough
//! (`lapis crash wb-tree:merging --workers 2 --deviations 1`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// Leaves that are emptied beforehand, so that a merge of the leaves leaves an inner node sparse.
const EMPTIED: u64 = 5;

/// For nodes of `capacity` entries, of which those are merged that have a quarter of them, into nodes
/// that then are three quarters full at most.
///
/// Keys that arrive in ascending order fill their leaves. When the second inner node has come into
/// being the first one has `capacity` leaves below it, and the second gets three.
pub(super) fn merged_node(capacity: u64) -> Plan<(u64, MapAction)> {
    let leaves = capacity + 3;
    let key = |leaf: u64, entry: u64| 2 * (leaf * capacity + entry);
    let all = (0..leaves).flat_map(|leaf| (0..capacity).map(move |entry| key(leaf, entry)));
    let mut before: Vec<_> = all.map(|key| (key, MapAction::Insert(key))).collect();
    let emptied = (0..EMPTIED).flat_map(|leaf| (0..capacity).map(move |entry| key(leaf, entry)));
    before.extend(emptied.map(|key| (key, MapAction::Remove)));
    // One removal is left for the history.
    before.pop();
    let below = capacity + 1;
    let reader = vec![(key(below, capacity - 1), MapAction::Get)];
    let writer = vec![
        (key(EMPTIED - 1, capacity - 1), MapAction::Remove),
        (key(below, 0) + 1, MapAction::Insert(1)),
    ];
    Plan { before, workers: vec![reader, writer] }
}

/// The same for nodes of `capacity` entries that keys which come in order leave full but for one, of which those with three
/// are joined. The reader has taken a leaf out before, for which it locks the node, and so has read a lock of this
/// generation of the pool (`lapis crash p-masstree:passing --workers 2 --deviations 1`).
///
/// The first inner node has four of its leaves left, in the first of which is one key; the second has five.
pub(super) fn locked_node_merged(capacity: u64) -> Plan<(u64, MapAction)> {
    let kept = capacity - 1;
    let key = |leaf: u64, entry: u64| 2 * (leaf * kept + entry);
    let removals = |leaf: u64, entries: std::ops::Range<u64>| {
        entries.map(move |entry| (key(leaf, entry), MapAction::Remove))
    };
    let [sparse, single, below] = [kept - 4, kept + 2, kept + 3];
    let all = (0..kept + 5).flat_map(|leaf| (0..kept).map(move |entry| key(leaf, entry)));
    let mut before: Vec<_> = all.map(|key| (key, MapAction::Insert(key))).collect();
    before.extend((0..sparse).flat_map(|leaf| removals(leaf, 0..kept)));
    before.extend(removals(sparse, 1..kept).chain(removals(single, 1..kept)));
    let mut reader: Vec<_> = removals(single, 0..1).collect();
    reader.push((key(below, kept - 1), MapAction::Get));
    let mut writer: Vec<_> = removals(sparse, 0..1).collect();
    writer.extend([1, 3].map(|beside| (key(below, 0) + beside, MapAction::Insert(1))));
    Plan { before, workers: vec![reader, writer] }
}

/// With leaves below the root, for nodes of `capacity` entries. Keys that arrive in ascending order leave the first
/// leaf full and the last one alone in the second. When that is taken out the root gives way to the first leaf, which the
/// next key splits: a reader that has read the old root looks for a key of its upper half there
/// (`lapis crash wb-tree:giving-way --workers 2 --deviations 1`).
pub(super) fn root_given_way(capacity: u64) -> Plan<(u64, MapAction)> {
    let before = (0..=capacity).map(|key| (2 * key, MapAction::Insert(key))).collect();
    let reader = vec![(2 * (capacity - 1), MapAction::Get)];
    let writer = vec![(2 * capacity, MapAction::Remove), (1, MapAction::Insert(1))];
    Plan { before, workers: vec![reader, writer] }
}
