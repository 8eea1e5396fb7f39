//! Byte strings as keys.

use std::collections::BTreeMap;

use lapis_index::{Change, IndexError, MAX_KEY_BYTES};

use super::harness::{On, Tested, assert_sound, so_many};

/// Inserts all, looks, removes every second, looks, removes the rest, looks.
fn hold_and_give_back(tested: Tested, keys: &[Vec<u8>]) {
    let index: On<[u8]> = tested.in_memory();
    let mut expected = BTreeMap::new();
    for (value, key) in keys.iter().enumerate() {
        assert_eq!(index.get(key), None, "{key:?}");
        assert_eq!(index.insert(key, value as u64).unwrap().previous, None);
        expected.insert(key.clone(), value as u64);
    }
    assert_sound(&index, &expected);
    for start in [0, 1] {
        for key in keys.iter().skip(start).step_by(2) {
            assert_eq!(index.remove(key).unwrap().previous, expected.remove(key));
        }
        assert_sound(&index, &expected);
    }
}

pub fn keys_of_one_byte_and_of_the_greatest_length(tested: Tested) {
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.push(vec![7; MAX_KEY_BYTES]);
    keys.push(vec![8; MAX_KEY_BYTES - 1]);
    let mut last_byte_differs = vec![7; MAX_KEY_BYTES];
    *last_byte_differs.last_mut().unwrap() = 9;
    keys.push(last_byte_differs);
    hold_and_give_back(tested, &keys);
}

pub fn prefixes_of_each_other_are_different_keys(tested: Tested) {
    let whole = b"abcabcabdabcabcabdabcabcabd\0\0\0\xff\xff";
    let keys: Vec<Vec<u8>> = (1..=whole.len()).map(|bytes| whole[..bytes].to_vec()).collect();
    hold_and_give_back(tested, &keys);
    let longest_first: Vec<_> = keys.into_iter().rev().collect();
    hold_and_give_back(tested, &longest_first);
}

pub fn zero_bytes_count(tested: Tested) {
    let mut keys: Vec<Vec<u8>> = (1..40).map(|bytes| vec![0; bytes]).collect();
    keys.extend((1..40).map(|bytes| [vec![0; bytes], vec![1]].concat()));
    keys.extend([b"a\0".to_vec(), b"a".to_vec(), b"a\0b".to_vec(), b"\0a".to_vec()]);
    hold_and_give_back(tested, &keys);
}

pub fn long_common_prefixes(tested: Tested) {
    let keys: Vec<Vec<u8>> = (0..so_many(600) as u16)
        .map(|number| {
            let stem = vec![b'x'; 40 + usize::from(number % 3) * 200];
            [&stem[..], &number.to_be_bytes(), &stem[..usize::from(number % 5)]].concat()
        })
        .collect();
    hold_and_give_back(tested, &keys);
}

pub fn empty_and_overlong_keys_are_refused(tested: Tested) {
    let index: On<[u8]> = tested.in_memory();
    let long = vec![0; MAX_KEY_BYTES + 1];
    for change in [Change::Insert(1), Change::Update(1), Change::Put(1)] {
        assert!(matches!(index.change(&[], change), Err(IndexError::EmptyKey)));
        assert!(matches!(
            index.change(&long, change),
            Err(IndexError::KeyTooLong { bytes }) if bytes == MAX_KEY_BYTES + 1
        ));
    }
    assert!(matches!(index.remove(&[]), Err(IndexError::EmptyKey)));
    assert!(matches!(index.remove(&long), Err(IndexError::KeyTooLong { .. })));
    assert_eq!((index.get(&[]), index.get(&long)), (None, None));
    assert_sound(&index, &BTreeMap::new());
}
