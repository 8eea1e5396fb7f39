//! A history for radix trees: one writer unlinks a node, another was about to change what is in it.
//!
//! ```text
//!  before     the first writer, in the node     the second, meanwhile
//!   top        top                               top
//!    |          |                                 |
//!   / \        / \  ← found                       1
//!  1   2      ×   2
//!            / \
//!           1   3
//! ```
//!
//! The first one has to split the place of 1, which it has found in a node that is no longer reachable
//! when it gets its locks: the word there is still the same. One deviation from worker after worker is
//! enough (`lapis crash wort:unlinking --workers 2 --deviations 1 --schedules 2000`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// What the keys have in common: not nothing, so that the node's lock is another than the root's.
const PREFIX: u64 = 0x0123_4567_89ab_0000;

/// Two keys that differ in the last byte but one, and a third that differs from the first in the last.
pub(super) fn unlinked_node() -> Plan<(u64, MapAction)> {
    let [stays, goes, comes] = [0x0101, 0x0201, 0x0102].map(|end| PREFIX + end);
    let first = vec![(comes, MapAction::Insert(3))];
    let second = vec![(goes, MapAction::Remove)];
    let before = vec![(stays, MapAction::Insert(1)), (goes, MapAction::Insert(2))];
    Plan { before, workers: vec![first, second] }
}

/// The same with a node of at most so many `entries` below the one that is unlinked, for structures that
/// change a node by putting another in its place: one writer adds a key there, the other takes out the only
/// leaf beside it.
pub(super) fn unlinked_above(entries: u64) -> Plan<(u64, MapAction)> {
    let leaf = entries;
    let mut before: Vec<_> =
        (0..=leaf).map(|key| (PREFIX + 2 * key, MapAction::Insert(1))).collect();
    before.push((PREFIX + 2, MapAction::Remove));
    let first = vec![(PREFIX + 1, MapAction::Insert(3))];
    let second = vec![(PREFIX + 2 * leaf, MapAction::Remove)];
    Plan { before, workers: vec![first, second] }
}

/// One writer takes a leaf out of a node of three; when it gets its locks the other has taken out another one, and is
/// about to take out the only leaf beside the node, so that the node above goes, too
/// (`lapis crash wort:thinning --workers 2 --deviations 2`).
pub(super) fn thinned_node() -> Plan<(u64, MapAction)> {
    let keys = [0x0101, 0x0102, 0x0103, 0x0201].map(|end| PREFIX + end);
    let before = keys.map(|key| (key, MapAction::Insert(1))).into();
    let [_, thins, goes, beside] = keys;
    let first = vec![(goes, MapAction::Remove)];
    let second = vec![(thins, MapAction::Remove), (beside, MapAction::Remove)];
    Plan { before, workers: vec![first, second] }
}
