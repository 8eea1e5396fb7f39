//! A history for radix trees: one writer makes a node, another changes what is in it.
//!
//! ```text
//!  before     the first writer     the second, in its node
//!   top            top                    top
//!    |              | ← not durable        | ← not durable
//!    1             / \                    / \
//!                 1   2                  1   2 := 3
//! ```
//!
//! What the second one acknowledges hangs from a word that a power cut may still take back, unless it
//! has to wait until the first is done. Random schedules hardly ever stop the first one right behind
//! its store for as long as the second takes; one deviation from worker after worker is enough (`lapis
//! crash wort:splitting --workers 2 --deviations 1 --schedules 2000`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// What the keys have in common: not nothing, so that the node's lock is another than the root's.
const PREFIX: u64 = 0x0123_4567_89ab_cd00;

/// Keys that differ in the last digit, be it a nibble or a byte.
pub(super) fn split_node() -> Plan<(u64, MapAction)> {
    let (old, new) = (PREFIX + 1, PREFIX + 2);
    let first = vec![(new, MapAction::Insert(2))];
    let second = vec![(new, MapAction::Update(3))];
    Plan { before: vec![(old, MapAction::Insert(1))], workers: vec![first, second] }
}

/// One writer adds a key to a full node of so many `entries`, so that a larger one takes its place; the other adds a key that
/// differs from these before the node's digit, so that a node comes between it and the word that referred to it
/// (`lapis crash p-art:put-between --workers 2 --deviations 1`).
pub(super) fn put_between(entries: u64) -> Plan<(u64, MapAction)> {
    let insert = |key| (key, MapAction::Insert(1));
    let before = (0..entries).map(|end| insert(PREFIX + end)).collect();
    let first = vec![insert(PREFIX + entries)];
    let second = vec![insert(PREFIX ^ 1 << 32)];
    Plan { before, workers: vec![first, second] }
}

/// For a trie whose nodes have so many `entries` at most, and heights: where a full one is two lower than the one above, what
/// does not fit gets a node between the two (`lapis crash p-hot:put-between --workers 2 --deviations 1`).
///
/// ```text
///  before            the first writer      the second, meanwhile
///     3                  3                     3
///    / \                / \                   / \
///   2   1 ← full       2   2                 2   2
///                         / \                   / \
///                        1   1                 1   key
/// ```
///
/// Keys that end alike but for five bits fill a node; one more divides it, below a node of height 2. Keys that differ ever
/// earlier fill that; one more makes one of height 3, where it stands alone. Keys that end like it fill a node there.
pub(super) fn put_above_full(entries: u64) -> Plan<(u64, MapAction)> {
    let insert = |key| (key, MapAction::Insert(1));
    let beside = |key: u64, place: u64| key ^ 1 << (16 + place);
    let alone = beside(PREFIX, entries - 2);
    let before = (0..=entries).map(|end| PREFIX + 2 * end);
    let before = before.chain((0..entries - 2).map(|place| beside(PREFIX, place)));
    let before = before.chain((0..entries).map(|end| alone + 2 * end));
    let workers = vec![vec![insert(alone + 1)], vec![insert(alone ^ 1 << 8)]];
    Plan { before: before.map(insert).collect(), workers }
}
