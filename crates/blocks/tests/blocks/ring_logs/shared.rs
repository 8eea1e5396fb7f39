//! One log, several threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::ring_log::{RingOptions, Scheme};
use lapis_blocks::shared_log::SharedLog;
use lapis_device::{
    Config, CrashPoints, Event, ImageBudget, Marker, Modelled, PowerFailDomain, set_current_worker,
};
use lapis_pmem::{Hardware, Pool, Region};
use parking_lot::Mutex;

use super::{POOL_BYTES, contents, create, for_each_kind, memory, modelled, open, options};

fn shared_by_threads_all_entries_are_there_in_order<S: Scheme>() {
    const EACH: u32 = 2000;
    let pool: Arc<Pool<Hardware>> = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let options = RingOptions { capacity_bytes: 128 << 10, ..RingOptions::default() };
    let log = SharedLog::new(create::<S, _>(&pool, options)).unwrap();
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
    assert_eq!(contents(&open::<S, _>(&pool).unwrap()), retained);
}

fn shared_by_threads_it_survives_power_cuts<S: Scheme>() {
    let images = power_cuts::<S>(ImageBudget { exhaustive_limit: 16, samples: 40, seed: 0 });
    assert!(images > 150, "only {images} images");
}

/// [`power_cuts`] of one kind.
type PowerCuts = fn(ImageBudget) -> u64;

/// The same at length, with two seeds.
#[test]
#[ignore = "takes minutes; run with --ignored"]
fn shared_by_threads_every_kind_survives_a_hundred_thousand_images() {
    let kinds: [(&str, PowerCuts); 4] = [
        ("classic", power_cuts::<lapis_blocks::classic_log::Classic>),
        ("header", power_cuts::<lapis_blocks::header_log::Header>),
        ("rawl", power_cuts::<lapis_blocks::rawl::Raw>),
        ("pop", power_cuts::<lapis_blocks::pop_ring::Pop>),
    ];
    for (name, cut) in kinds {
        for seed in [101, 202] {
            let mut images = 0;
            for round in 0.. {
                let seed = seed << 32 | round;
                images += cut(ImageBudget { exhaustive_limit: 256, samples: 400, seed });
                if images >= 100_000 {
                    break;
                }
            }
            println!("{name} seed {seed}: {images} images");
        }
    }
}

/// Threads append on the modelled machine; then the power is cut everywhere. How many images were tried.
fn power_cuts<S: Scheme>(budget: ImageBudget) -> u64 {
    const THREADS: u8 = 3;
    let pool = modelled(Config::tracing());
    let log = SharedLog::new(create::<S, _>(&pool, options(Placement::Padded))).unwrap();
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
    let mut region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    // SAFETY: freshly mapped, that long, and nobody else uses it.
    unsafe { region.base().copy_from_nonoverlapping(base.as_ptr(), base.len()) };
    let mut crashes = CrashPoints::new(&trace, &base, PowerFailDomain::AdrPortable);
    let (mut images, mut read, mut acknowledged) = (0, 0, first - 1);
    while let Some(point) = crashes.advance() {
        crashes.bring_up_to_date(&mut region).unwrap();
        for event in &trace.events[read..point.position] {
            if let Event::Marker { marker: Marker::End(number), .. } = event {
                acknowledged = acknowledged.max(u64::from(*number));
            }
        }
        read = point.position;
        let states = crashes.states();
        let seed = budget.seed ^ point.position as u64;
        let budget = ImageBudget { seed, ..budget };
        for choice in states.images(budget) {
            images += 1;
            states.apply(&choice, &mut region).unwrap();
            // SAFETY: nobody else uses the region, and the pool is gone before the next image.
            let alias = unsafe { region.alias() };
            let domain = Modelled::over(&alias, Config::tracking());
            let pool = Arc::new(Pool::open(alias, domain.clone()).unwrap());
            pool.abandon();
            let log = open::<S, _>(&pool).unwrap();
            let found = contents(&log);
            assert!(log.end().number() > acknowledged, "entries are lost");
            assert!(found.iter().all(|(position, payload)| all.get(position) == Some(payload)));
            assert_eq!(log.check(), []);
            log.append(&[1; 50]).unwrap();
            drop((log, pool));
            domain.revert(&mut region);
            states.revert(&choice, &mut region).unwrap();
        }
    }
    images
}

for_each_kind! {
    shared_by_threads_all_entries_are_there_in_order
    shared_by_threads_it_survives_power_cuts
}
