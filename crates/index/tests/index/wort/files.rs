//! Indexes in files that are closed and opened again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_index::{Index, IndexError, IndexKey, Wort};
use lapis_pmem::{Hardware, Pool, RegionOptions};

use super::{NAME, audited_blocks, create, open};

#[test]
fn an_index_in_a_file_is_there_after_closing_and_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let key = |number: u64| format!("key {}", number.hash64() % 2000).into_bytes();
    let mut model = BTreeMap::new();
    {
        let pool = Pool::create_file(&path, 4 << 20, &RegionOptions::default()).unwrap();
        let index: Wort<_, [u8]> = create(&Arc::new(pool));
        for number in 0..3000 {
            let _ = index.put(&key(number), number).unwrap();
            model.insert(key(number), number);
        }
    }
    let pool = Arc::new(Pool::open_file(&path, &RegionOptions::default()).unwrap());
    let index: Wort<_, [u8]> = open(&pool);
    assert_eq!(index.check(), [""; 0]);
    let mut entries = Vec::new();
    index.for_each(&mut |key, value| {
        entries.push((key.to_vec(), value));
        ControlFlow::Continue(())
    });
    assert!(entries.into_iter().eq(model));
    audited_blocks(&index);
}

#[test]
fn a_root_of_another_kind_of_keys_is_refused() {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let _index: Wort<_, u64> = create(&pool);
    let link = pool.root(NAME).unwrap();
    let refused = Wort::<Hardware, [u8]>::open(pool, link);
    assert!(matches!(refused, Err(IndexError::WrongKind { .. })));
}
