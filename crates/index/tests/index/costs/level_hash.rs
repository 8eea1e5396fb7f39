//! Level hashing.

use lapis_index::IndexKind::LevelHash;

use super::hash_tables::{beside_a_writer_of_one, made_for};

/// A movement: the record of it, the copy, the new entry, each with a fence. Growing: bucket 0 and the root,
/// and now and then a slab; what is written past the caches counts as neither.
#[test]
fn a_movement_costs_three_flushes_and_fences_and_growth_three_with_the_entry() {
    let index = made_for::<u64>(LevelHash, 1000);
    let (mut moved, mut grown, mut nodes) = (0, 0, index.0.statistics().nodes);
    for key in 0..6000 {
        let cost = index.insert(&key);
        if cost == (1, 1) {
            continue;
        }
        let now = index.0.statistics().nodes;
        if now == nodes {
            assert_eq!(cost, (3, 3), "key {key}");
            moved += 1;
        } else {
            assert!(cost.0 == cost.1 && (3..=3 + 8).contains(&cost.0), "key {key}: {cost:?}");
            grown += 1;
        }
        nodes = now;
    }
    assert!(moved > 5 && grown == 2, "{moved}, {grown}");
}

#[test]
fn a_reader_of_another_group_persists_nothing() {
    // There are 256 groups.
    assert!(beside_a_writer_of_one(LevelHash) > 55);
}
