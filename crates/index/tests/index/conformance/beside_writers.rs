//! Readers and writers beside a writer that is in the middle of an operation.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use lapis_index::IndexOptions;

use super::harness::{Keys, On, Tested, entries, many, so_many};
use crate::at_fence::{beside_a_writer_at_its_first_fence, counting};
use crate::hold_ups::pool_in_memory;

/// Keys beside a writer that is asleep.
const COUNT: u64 = so_many(1000);

type Get<K> = fn(&On<K>, &K) -> Option<u64>;

/// With the keys 0, 10, 20 and so on, as many as that.
fn tens<K: Keys + ?Sized>(tested: Tested, options: &IndexOptions, count: u64) -> Arc<On<K>> {
    let index = tested.create_with(&pool_in_memory(), "index", options);
    for number in 0..count {
        let _ = index.insert(K::borrow(&K::number(number * 10)), number).unwrap();
    }
    Arc::new(index)
}

/// With a writer asleep inside an operation: runs `while_stalled` with so many numbers, each on a thread of
/// its own, and says whether one ended before the writer was woken.
fn beside_a_stalled_writer<K: Keys + ?Sized>(
    tested: Tested,
    numbers: std::ops::Range<u64>,
    while_stalled: impl Fn(&On<K>, u64) + Sync,
) -> bool {
    let index = tens::<K>(tested, &tested.default_options(), COUNT);
    let changed = K::number(30);
    let write = || {
        assert_eq!(index.put(K::borrow(&changed), 30).unwrap().previous, Some(3));
    };
    let (sender, receiver) = mpsc::channel();
    let ended = std::thread::scope(|scope| {
        beside_a_writer_at_its_first_fence(index.pool().domain(), write, || {
            for number in numbers {
                let (index, sender, while_stalled) = (&index, sender.clone(), &while_stalled);
                scope.spawn(move || {
                    while_stalled(index, number);
                    let _ = sender.send(());
                });
            }
            receiver.recv_timeout(Duration::from_secs(20)).is_ok()
        })
    });
    assert_eq!(index.get(K::borrow(&changed)), Some(30));
    ended
}

pub fn a_stalled_writer_does_not_stop_lock_free_readers<K: Keys + ?Sized>(tested: Tested) {
    if !tested.capabilities().lock_free_reads {
        return;
    }
    assert!(beside_a_stalled_writer::<K>(tested, 0..1, |index, _| {
        for number in 0..COUNT {
            let value = index.get(K::borrow(&K::number(number * 10))).unwrap();
            assert!(value == number || (number, value) == (3, 30));
        }
        assert_eq!(entries(index).len() as u64, COUNT);
    }));
}

pub fn a_stalled_writer_does_not_stop_concurrent_writers<K: Keys + ?Sized>(tested: Tested) {
    if !tested.capabilities().concurrent_writers {
        return;
    }
    // In a hash table any key may be where the writer is.
    assert!(beside_a_stalled_writer::<K>(tested, COUNT - 10..COUNT, |index, number| {
        let far = K::number(number * 10);
        assert_eq!(index.put(K::borrow(&far), 1).unwrap().previous, Some(number));
    }));
}

/// While nodes are split and merged, in the one half of the keys, the other half is found.
pub fn readers_find_what_stays_at_every_fence_of_a_writer<K: Keys + ?Sized>(tested: Tested) {
    const COUNT: u64 = 60;
    if !tested.capabilities().lock_free_reads {
        return;
    }
    for options in [tested.default_options(), tested.explored_options()] {
        let index = tens::<K>(tested, &options, COUNT);
        let staying: Vec<_> = (0..COUNT).map(|number| (K::number(number * 10), number)).collect();
        let ordered = index.kind().1.ordered;
        index.pool().domain().watcher().1.before_each_fence({
            let index = Arc::clone(&index);
            move || {
                for (key, value) in &staying {
                    assert_eq!(index.get(K::borrow(key)), Some(*value), "{key:?}");
                }
                let keys: Vec<_> = staying.iter().map(|(key, _)| key.clone()).collect();
                let values = staying.iter().map(|(_, value)| Some(*value));
                assert!(many::<_, K>(&index, &keys).into_iter().eq(values));
                let mut found = entries(&index);
                assert!(!ordered || found.is_sorted_by(|one, other| one.0 < other.0));
                found.sort();
                found.retain(|entry| staying.contains(entry));
                assert_eq!(found, staying);
            }
        });
        let coming = || (301..340).filter(|number| number % 10 != 0).map(K::number);
        for key in coming() {
            assert_eq!(index.insert(K::borrow(&key), 0).unwrap().previous, None);
        }
        for key in coming() {
            assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, Some(0));
        }
        index.pool().domain().watcher().1.let_be();
    }
}

/// Of many keys that are looked up at the same time, each is found, whatever is changed beside it between two of its
/// steps.
pub fn look_ups_under_way_find_what_stays<K: Keys + ?Sized>(tested: Tested) {
    const COUNT: u64 = 60;
    if !tested.capabilities().lock_free_reads {
        return;
    }
    for options in [tested.default_options(), tested.explored_options()] {
        let index = tens::<K>(tested, &options, COUNT);
        let keys: Vec<_> = (0..COUNT).map(|number| K::number(number * 10)).collect();
        let keys: Vec<_> = keys.iter().map(K::borrow).collect();
        let coming: Vec<_> = (0..10 * COUNT).filter(|number| number % 10 != 0).collect();
        let mut answers = 0;
        index.get_many(&keys, &mut |place, value| {
            assert_eq!(value, Some(place as u64));
            // Where those lie that are still under way.
            let near = (answers / 2 * 2 + 8) / 6 % 10;
            let some = coming.chunks(coming.len() / 10).nth(near).unwrap_or_default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in some {
                        let key = K::number(*number);
                        let _ = match answers % 2 {
                            0 => index.insert(K::borrow(&key), 0),
                            _ => index.remove(K::borrow(&key)),
                        }
                        .unwrap();
                    }
                });
            });
            answers += 1;
        });
        assert_eq!(answers as u64, COUNT);
    }
}

/// What a reader of `number` is told before each fence of a change, and what that costs it.
fn reads_at_each_fence<K: Keys + ?Sized>(
    index: &Arc<On<K>>,
    number: u64,
    get: Get<K>,
    change: impl FnOnce(&K),
) -> Vec<(Option<u64>, (u64, u64))> {
    let machine = index.pool().domain().clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    machine.watcher().1.before_each_fence({
        let (reader, seen, machine) = (Arc::clone(index), Arc::clone(&seen), machine.clone());
        let key = K::number(number);
        move || seen.lock().unwrap().push(counting(&machine, || get(&reader, K::borrow(&key))))
    });
    change(K::borrow(&K::number(number)));
    machine.watcher().1.let_be();
    std::mem::take(&mut seen.lock().unwrap())
}

/// A change is seen before the fence that makes it durable: then by a reader who makes it so.
pub fn a_reader_that_sees_a_change_before_its_fence_persists_it<K: Keys + ?Sized>(tested: Tested) {
    type Do<K> = fn(&On<K>, &K);
    let changes: [(u64, Do<K>, [Option<u64>; 2]); 3] = [
        (75, |index, key| _ = index.insert(key, 7).unwrap(), [None, Some(7)]),
        (30, |index, key| _ = index.update(key, 9).unwrap(), [Some(3), Some(9)]),
        (50, |index, key| _ = index.remove(key).unwrap(), [Some(5), None]),
    ];
    let ways: [Get<K>; 2] =
        [|index, key| index.get(key), |index, key| many::<_, K>(index, &[key.to_buf()])[0]];
    for ((number, change, [before, after]), get) in
        changes.into_iter().flat_map(|change| ways.map(|get| (change, get)))
    {
        let index = tens::<K>(tested, &tested.default_options(), 8);
        let reads = reads_at_each_fence(&index, number, get, |key| change(&index, key));
        assert!(reads.iter().all(|read| read.0 == before || read.0 == after), "{reads:?}");
        let first = reads.iter().find(|read| read.0 == after).expect("a read before its fence");
        assert!(first.1.0 >= 1 && first.1.1 == 1, "{reads:?}");
        let (answer, cost) =
            counting(index.pool().domain(), || get(&index, K::borrow(&K::number(number))));
        assert_eq!((answer, cost), (after, (0, 0)));
    }
}
