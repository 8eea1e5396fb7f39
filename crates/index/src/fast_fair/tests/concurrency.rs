//! Real threads on one tree.

use super::ints;
use crate::index::Index;
use crate::key::IndexKey;

#[test]
fn writers_repair_and_adopt_together_after_a_restart() {
    let tree = ints(256);
    for key in 0..4000u64 {
        let _ = tree.insert(&key.to_be_bytes()[..].hash64(), key).unwrap();
    }
    for reopened in 1..6 {
        let tree = tree.reopened(reopened);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    for number in (0..4000u64).filter(|number| number % 4 == thread) {
                        let key = number.to_be_bytes()[..].hash64();
                        assert_eq!(tree.remove(&key).unwrap().previous, Some(number));
                        assert_eq!(tree.insert(&key, number).unwrap().previous, None);
                    }
                });
            }
        });
        tree.assert_sound();
    }
}
