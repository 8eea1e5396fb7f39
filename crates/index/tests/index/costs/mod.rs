//! What each operation of each structure flushes and fences, and refuses.

mod art;
mod cceh;
mod fast_fair;
mod fptree;
mod hash_tables;
mod level_hash;
mod nv_tree;
mod p_bwtree;
mod p_clht;
mod p_hot;
mod p_masstree;
mod wb_tree;
mod wort;

use lapis_index::{IndexError, IndexKey, IndexKind, IndexMaker, IndexOptions};

use crate::counted::Counted;
use crate::hold_ups::{Here, pool_in_memory};

#[test]
fn impossible_node_sizes_are_refused() {
    let sizes: [(IndexKind, &[usize]); 7] = [
        (IndexKind::Cceh, &[1, 256, 400, 16 << 10 | 64]),
        (IndexKind::FastFair, &[1, 64, 192, 300, 4160]),
        (IndexKind::FpTree, &[1, 64, 192, 257, 1088]),
        (IndexKind::NvTree, &[64, 200, 2112]),
        (IndexKind::PBwTree, &[1, 64, 200, 4160]),
        (IndexKind::WbTree, &[128, 300, 1216]),
        (IndexKind::WbTreeSlot, &[256]),
    ];
    let pool = pool_in_memory();
    for (kind, sizes) in sizes {
        for &node_bytes in sizes {
            let options = IndexOptions { node_bytes, ..IndexOptions::default() };
            let refused = IndexMaker::<Here, u64>::HERE.create(kind, &pool, &options);
            assert!(matches!(refused, Err(IndexError::BadOption { .. })), "{kind} {node_bytes}");
        }
    }
}

/// On the modelled machine flushes drop lines, so that such a read is a miss. A lock or a version that lies in the line
/// of the value would be read so, to be given back.
#[test]
fn an_update_reads_no_line_that_it_has_flushed() {
    const KEYS: usize = 8000;
    let options = IndexOptions { expected_entries: KEYS, ..IndexOptions::default() };
    let keys: Vec<u64> = (0..KEYS).map(|number| number.to_be_bytes()[..].hash64()).collect();
    // P-BwTree rewrites a node when its records are many, and those of the last updates are among them.
    for kind in IndexKind::ALL.into_iter().filter(|kind| *kind != IndexKind::PBwTree) {
        let index = Counted::<u64>::with(kind, &options).holding(&keys);
        let flushed_reads = || index.0.pool().domain().counts().flushed_reads;
        let before = flushed_reads();
        // Neither what was added together nor neighbours one after the other: they would be in one line.
        (0..KEYS).for_each(|number| _ = index.update(&keys[number * 3001 % KEYS]));
        let found = flushed_reads() - before;
        assert!(found < KEYS as u64 / 100, "{kind}: {found}");
    }
}
