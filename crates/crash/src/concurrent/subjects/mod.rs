//! What Lapis itself has to be checked with several workers.

mod allocator;
mod block_log;
mod divided_node;
mod grown_table;
mod in_place;
mod index;
mod index_call;
mod merged_node;
mod pop_log;
mod split_node;
mod store;
mod unlinked_node;
mod used_slot;

use lapis_index::History;

use self::index_call::IndexCall;
use super::linearizability::MapAction;
use super::subject::Plan;
use crate::subjects::crowded;

pub use allocator::ConcurrentAllocator;
pub use block_log::ConcurrentBlockLog;
pub use in_place::ConcurrentCells;
pub use index::ConcurrentIndex;
pub use pop_log::ConcurrentPopLog;
pub use store::ConcurrentStore;

/// The calls of a history.
pub(super) fn planned(history: History) -> Plan<IndexCall<u64>> {
    let plan = changes_and_look_ups(history).map(|(key, action)| IndexCall::One(key, action));
    match history {
        History::ScannedSlot(..) => used_slot::scanned(plan),
        _ => plan,
    }
}

fn changes_and_look_ups(history: History) -> Plan<(u64, MapAction)> {
    match history {
        History::SplitNode => split_node::split_node(),
        History::UnlinkedNode => unlinked_node::unlinked_node(),
        History::UnlinkedAbove(entries) => unlinked_node::unlinked_above(entries),
        History::PutBetween(entries) => split_node::put_between(entries),
        History::PutAboveFull(entries) => split_node::put_above_full(entries),
        History::NodeBehind(capacity) => divided_node::node_behind(capacity),
        History::GrownTable(before) => grown_table::grown_table(before),
        History::UsedSlot(before, added) | History::ScannedSlot(before, added) => {
            used_slot::used_slot(0.., before, added)
        }
        History::UsedChain(before, added) => used_slot::used_slot(crowded::<u64>(), before, added),
        History::TwoInserts(before, other) => grown_table::two_inserts(before, other),
        History::ThinnedNode => unlinked_node::thinned_node(),
        History::MergedNode(capacity) => merged_node::merged_node(capacity),
        History::LockedNodeMerged(capacity) => merged_node::locked_node_merged(capacity),
        History::RootGivenWay(capacity) => merged_node::root_given_way(capacity),
        History::DividedNode(capacity) => divided_node::divided_node(capacity),
        History::ReadDivided(capacity) => divided_node::read_divided(capacity),
        History::BothDivided(left, capacity) => divided_node::both_divided(left, capacity),
        History::DividedWithoutRoom(capacity, children) => {
            divided_node::divided_without_room(capacity, children)
        }
        History::TakenBack(before, taken) => divided_node::taken_back(before, taken),
        History::ReadJoined(capacity) => divided_node::read_joined(capacity),
        History::JoinedNode(capacity) => divided_node::joined_node(capacity),
        History::JoinedInto(capacity) => divided_node::joined_into(capacity),
    }
}
