//! P-CLHT.

use lapis_index::IndexKey;
use lapis_index::IndexKind::PClht;

use super::hash_tables::{beside_a_writer_of_one, made_for};

#[test]
fn an_overflow_bucket_costs_two_flushes_and_two_fences_and_its_end_one_and_one() {
    // 64 buckets: up to eight overflow buckets before the table grows.
    let index = made_for::<u64>(PClht, 100);
    let mut overflowed = 0;
    // In no order: neighbours are spread so evenly that nothing would overflow.
    for key in (0..120u64).map(|number| number.to_be_bytes()[..].hash64()) {
        let nodes = index.0.statistics().nodes;
        let inserted = index.insert(&key);
        if index.0.statistics().nodes == nodes + 1 {
            assert_eq!(inserted, (2, 2));
            assert_eq!(index.remove(&key), (1, 1));
            assert_eq!(index.0.statistics().nodes, nodes);
            overflowed += 1;
        }
    }
    assert!(overflowed > 0);
}

#[test]
fn growing_flushes_what_overflows_and_two_more_lines_and_fences_twice() {
    let index = made_for::<u64>(PClht, 1000);
    let (mut key, mut nodes) = (0, index.0.statistics().nodes);
    loop {
        let (lines, fences) = index.insert(&key);
        key += 1;
        let statistics = index.0.statistics();
        if statistics.nodes > nodes + 1 {
            // The insert that led to it: 2 and 2. Bucket 0 and the root: 2, with a fence each. The
            // counter sees what is written past the caches as neither.
            let overflow = statistics.nodes - (1u64 << statistics.nodes.ilog2());
            assert!(lines >= 4 + overflow && fences >= 4, "{lines}, {fences}, {overflow}");
            // New runs and slabs of the allocator: at most as many of each.
            assert!(lines <= overflow + fences && fences <= 4 + 8, "{lines}, {fences}");
            break;
        }
        nodes = statistics.nodes;
    }
}

#[test]
fn a_reader_of_another_chain_persists_nothing() {
    // There are hundreds of chains.
    assert!(beside_a_writer_of_one(PClht) > 55);
}
