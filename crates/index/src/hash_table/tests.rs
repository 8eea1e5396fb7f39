//! What the tests of every hash table begin with, and what each of them does.

use std::sync::Arc;

use lapis_pmem::{Hardware, Pool, Region};

use crate::index::{Index, IndexOptions};
use crate::{IndexError, IndexKey};

/// A pool that can grow as a table does.
pub(crate) fn pool() -> Arc<Pool> {
    let region = Region::anonymous(1 << 20, 1 << 30).unwrap();
    Arc::new(Pool::create(region, Hardware::detect()).unwrap())
}

pub(crate) fn made<T, K>(options: &IndexOptions) -> T
where
    T: Index<Hardware, K>,
    K: IndexKey + ?Sized,
{
    T::create_named(&pool(), "index", options).unwrap()
}

pub(crate) fn assert_sound<K: IndexKey + ?Sized>(index: &impl Index<Hardware, K>) {
    assert_eq!(index.check(), Vec::<String>::new());
    let pool = index.pool();
    let audit = pool.audit(&pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {})));
    assert!(audit.is_clean(), "{audit:?}");
}

/// Two handles of one table, by which four threads have changed it, and found what they changed.
pub(crate) fn changed_by_two_handles<T: Index<Hardware, u64>>(options: &IndexOptions) -> [T; 2] {
    const KEYS: u64 = 6000;
    let first: T = made(options);
    let pool = first.pool();
    let second = T::open(Arc::clone(pool), pool.root("index").unwrap()).unwrap();
    let left = |key: u64| (key % 8 < 4).then_some(key);
    std::thread::scope(|scope| {
        for (part, index) in [&first, &second, &first, &second].into_iter().enumerate() {
            scope.spawn(move || {
                for key in (part as u64..KEYS).step_by(4) {
                    assert!(index.insert(&key, key).unwrap().previous.is_none());
                    // All contend for these.
                    let _ = index.put(&(KEYS + key % 3), key).unwrap();
                    if left(key).is_none() {
                        assert_eq!(index.remove(&key).unwrap().previous, Some(key));
                    }
                    let earlier = key / 8 * 4 + part as u64;
                    assert_eq!(index.get(&earlier), left(earlier));
                }
            });
        }
    });
    for index in [&second, &first] {
        assert!((0..KEYS).all(|key| index.get(&key) == left(key)));
    }
    assert_eq!(first.statistics().entries, KEYS / 2 + 3);
    assert_sound(&first);
    [first, second]
}

pub(crate) fn refuses_more_entries_than_any_table_holds<T: Index<Hardware, u64>>() {
    for expected_entries in [1 << 50, usize::MAX] {
        let options = IndexOptions { expected_entries, ..IndexOptions::DEFAULT };
        let refused = T::create(&pool(), &options).map(drop);
        assert!(matches!(refused, Err(IndexError::BadOption { .. })), "{refused:?}");
    }
}
