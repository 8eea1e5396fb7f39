//! Histories for trees whose full nodes are divided, and whose sparse ones are joined: one writer does so, another
//! changes the node that comes, or the one that goes.
//!
//! ```text
//!  before            the first writer       the second, meanwhile
//!   top                   top  ← not durable       top  ← not durable
//!    |                   /   \                    /   \
//!  a b .. m n      a b .. m   n o           a b .. m   n o p
//!
//!  before            the first writer       the second, which had found the node
//!     top                 top                     o p  ← not reachable
//!    /   \                 |
//!  a k l m  n o    k l m n o
//! ```
//!
//! What the second one acknowledges hangs from a word that a power cut may still take back, or from none at all. One
//! deviation from worker after worker is enough (`lapis crash p-masstree:splitting --workers 2 --deviations 1
//! --schedules 2000`).

use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Plan;

fn inserts(keys: impl Iterator<Item = u64>) -> Vec<(u64, MapAction)> {
    keys.map(|key| (2 * key, MapAction::Insert(key))).collect()
}

/// For nodes of `capacity` entries.
pub(super) fn divided_node(capacity: u64) -> Plan<(u64, MapAction)> {
    let first = inserts(capacity..=capacity);
    let second = inserts(capacity + 1..=capacity + 1);
    Plan { before: inserts(0..capacity), workers: vec![first, second] }
}

/// For the same nodes: the reader looks for the last key, which goes to the new one.
pub(super) fn read_divided(capacity: u64) -> Plan<(u64, MapAction)> {
    let reader = vec![(2 * (capacity - 1), MapAction::Get)];
    let workers = vec![inserts(capacity..=capacity), reader];
    Plan { before: inserts(0..capacity), workers }
}

/// For nodes of `capacity` entries, of which keys that come in order leave `left` behind: three of them are filled, and each
/// writer divides one. What both need is the node above, whose lock the first has taken before
/// (`lapis crash p-masstree:beside --workers 2 --deviations 1`).
pub(super) fn both_divided(left: u64, capacity: u64) -> Plan<(u64, MapAction)> {
    let between = |node: u64, at: u64| (2 * (node * left + at) + 1, MapAction::Insert(1));
    let mut before = inserts(0..4 * left);
    before.extend((0..3).flat_map(|node| (left..capacity).map(move |at| between(node, at - left))));
    let divides = |node| between(node, capacity - left);
    Plan { before, workers: vec![vec![divides(2), divides(0)], vec![divides(1)]] }
}

/// For nodes of `capacity` entries that keys which come in order leave full, and nodes above that an opening leaves half of
/// their `children`: one writer divides nodes until the one above is full, and then changes what is in a node that the other
/// divides meanwhile (`lapis crash nv-tree:overflowing --workers 2 --deviations 1`).
pub(super) fn divided_without_room(capacity: u64, children: u64) -> Plan<(u64, MapAction)> {
    let between = |node: u64, at: u64| (2 * (node * capacity + at) + 1, MapAction::Insert(1));
    let nodes = children / 2;
    let mut first: Vec<_> = (0..nodes).map(|node| between(node, 0)).collect();
    // The upper half of the first node is filled again.
    let lower = capacity.div_ceil(2);
    first.extend((1..lower).map(|at| between(0, at)));
    first.push((2 * (capacity - 1), MapAction::Update(1)));
    Plan { before: inserts(0..nodes * capacity), workers: vec![first, vec![between(0, lower)]] }
}

/// For nodes of `capacity` entries of which keys that come in order leave the last two in the second one, and that are
/// joined if they fill half of one: the first keeps three and loses one of these, and the reader looks for a key of the second
/// (`lapis crash fptree:joining --workers 2 --deviations 1`).
pub(super) fn read_joined(capacity: u64) -> Plan<(u64, MapAction)> {
    let mut before = inserts(0..=capacity);
    before.extend((2..capacity - 2).map(|key| (2 * key, MapAction::Remove)));
    let reader = vec![(2 * (capacity - 1), MapAction::Get)];
    Plan { before, workers: vec![vec![(2, MapAction::Remove)], reader] }
}

/// For a tree in which one key more than `before` divides the last node, and makes the new one known to the level above when
/// it is there. The other writer, who comes by it before, does that, too, and takes out so many of the greatest keys that it
/// goes again (`lapis crash p-bwtree:taken-back --workers 2 --deviations 1`).
pub(super) fn taken_back(before: u64, taken: u64) -> Plan<(u64, MapAction)> {
    let mut first = inserts(before..=before);
    first.extend([(2 * before - 2, MapAction::Get), (2 * before + 1, MapAction::Insert(1))]);
    let second = (0..taken).map(|back| (2 * (before - back), MapAction::Remove)).collect();
    Plan { before: inserts(0..before), workers: vec![first, second] }
}

/// For nodes of `capacity` entries that keys which come in order leave full: one writer takes out the only key behind such
/// a node, the other divides it, and puts its upper half between the two.
pub(super) fn node_behind(capacity: u64) -> Plan<(u64, MapAction)> {
    let first = vec![(2 * capacity, MapAction::Remove)];
    let second = vec![(1, MapAction::Insert(1))];
    Plan { before: inserts(0..=capacity), workers: vec![first, second] }
}

/// For nodes of `capacity` entries of which keys that come in order leave all but two behind in the first one, and of
/// which those with three are joined.
pub(super) fn joined_node(capacity: u64) -> Plan<(u64, MapAction)> {
    let mut before = inserts(0..=capacity);
    before.extend((1..capacity - 4).map(|key| (2 * key, MapAction::Remove)));
    // Its first change has the lock taken in this generation of the pool, so that the other one leaves the word as it is.
    let mut first = vec![(2 * capacity, MapAction::Update(1))];
    first.extend(inserts(capacity + 1..=capacity + 1));
    let second = vec![(0, MapAction::Remove)];
    Plan { before, workers: vec![first, second] }
}

/// For the same nodes, the second of which has two entries: when it loses one the other goes to the first node, to which
/// the first writer is about to add a key (`lapis crash p-masstree:taking-in --workers 2 --deviations 1`).
pub(super) fn joined_into(capacity: u64) -> Plan<(u64, MapAction)> {
    let mut before = inserts(0..=capacity + 1);
    before.extend((1..capacity - 4).map(|key| (2 * key, MapAction::Remove)));
    // As above.
    let first = vec![(0, MapAction::Update(1)), (1, MapAction::Insert(1))];
    let second = vec![(2 * capacity, MapAction::Remove)];
    Plan { before, workers: vec![first, second] }
}
