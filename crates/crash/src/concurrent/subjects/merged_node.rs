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

/// The same with leaves below the root, for nodes of `capacity` entries. Keys that arrive in ascending order leave the first
/// leaf full and the last one alone in the second. When that is taken out the root gives way to the first leaf, which the
/// next key splits: a reader that has read the old root looks for a key of its upper half there
/// (`lapis crash wb-tree:giving-way --workers 2 --deviations 1`).
pub(super) fn root_given_way(capacity: u64) -> Plan<(u64, MapAction)> {
    let before = (0..=capacity).map(|key| (2 * key, MapAction::Insert(key))).collect();
    let reader = vec![(2 * (capacity - 1), MapAction::Get)];
    let writer = vec![(2 * capacity, MapAction::Remove), (1, MapAction::Insert(1))];
    Plan { before, workers: vec![reader, writer] }
}
