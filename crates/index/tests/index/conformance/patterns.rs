//! Many keys, laid out in the ways that structures find easy and hard.

use std::collections::BTreeMap;

use lapis_index::{InnerNodes, Outcome};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::harness::{Keys, Tested, assert_nothing_leaked, assert_sound, so_many};

const COUNT: u64 = so_many(3000);

/// Inserts the keys in the given order, updates a third, removes half in another order, then the
/// rest, and looks at everything in between.
fn through_its_life<K: Keys + ?Sized>(tested: Tested, numbers: impl IntoIterator<Item = u64>) {
    let index = tested.in_memory::<K>();
    let mut expected = BTreeMap::new();
    let mut keys: Vec<K::Buf> = numbers.into_iter().map(K::number).collect();
    for (value, key) in keys.iter().enumerate() {
        let outcome = index.insert(K::borrow(key), value as u64).unwrap();
        assert_eq!(outcome.previous, None, "{key:?}");
        expected.insert(key.clone(), value as u64);
    }
    assert_sound(&index, &expected);
    for key in keys.iter().step_by(3) {
        let value = expected.get_mut(key).unwrap();
        assert_eq!(index.update(K::borrow(key), *value + COUNT).unwrap().previous, Some(*value));
        *value += COUNT;
    }
    assert_sound(&index, &expected);
    keys.shuffle(&mut StdRng::seed_from_u64(1));
    let (first, second) = keys.split_at(keys.len() / 2);
    for half in [first, second] {
        for key in half {
            assert_eq!(index.remove(K::borrow(key)).unwrap().previous, expected.remove(key));
            assert_eq!(index.get(K::borrow(key)), None);
        }
        let removed: Vec<&K> = half.iter().map(K::borrow).collect();
        let mut answers = 0;
        index.get_many(&removed, &mut |_, value| answers += usize::from(value.is_none()));
        assert_eq!(answers, half.len());
        assert_sound(&index, &expected);
    }
    // The last one is there by then.
    let again = &keys[..keys.len() / 30];
    let entries: Vec<(&K, u64)> = again
        .iter()
        .chain(again.first())
        .zip(1..)
        .map(|(key, value)| (K::borrow(key), value))
        .collect();
    let mut answered = Vec::new();
    let mut answer = |place, outcome: Outcome| answered.push((place, outcome.previous));
    index.insert_many(&entries, &mut answer).unwrap();
    let places = (0..again.len()).map(|place| (place, None));
    assert!(answered.into_iter().eq(places.chain([(again.len(), Some(1))])));
    expected.extend(again.iter().cloned().zip(1..));
    assert_sound(&index, &expected);
}

pub fn dense_keys<K: Keys + ?Sized>(tested: Tested) {
    through_its_life::<K>(tested, 0..COUNT);
}

pub fn sparse_keys<K: Keys + ?Sized>(tested: Tested) {
    through_its_life::<K>(tested, (0..COUNT).map(|number| number << 51));
}

pub fn clustered_keys<K: Keys + ?Sized>(tested: Tested) {
    // Fifty clusters far from each other, filled in turn.
    through_its_life::<K>(
        tested,
        (0..COUNT).map(|number| (number % 50) * 0x0500_0000_1000_0000 / 50 * 7 + number / 50),
    );
}

pub fn reverse_keys<K: Keys + ?Sized>(tested: Tested) {
    through_its_life::<K>(tested, (0..COUNT).rev());
}

pub fn random_keys<K: Keys + ?Sized>(tested: Tested) {
    let mut random = StdRng::seed_from_u64(2);
    through_its_life::<K>(tested, (0..COUNT).map(|_| random.random::<u64>()));
}

/// Keys come and go while their number stays: neither the structure nor the pool may keep growing.
pub fn a_bounded_live_set_takes_bounded_space<K: Keys + ?Sized>(tested: Tested) {
    const LIVE: u64 = so_many(500);
    let index = tested.in_memory::<K>();
    let mut early = 0;
    for number in 0..60 * LIVE {
        let key = K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_eq!(index.insert(K::borrow(&key), number).unwrap().previous, None);
        if number >= LIVE {
            let old = K::number((number - LIVE).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert_eq!(index.remove(K::borrow(&old)).unwrap().previous, Some(number - LIVE));
        }
        if number == 10 * LIVE {
            early = index.statistics().bytes;
        }
    }
    let late = index.statistics();
    assert_eq!(late.entries, LIVE);
    assert!(late.bytes <= 2 * early, "{early} bytes became {}", late.bytes);
    assert_nothing_leaked(&index);
}

/// Orders in which keys are added and taken away: each makes other nodes sparse or full.
const ORDERS: [fn(u64) -> u64; 4] = [
    |number| number,
    |number| EMPTIED - 1 - number,
    |number| number * 7 % EMPTIED,
    // From the middle to both ends.
    |number| {
        if number % 2 == 0 { EMPTIED / 2 + number / 2 } else { EMPTIED / 2 - 1 - number / 2 }
    },
];
const EMPTIED: u64 = if cfg!(miri) { 150 } else { 1500 };

/// For structures that shrink with their contents: those with an order.
pub fn an_emptied_index_gives_its_blocks_back_in_whatever_order<K: Keys + ?Sized>(tested: Tested) {
    for index in tested.geometries::<K>() {
        let empty = index.statistics().blocks;
        for order in ORDERS {
            let keys = || (0..EMPTIED).map(|number| K::number(order(number)));
            for key in keys() {
                assert_eq!(index.insert(K::borrow(&key), 1).unwrap().previous, None);
            }
            assert!(index.statistics().max_depth > 0);
            for key in keys() {
                assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, Some(1));
            }
            assert_sound(&index, &BTreeMap::new());
            // Arenas in the pool keep their size.
            if tested.inner_nodes == InnerNodes::Dram {
                assert_eq!(index.statistics().blocks, empty);
            }
        }
    }
}
