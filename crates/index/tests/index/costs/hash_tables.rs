//! What costs the same in every hash table.

use lapis_index::IndexKind::{self, Cceh, LevelHash, PClht};
use lapis_index::{AnyIndex, IndexKey, IndexMaker, IndexOptions};

use crate::at_fence::{beside_a_writer_at_its_first_fence, counting};
use crate::counted::Counted;
use crate::hold_ups::{Here, pool_in_memory};

const HASH_TABLES: [IndexKind; 3] = [PClht, Cceh, LevelHash];

pub fn made_for<K: IndexKey + ?Sized>(kind: IndexKind, expected_entries: usize) -> Counted<K> {
    Counted::with(kind, &IndexOptions { expected_entries, ..IndexOptions::default() })
}

/// How many of the keys 2 to 63 are read without a flush or fence while an update of key 1 waits at its fence.
pub fn beside_a_writer_of_one(kind: IndexKind) -> usize {
    let options = IndexOptions { expected_entries: 1000, ..IndexOptions::default() };
    let index: AnyIndex<Here, u64> =
        IndexMaker::HERE.create_named(kind, &pool_in_memory(), "index", &options).unwrap();
    (0..64).for_each(|key| _ = index.insert(&key, 1).unwrap());
    let machine = index.pool().domain();
    let write = || _ = index.update(&1, 11).unwrap();
    let read = || {
        let costs = (2..64).map(|key| counting(machine, || index.get(&key)).1);
        costs.filter(|cost| *cost == (0, 0)).count()
    };
    beside_a_writer_at_its_first_fence(machine, write, read)
}

#[test]
fn an_insert_into_a_free_slot_costs_one_flush_and_one_fence() {
    for kind in HASH_TABLES {
        let index = made_for::<u64>(kind, 20_000);
        for key in 0..500 {
            assert_eq!(index.insert(&key), (1, 1), "{kind}, key {key}");
        }
    }
}

#[test]
fn an_insert_of_a_byte_string_also_flushes_the_key_and_fences_before_it_counts() {
    for kind in HASH_TABLES {
        let index = made_for::<[u8]>(kind, 10_000);
        // The first allocates a slab for keys.
        let _ = index.insert(b"first");
        assert_eq!(index.insert(b"second"), (2, 2), "{kind}");
    }
}

#[test]
fn a_change_of_a_present_key_costs_one_flush_and_one_fence() {
    for kind in HASH_TABLES {
        let index = made_for::<u64>(kind, 1000).holding(&[1]);
        assert_eq!([index.update(&1), index.put(&1), index.remove(&1)], [(1, 1); 3], "{kind}");
    }
}
