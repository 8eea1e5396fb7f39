//! Keys that somebody has chosen to have the same hash.

use lapis_index::{AnyIndex, INDEXES_HERE, IndexError, IndexKind, IndexOptions};
use lapis_pmem::{Hardware, Pool, Region};
use std::sync::Arc;

const HASH_TABLES: [IndexKind; 3] = [IndexKind::PClht, IndexKind::Cceh, IndexKind::LevelHash];

/// What the hash is begun with where nobody has chosen a seed: a key that begins so makes nothing of the eight bytes behind.
const BEGINNING: [u8; 8] = [0xB8, 0xFE, 0x6C, 0x39, 0x23, 0xA4, 0x4B, 0xBE];

fn crafted(number: u64) -> Vec<u8> {
    [&BEGINNING[..], &number.to_le_bytes(), &[7; 16]].concat()
}

fn index(kind: IndexKind, hash_seed: u64) -> AnyIndex<Hardware, [u8]> {
    let region = Region::anonymous(1 << 20, 4 << 20).unwrap();
    let pool = Arc::new(Pool::create(region, Hardware::detect()).unwrap());
    let options = IndexOptions { hash_seed, ..IndexOptions::DEFAULT };
    INDEXES_HERE.create_named(kind, &pool, "index", &options).unwrap()
}

#[test]
fn keys_chosen_to_have_one_hash_are_spread_by_a_seed() {
    for kind in HASH_TABLES {
        let index = index(kind, 0x0123_4567_89AB_CDEF);
        for number in 0..2000 {
            let outcome = index.insert(&crafted(number), number).unwrap();
            assert_eq!(outcome.previous, None, "{kind}");
        }
        let pool = Arc::clone(index.pool());
        let root = pool.root("index").unwrap();
        drop(index);
        // The seed is the index's, not the handle's.
        let index = INDEXES_HERE.open(kind, pool, root).unwrap();
        assert!((0..2000).all(|number| index.get(&crafted(number)) == Some(number)), "{kind}");
        assert_eq!(index.check(), Vec::<String>::new(), "{kind}");
        let depth = index.statistics().max_depth;
        assert!(depth < 12, "{kind}: {depth}");
        for number in 0..2000 {
            assert_eq!(index.remove(&crafted(number)).unwrap().previous, Some(number), "{kind}");
        }
    }
}

#[test]
fn without_a_seed_they_flood_a_table() {
    for kind in HASH_TABLES {
        let index = index(kind, 0);
        let refused =
            (0..40).find_map(|number| Some((number, index.insert(&crafted(number), 0).err()?)));
        match (kind, refused) {
            // It has chains, which become long.
            (IndexKind::PClht, None) => assert!(index.statistics().max_depth >= 13),
            (IndexKind::Cceh, Some((16, IndexError::Alloc(_)))) => {}
            (IndexKind::LevelHash, Some((12, IndexError::Alloc(_)))) => {}
            other => panic!("{other:?}"),
        }
    }
}
