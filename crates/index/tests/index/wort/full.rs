//! A pool without room.

use std::sync::Arc;

use lapis_index::{Index, IndexError, IndexKey, Wort};
use lapis_pmem::{Hardware, Pool, Region};

use super::{audited_blocks, create};

#[test]
fn a_full_pool_refuses_inserts_leaves_the_index_as_it_was_and_takes_keys_again_after_removals() {
    let region = Region::anonymous(512 << 10, 512 << 10).unwrap();
    let pool = Arc::new(Pool::create(region, Hardware::detect()).unwrap());
    let index: Wort<_, u64> = create(&pool);
    let mut refused = 0;
    let mut present = Vec::new();
    for number in 0..20_000u64 {
        match index.insert(&number.hash64(), number) {
            Ok(_) => present.push(number),
            Err(IndexError::Alloc(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0 && present.len() > 1000);
    assert_eq!(index.check(), [""; 0]);
    assert_eq!(index.statistics().entries, present.len() as u64);
    audited_blocks(&index);
    for &number in &present {
        assert_eq!(index.remove(&number.hash64()).unwrap().previous, Some(number));
    }
    assert_eq!(index.insert(&1, 1).unwrap().previous, None);
    assert_eq!(index.get(&1), Some(1));
}
