//! What each operation does and says.

use std::collections::BTreeMap;

use super::harness::{Keys, Tested, assert_sound};

const KEY: u64 = 0x0102_0304_0506_0708;

pub fn insert_adds_an_absent_key_and_leaves_a_present_one<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let key = K::number(KEY);
    assert_eq!(index.insert(K::borrow(&key), 1).unwrap().previous, None);
    assert_eq!(index.insert(K::borrow(&key), 2).unwrap().previous, Some(1));
    assert_eq!(index.get(K::borrow(&key)), Some(1));
    assert_sound(&index, &BTreeMap::from([(key, 1)]));
}

pub fn update_changes_a_present_key_only<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let key = K::number(KEY);
    assert_eq!(index.update(K::borrow(&key), 1).unwrap().previous, None);
    assert_eq!(index.get(K::borrow(&key)), None);
    assert_eq!(index.insert(K::borrow(&key), 2).unwrap().previous, None);
    assert_eq!(index.update(K::borrow(&key), 3).unwrap().previous, Some(2));
    assert_sound(&index, &BTreeMap::from([(key, 3)]));
}

pub fn put_adds_or_replaces<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let key = K::number(KEY);
    assert_eq!(index.put(K::borrow(&key), 1).unwrap().previous, None);
    assert_eq!(index.put(K::borrow(&key), 2).unwrap().previous, Some(1));
    assert_sound(&index, &BTreeMap::from([(key, 2)]));
}

pub fn remove_takes_a_present_key_only<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let (key, other) = (K::number(KEY), K::number(KEY + 1));
    assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, None);
    assert_eq!(index.insert(K::borrow(&key), 1).unwrap().previous, None);
    assert_eq!(index.remove(K::borrow(&other)).unwrap().previous, None);
    assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, Some(1));
    assert_eq!(index.get(K::borrow(&key)), None);
    assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, None);
    assert_sound(&index, &BTreeMap::new());
    assert_eq!(index.insert(K::borrow(&key), 2).unwrap().previous, None);
    assert_sound(&index, &BTreeMap::from([(key, 2)]));
}

pub fn the_extreme_keys_and_values_are_ordinary<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let mut expected = BTreeMap::new();
    for (number, value) in [(0, 0), (u64::MAX, u64::MAX), (1, u64::MAX), (u64::MAX - 1, 0)] {
        let key = K::number(number);
        assert_eq!(index.get(K::borrow(&key)), None);
        assert_eq!(index.insert(K::borrow(&key), value).unwrap().previous, None);
        assert_eq!(index.get(K::borrow(&key)), Some(value));
        expected.insert(key, value);
    }
    assert_sound(&index, &expected);
    for (key, value) in &mut expected {
        let changed = !*value;
        assert_eq!(index.put(K::borrow(key), changed).unwrap().previous, Some(*value));
        *value = changed;
    }
    assert_sound(&index, &expected);
    for (key, value) in &expected {
        assert_eq!(index.remove(K::borrow(key)).unwrap().previous, Some(*value));
    }
    assert_sound(&index, &BTreeMap::new());
}

pub fn an_empty_index_has_nothing<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    assert_eq!(index.get(K::borrow(&K::number(0))), None);
    assert_sound(&index, &BTreeMap::new());
}
