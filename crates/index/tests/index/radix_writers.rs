//! Writers of the radix trees side by side: they change the same few keys, all in one dense region, and
//! what each of them is told fits one history.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapis_index::{AnyIndex, IndexKey, IndexKind, IndexMaker, IndexOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::hold_ups::{Here, pool_in_memory};

const THREADS: u64 = 4;
const STEPS: u64 = if cfg!(miri) { 100 } else { 20_000 };

/// A value that one change gave a key, or the one that a change ended.
#[derive(Default)]
struct Ledger {
    begun: Vec<u64>,
    ended: Vec<u64>,
}

/// What one thread does with keys that all threads have, and what it is told. Each value is given
/// once.
fn work<K: IndexKey + ?Sized>(
    index: &AnyIndex<Here, K>,
    keys: &[K::Buf],
    thread: u64,
) -> BTreeMap<usize, Ledger> {
    let mut random = SmallRng::seed_from_u64(thread);
    let mut ledgers: BTreeMap<usize, Ledger> = BTreeMap::new();
    for step in 0..STEPS {
        // Now most keys are added, now most are removed, so that nodes come and go.
        let removes = if (step / (STEPS / 20)).is_multiple_of(2) { 2 } else { 6 };
        let number = random.random_range(0..keys.len());
        let (key, value) = (K::borrow(&keys[number]), step * THREADS + thread);
        let ledger = ledgers.entry(number).or_default();
        let (begins, previous) = match random.random_range(0..10) {
            kind if kind < removes => (false, index.remove(key).unwrap().previous),
            7 => {
                let previous = index.update(key, value).unwrap().previous;
                (previous.is_some(), previous)
            }
            8 => (true, index.put(key, value).unwrap().previous),
            _ => match index.insert(key, value).unwrap().previous {
                None => (true, None),
                Some(_) => continue,
            },
        };
        ledger.ended.extend(previous);
        ledger.begun.extend(begins.then_some(value));
    }
    ledgers
}

fn writers_of_one_region_have_one_history<K: IndexKey + ?Sized>(kind: IndexKind, keys: &[K::Buf]) {
    let pool = pool_in_memory();
    let index =
        IndexMaker::HERE.create_named(kind, &pool, "index", &IndexOptions::default()).unwrap();
    let mut ledgers: BTreeMap<usize, Ledger> = BTreeMap::new();
    std::thread::scope(|scope| {
        let index = &index;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work::<K>(index, keys, thread)))
            .collect();
        for (number, of_thread) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            let ledger = ledgers.entry(number).or_default();
            ledger.begun.extend(of_thread.begun);
            ledger.ended.extend(of_thread.ended);
        }
    });
    assert_eq!(index.check(), [""; 0]);
    let mut left = BTreeMap::new();
    index.for_each(&mut |key, value| {
        assert_eq!(left.insert(key.to_buf(), value), None, "a key is there twice");
        ControlFlow::Continue(())
    });
    for (number, mut ledger) in ledgers {
        let last = left.remove(&keys[number]);
        assert_eq!(index.get(K::borrow(&keys[number])), last);
        ledger.ended.extend(last);
        ledger.begun.sort_unstable();
        ledger.ended.sort_unstable();
        assert_eq!(ledger.begun, ledger.ended, "key {number}: values given, values ended");
    }
    assert!(left.is_empty(), "keys that nobody added");
    // All writers take the rest away together; nothing is left behind.
    std::thread::scope(|scope| {
        for thread in 0..THREADS as usize {
            let index = &index;
            scope.spawn(move || {
                for key in keys.iter().skip(thread).step_by(THREADS as usize) {
                    let _ = index.remove(K::borrow(key)).unwrap();
                }
            });
        }
    });
    assert_eq!((index.statistics().blocks, index.check()), (1, vec![]));
    let audit = pool.audit(&pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| ())));
    assert!(audit.is_clean(), "{audit:?}");
}

/// Neighbours, in nodes of all sizes, and some that share long prefixes with nobody else.
fn integers() -> Vec<u64> {
    let dense = (0..90).chain(256..300).chain(0x1_0000..0x1_0006);
    dense.chain([0x55 << 56, 0x55 << 56 | 1, 0x5500_0100_0000_0000, u64::MAX]).collect()
}

/// Strings that are prefixes of one another, and others that part behind long prefixes.
fn strings() -> Vec<Vec<u8>> {
    let nested = (1..12).map(|length| vec![b'a'; length]);
    let dense = (0..40u8).map(|last| vec![b'a', b'b', last]);
    let long = (0..6u8).flat_map(|at| {
        [1, 2].map(|last| [&b"a-prefix-of-many-bytes"[..6 + 3 * usize::from(at)], &[last]].concat())
    });
    nested.chain(dense).chain(long).collect()
}

macro_rules! tests_of {
    ($($tree:ident: $integers:ident, $strings:ident;)*) => {
        $(
            #[test]
            fn $integers() {
                writers_of_one_region_have_one_history::<u64>(IndexKind::$tree, &integers());
            }

            #[test]
            fn $strings() {
                writers_of_one_region_have_one_history::<[u8]>(IndexKind::$tree, &strings());
            }
        )*
    };
}

tests_of! {
    Wort: writers_of_integers_in_wort_have_one_history,
        writers_of_strings_in_wort_have_one_history;
    Woart: writers_of_integers_in_woart_have_one_history,
        writers_of_strings_in_woart_have_one_history;
    PArt: writers_of_integers_in_p_art_have_one_history,
        writers_of_strings_in_p_art_have_one_history;
    PHot: writers_of_integers_in_p_hot_have_one_history,
        writers_of_strings_in_p_hot_have_one_history;
    PMasstree: writers_of_integers_in_p_masstree_have_one_history,
        writers_of_strings_in_p_masstree_have_one_history;
    ArtCow: writers_of_integers_in_art_cow_have_one_history,
        writers_of_strings_in_art_cow_have_one_history;
}
