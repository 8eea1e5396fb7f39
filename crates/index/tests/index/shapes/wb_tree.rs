//! wB+-Tree, with a bitmap and slots and with slots only.

use std::sync::Arc;

use lapis_index::IndexKind::{self, WbTree, WbTreeSlot};
use lapis_index::{AnyIndex, IndexError, IndexKey, IndexMaker, IndexOptions, IndexRoot};
use lapis_pmem::{Link, PCell};

use crate::hold_ups::{Here, pool_in_memory};

fn create(kind: IndexKind, node_bytes: usize) -> AnyIndex<Here, u64> {
    let options = IndexOptions { node_bytes, ..IndexOptions::default() };
    IndexMaker::HERE.create_named(kind, &pool_in_memory(), "index", &options).unwrap()
}

#[test]
fn ascending_keys_leave_full_nodes() {
    for (kind, node_bytes, capacity) in [(WbTree, 0, 63), (WbTree, 256, 8), (WbTreeSlot, 0, 7)] {
        let index = create(kind, node_bytes);
        for key in 0..5000 {
            let _ = index.insert(&key, key).unwrap();
        }
        let sizes = index.statistics();
        assert_eq!(sizes.blocks - 2 - sizes.nodes, 5000u64.div_ceil(capacity));
        assert_eq!(index.check(), [""; 0]);
    }
}

#[test]
fn filled_at_random_the_default_nodes_reach_the_published_depth_at_128_million_keys() {
    let index = create(WbTree, 0);
    for key in 0..60_000u64 {
        let _ = index.insert(&key.to_be_bytes()[..].hash64(), key).unwrap();
    }
    let sizes = index.statistics();
    let leaves = sizes.blocks - 2 - sizes.nodes;
    let filled = sizes.entries as f64 / leaves as f64;
    assert!((0.64..0.74).contains(&(filled / 63.0)), "{filled} of 63");
    let (mut nodes, mut levels) = (128.0 * 1024.0 * 1024.0 / filled, 0);
    while nodes > 1.0 {
        nodes /= if nodes <= 64.0 { nodes } else { filled + 1.0 };
        levels += 1;
    }
    assert_eq!(levels, 4);
}

#[test]
fn a_root_whose_kind_of_nodes_is_not_that_of_its_structure_is_damage() {
    // The second of the structure's words: 1 with a bitmap, 2 with slots only.
    for (kind, right) in [(WbTree, 1), (WbTreeSlot, 2)] {
        let pool = Arc::clone(create(kind, 0).pool());
        let root: Link<IndexRoot> = pool.root("index").unwrap();
        let word = pool.at(Link::<PCell<u32>>::from_bits(root.offset() + 24 + 8));
        for number in 0..4 {
            word.store(pool.domain(), number);
            let opened = IndexMaker::<_, u64>::HERE.open(kind, Arc::clone(&pool), root);
            match opened {
                Ok(_) => assert_eq!(number, right),
                Err(IndexError::Damaged { .. }) => assert_ne!(number, right),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
