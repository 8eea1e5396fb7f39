//! Damaged bytes.
//!
//! `check` and `visit_blocks` never panic, whatever the bytes. `open` returns an error, and does so again: it has not made
//! something else of what it refused. `get`, `for_each`, scans and `statistics`, which have no way to return one, may panic, and
//! so may changes, but only with a message that begins with "the pool is damaged" or "the index is damaged". Nothing runs
//! for ever, but for changes where others may be at work for all that the bytes say.

use std::fs;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use lapis_index::{Direction, IndexKind, IndexRoot};
use lapis_pmem::EXTENT_BYTES;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::harness::{Keys, On, Place, Tested, entries};

const TRIALS: u64 = 80;
const COUNT: u64 = 400;

/// Runs something that may find damage in its own way. Whether it came to its end.
fn tolerating_damage(seed: u64, what: &str, run: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return true };
    let message = match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| String::new(), |text| (*text).into())
        }
    };
    assert!(
        message.starts_with("the pool is damaged") || message.starts_with("the index is damaged"),
        "seed {seed}: {what} panicked: {message}"
    );
    false
}

fn image<K: Keys + ?Sized>(tested: Tested, place: &Place) -> Vec<u8> {
    let pool = place.create();
    let index = tested.create::<_, K>(&pool, "index");
    for number in 0..COUNT {
        let _ = index.insert(K::borrow(&K::number(number)), number).unwrap();
    }
    for number in (0..COUNT).step_by(7) {
        let _ = index.remove(K::borrow(&K::number(number))).unwrap();
    }
    drop((index, pool));
    fs::read(&place.path).unwrap()
}

/// Changes 1 to 64 bytes of the data chunks, among those that are not zero: the words at `used`.
fn damaged(intact: &[u8], used: &[usize], seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = intact.to_vec();
    for _ in 0..random.random_range(1..=64) {
        let at = used[random.random_range(0..used.len())] + random.random_range(0..8);
        bytes[at] = match random.random_range(0..3u32) {
            0 => 0,
            1 => bytes[at] ^ 1 << random.random_range(0..8u32),
            _ => random.random(),
        };
    }
    bytes
}

/// Whether a writer never waits for what words in the pool say. Others wait for whoever has the lock that a word
/// says is held, or begin anew until another's change has been made.
fn changes_end(kind: IndexKind) -> bool {
    use IndexKind::{ArtCow, FpTree, NvTree, WbTree, WbTreeSlot, Woart, Wort};
    [ArtCow, FpTree, NvTree, WbTree, WbTreeSlot, Woart, Wort].contains(&kind)
}

/// Adds, changes and removes keys, until one of these panics: it may have left a lock that nobody gives back.
fn change<K: Keys + ?Sized>(index: &On<K>, seed: u64) {
    for number in (0..2 * COUNT).map(|number| number * 7 % (2 * COUNT)) {
        let buf = K::number(number);
        let key = K::borrow(&buf);
        let is_done = tolerating_damage(seed, "a change", || {
            let _ = match number % 5 {
                0 | 1 => index.remove(key),
                2 => index.update(key, 1),
                _ => index.put(key, 2),
            };
        });
        if !is_done {
            return;
        }
    }
    let _ = index.check();
}

fn examine<K: Keys + ?Sized>(tested: Tested, place: &Place, seed: u64) {
    let Ok(pool) = place.try_open() else { return };
    if pool.root::<IndexRoot>("index").is_none() {
        return;
    }
    let index = match tested.try_open::<K>(&pool, "index") {
        Ok(index) => index,
        Err(refused) => {
            pool.abandon();
            drop(pool);
            let Ok(pool) = place.try_open() else { return };
            let again = tested.try_open::<K>(&pool, "index").map(drop).map_err(|it| it.to_string());
            assert_eq!(again, Err(refused.to_string()), "seed {seed}: opened again");
            return;
        }
    };
    let _ = index.check();
    let _ = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
    for number in 0..COUNT {
        tolerating_damage(seed, "get", || {
            let _ = index.get(K::borrow(&K::number(number)));
        });
    }
    tolerating_damage(seed, "for_each", || {
        let _ = entries(&index);
    });
    if index.kind().1.ordered {
        tolerating_damage(seed, "a scan backwards", || {
            let visit = &mut |_: &K, _| ControlFlow::Continue(());
            index.scan(Bound::Unbounded, Direction::Backward, visit);
        });
    }
    tolerating_damage(seed, "statistics", || {
        let _ = index.statistics();
    });
    if changes_end(tested.kind) {
        change(&index, seed);
    }
    pool.abandon();
}

pub fn no_damage_makes_check_or_visit_blocks_panic<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::of(4 << 20);
    let intact = image::<K>(tested, &place);
    let words = (EXTENT_BYTES..intact.len()).step_by(8);
    let used: Vec<usize> = words.filter(|&at| intact[at..][..8] != [0; 8]).collect();
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        for seed in 0..TRIALS {
            fs::write(&place.path, damaged(&intact, &used, seed)).unwrap();
            examine::<K>(tested, &place, seed);
            let _ = sender.send(seed);
        }
    });
    for seed in 0..TRIALS {
        match receiver.recv_timeout(Duration::from_secs(20)) {
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {seed}: something never ended"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
