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

use lapis_index::{AnyIndex, IndexError, IndexKind, IndexOptions};

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
            let refused = AnyIndex::<Here, u64>::create(kind, &pool, &options);
            assert!(matches!(refused, Err(IndexError::BadOption { .. })), "{kind} {node_bytes}");
        }
    }
}
