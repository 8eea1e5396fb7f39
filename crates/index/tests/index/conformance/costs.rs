//! The costs that the capability table states.

use std::collections::BTreeMap;

use lapis_index::{Index, IndexFamily, InsertCost, KeyKind, capability_table};
use lapis_pmem::{PersistCounts, Watched};

use super::counting::watched_pool;
use super::harness::{Keys, On, create};

/// More than half of all inserts cost what the table says.
pub fn inserts_cost_what_the_table_says<F: IndexFamily, K: Keys + ?Sized>() {
    let pool = watched_pool::<PersistCounts>(1 << 20);
    let index: F::Of<Watched<PersistCounts>, K> = create(&pool, "index");
    let counts = pool.domain().watcher();
    let mut seen: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for number in 0..4000u64 {
        let key = K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        counts.take();
        let _ = index.insert(K::borrow(&key), number).unwrap();
        let cost = counts.take();
        if number >= 1000 {
            *seen.entry(cost).or_default() += 1;
        }
    }
    let (usual, times) = seen.iter().max_by_key(|(_, times)| **times).unwrap();
    let row = capability_table()
        .into_iter()
        .find(|row| row.kind == <On<F, K>>::KIND)
        .expect("every structure has its row");
    let stated = match K::KIND {
        KeyKind::Fixed8 => row.insert_u64,
        KeyKind::Bytes => row.insert_bytes,
    };
    // A cost that most inserts have; none if there is no such cost.
    let measured = (*times > seen.values().sum::<u32>() / 2)
        .then_some(InsertCost { flushed_lines: usual.0, fences: usual.1 });
    assert_eq!(stated, measured, "{seen:?}");
}
