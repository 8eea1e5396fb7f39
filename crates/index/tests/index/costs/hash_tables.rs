//! What costs the same in every hash table.

use lapis_index::IndexKind::{self, Cceh, LevelHash, PClht};
use lapis_index::{IndexKey, IndexOptions};

use crate::watched::Counted;

const HASH_TABLES: [IndexKind; 3] = [PClht, Cceh, LevelHash];

pub fn made_for<K: IndexKey + ?Sized>(kind: IndexKind, expected_entries: usize) -> Counted<K> {
    Counted::with(kind, &IndexOptions { expected_entries, ..IndexOptions::default() })
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
