//! A history for radix trees: one writer makes a node, another puts a leaf into it.
//!
//! ```text
//!  before     the first writer     the second, in its node
//!   top            top                    top
//!    |              | ← not durable        | ← not durable
//!    1             / \                   / | \
//!                 1   2                 1  2  3
//! ```
//!
//! What the second one acknowledges hangs from a word that a power cut may still take back, unless it
//! has to wait until the first is done. Random schedules hardly ever stop the first one right behind
//! its store for as long as the second takes; one deviation from worker after worker is enough (`lapis
//! crash wort:splitting --workers 2 --deviations 1`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

/// Keys that differ in the last digit, be it a nibble or a byte.
pub(in crate::concurrent) fn split_node() -> Plan<(u64, MapAction)> {
    let insert = |key| (key, MapAction::Insert(key));
    Plan { before: vec![insert(1)], workers: vec![vec![insert(2)], vec![insert(3)]] }
}
