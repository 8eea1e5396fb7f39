//! Real threads on one tree.

use super::ints;
use crate::index::Index;
use crate::key::IndexKey;

#[test]
fn writers_repair_and_adopt_together_after_a_restart() {
    let tree = ints(256);
    for key in 0..4000u64 {
        let _ = tree.insert(&key.hash64(), key).unwrap();
    }
    for reopened in 1..6 {
        let tree = tree.reopened(reopened);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    for key in (0..4000u64).filter(|key| key % 4 == thread) {
                        assert_eq!(tree.remove(&key.hash64()).unwrap().previous, Some(key));
                        assert_eq!(tree.insert(&key.hash64(), key).unwrap().previous, None);
                    }
                });
            }
        });
        tree.assert_sound();
    }
}
