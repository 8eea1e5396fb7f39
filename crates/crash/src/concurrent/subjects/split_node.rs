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
