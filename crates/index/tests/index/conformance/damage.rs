//! Damaged bytes.
//!
//! `check` and `visit_blocks` never panic, whatever the bytes. `open` returns an error. `get`, `for_each`,
//! scans and `statistics`, which have no way to return one, may panic, but only with a message that
//! begins with "the pool is damaged" or "the index is damaged". Nothing runs for ever.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use lapis_index::IndexRoot;
use lapis_pmem::EXTENT_BYTES;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::harness::{Keys, Place, Tested, entries};

const TRIALS: u64 = 80;
const COUNT: u64 = 400;

/// Runs something that may find damage in its own way.
fn tolerating_damage(seed: u64, what: &str, run: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return };
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

fn examine<K: Keys + ?Sized>(tested: Tested, place: &Place, seed: u64) {
    let Ok(pool) = place.try_open() else { return };
    if pool.root::<IndexRoot>("index").is_none() {
        return;
    }
    let Ok(index) = tested.try_open::<K>(&pool, "index") else { return };
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
    tolerating_damage(seed, "statistics", || {
        let _ = index.statistics();
    });
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
