//! One log, several threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::log::{Layout, LogError, Placement, Position};
use lapis_blocks::ring_log::RingKind;
use lapis_blocks::shared_log::SharedLog;
use lapis_blocks::{LogKind, with_ring};
use lapis_device::{Config, ImageBudget, Marker, Modelled, set_current_worker};
use lapis_pmem::{Hardware, Pool};
use parking_lot::Mutex;

use super::{contents, create, for_each_kind, memory, modelled, open, options};
use crate::power_cuts::at_length;

fn shared_by_threads_all_entries_are_there_in_order<K: RingKind>() {
    const EACH: u32 = 2000;
    let pool: Arc<Pool<Hardware>> = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let options = Layout { bytes: 128 << 10, ..Layout::default() };
    let log = SharedLog::new(create::<K, _>(&pool, options)).unwrap();
    let seen: Mutex<BTreeMap<Position, Vec<u8>>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (log, seen) = (&log, &seen);
            scope.spawn(move || {
                let mut last = None;
                for number in 0..EACH {
                    let mut payload = vec![thread; 5 + (number % 90) as usize];
                    payload[1..5].copy_from_slice(&number.to_le_bytes());
                    let position = loop {
                        match log.append(&payload) {
                            Ok(position) => break position,
                            Err(LogError::NoRoom { .. }) => {
                                // Whoever finds it full makes room.
                                let end = log.end();
                                log.truncate(end).unwrap();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    assert!(last < Some(position) && log.end() > position);
                    last = Some(position);
                    seen.lock().insert(position, payload);
                }
            });
        }
    });
    let seen = seen.into_inner();
    assert!(seen.keys().map(|at| at.number()).eq(1..=3 * u64::from(EACH)));
    let retained: Vec<_> = log.iter().map(Result::unwrap).collect();
    assert!(!retained.is_empty());
    for (position, payload) in &retained {
        assert_eq!(seen.get(position), Some(payload));
    }
    let log = log.into_inner();
    assert_eq!((log.check(), log.end().number()), (vec![], 3 * u64::from(EACH) + 1));
    drop(log);
    assert_eq!(contents(&open::<K, _>(&pool).unwrap()), retained);
}

fn shared_by_threads_it_survives_power_cuts<K: RingKind>() {
    let images = power_cuts::<K>(ImageBudget { exhaustive_limit: 16, samples: 40, seed: 0 });
    assert!(images > 150, "only {images} images");
}

#[test]
#[ignore = "takes minutes; run with --ignored"]
fn shared_by_threads_every_kind_survives_a_hundred_thousand_images() {
    for kind in LogKind::ALL {
        with_ring!(kind, |K| at_length(kind.name(), power_cuts::<K>), ());
    }
}

/// Threads append on the modelled machine; then the power is cut everywhere. How many images were tried.
fn power_cuts<K: RingKind>(budget: ImageBudget) -> u64 {
    const THREADS: u8 = 3;
    let pool = modelled(Config::tracing());
    let log = SharedLog::new(create::<K, _>(&pool, options(Placement::Padded))).unwrap();
    // Once around, so that what was there before matters.
    for _ in 0..30 {
        log.append(&[0xEE; 100]).unwrap();
        log.truncate(log.end()).unwrap();
    }
    pool.domain().take_trace();
    let base = memory(&pool);
    let first = log.end().number();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, pool) = (&log, &pool);
            scope.spawn(move || {
                set_current_worker(thread);
                for number in 0..6u8 {
                    let length = 5 + usize::from(number) * 23;
                    let position = log.append(&vec![16 * thread + number; length]).unwrap();
                    pool.domain().mark(Marker::End(position.number() as u32));
                }
            });
        }
    });
    let all: BTreeMap<_, _> = log.iter().map(Result::unwrap).collect();
    assert_eq!(all.len(), 6 * usize::from(THREADS));
    let trace = pool.domain().take_trace();
    let survives = |ended: &[u32], pool: &Arc<Pool<Modelled>>| {
        let log = open::<K, _>(pool).unwrap();
        let found = contents(&log);
        let acknowledged = ended.iter().max().map_or(first - 1, |last| u64::from(*last));
        assert!(log.end().number() > acknowledged, "entries are lost");
        assert!(found.iter().all(|(position, payload)| all.get(position) == Some(payload)));
        assert_eq!(log.check(), []);
        log.append(&[1; 50]).unwrap();
        true
    };
    crate::power_cuts::power_cuts(&trace, &base, budget, survives).unwrap()
}

for_each_kind! {
    shared_by_threads_all_entries_are_there_in_order
    shared_by_threads_it_survives_power_cuts
}
