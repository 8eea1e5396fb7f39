//! The modelled domain as a whole: determinism, suppression, exact reverts, pools on top of it.

use std::sync::atomic::{AtomicU64, Ordering};

use lapis_device::{
    Config, Counts, CrashPoints, Event, ImageBudget, MachineShape, Marker, Modelled, PersistKind,
    PersistPoint, PowerFailDomain, SchedulePolicy, Trace, XpBufferShape,
};
use lapis_pmem::{Committed, Domain, EXTENT_BYTES, Link, PCell, Pool, PoolError, Region};
use proptest::prelude::*;

const POOL_BYTES: usize = 4 * EXTENT_BYTES;

fn region() -> Region {
    Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap()
}

fn word(region: &Region, index: usize) -> &AtomicU64 {
    assert!(index < POOL_BYTES / 8);
    // SAFETY: inside the mapped region, aligned, only accessed atomically.
    unsafe { &*region.base().add(index * 8).cast::<AtomicU64>() }
}

fn contents(region: &Region) -> Vec<u8> {
    // SAFETY: mapped bytes that nobody writes during the call.
    unsafe { std::slice::from_raw_parts(region.base(), region.mapped_bytes()) }.to_vec()
}

/// Creates a pool, publishes a root with a value and marks the end as operation 1.
fn publish_one(region: &Region, domain: &Modelled) {
    // SAFETY: the pool is dropped before the region and nobody else uses the region meanwhile.
    let pool = Pool::create(unsafe { region.alias() }, domain.clone()).unwrap();
    domain.mark(Marker::End(0));
    let node = pool.allocate::<PCell<u64>>().unwrap();
    node.store(&domain.clone(), 42);
    let node = pool.fence(node.flush());
    let visible = pool.publish_root("example", 7, node).unwrap();
    let _: Committed = visible.persist();
    domain.mark(Marker::End(1));
}

fn traced_publication() -> (Trace, Region) {
    let region = region();
    let domain = Modelled::over(&region, Config::tracing());
    publish_one(&region, &domain);
    (domain.take_trace(), region)
}

#[test]
fn a_pool_on_the_model_reopens_from_every_crash_image() {
    let (trace, _region) = traced_publication();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    let mut scratch = region();
    let recovery = Modelled::over(&scratch, Config::tracking());
    let (mut images, mut with_root, mut without_pool) = (0, 0, 0);
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut scratch).unwrap();
        let durable = contents(&scratch);
        let ended = trace.events[..point.position]
            .iter()
            .filter(|event| matches!(event, Event::Marker { marker: Marker::End(_), .. }))
            .count();
        let states = points.states();
        let budget = ImageBudget { exhaustive_limit: 512, samples: 64, seed: 1 };
        for image in states.images(budget) {
            states.apply(&image, &mut scratch).unwrap();
            images += 1;
            // SAFETY: the pool is dropped in this block, before the scratch region is used again.
            match Pool::open(unsafe { scratch.alias() }, recovery.clone()) {
                Ok(pool) => {
                    match pool.root::<PCell<u64>>("example") {
                        Some(link) => {
                            with_root += 1;
                            assert_eq!(pool.at(link).load(&recovery), 42);
                        }
                        None => assert!(ended < 2, "acknowledged and lost at {point:?}"),
                    }
                    pool.abandon();
                }
                Err(PoolError::InterruptedCreation) => {
                    without_pool += 1;
                    assert_eq!(ended, 0, "created and lost at {point:?}");
                }
                Err(error) => panic!("{error} at {point:?}"),
            }
            recovery.revert(&mut scratch);
            states.revert(&image, &mut scratch).unwrap();
            assert_eq!(contents(&scratch), durable);
        }
    }
    assert!(images > 100 && with_root > 0 && without_pool > 0);
}

#[test]
fn the_last_crash_image_is_what_the_program_left() {
    let (trace, region) = traced_publication();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    let mut scratch = self::region();
    while points.advance().is_some() {
        points.bring_up_to_date(&mut scratch).unwrap();
    }
    let states = points.states();
    states.apply(&states.everything(), &mut scratch).unwrap();
    assert_eq!(contents(&scratch), contents(&region));
}

#[test]
fn the_same_program_gives_the_same_trace_and_counts() {
    let run = || {
        let region = region();
        let config = Config { counting: Some(MachineShape::default()), ..Config::tracing() };
        let domain = Modelled::over(&region, config);
        publish_one(&region, &domain);
        domain.drain();
        (domain.take_trace(), domain.counts())
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.1.fences > 0 && first.1.media_writes > 0);
}

#[test]
fn counts_do_not_depend_on_tracing_or_tracking() {
    let count = |config: Config| {
        let region = region();
        let config = Config { counting: Some(MachineShape::default()), ..config };
        let domain = Modelled::over(&region, config);
        publish_one(&region, &domain);
        domain.counts()
    };
    let alone = count(Config::default());
    assert_eq!(alone, count(Config::tracing()));
    assert_eq!(alone, count(Config::tracking_and_tracing()));
}

#[test]
fn persisting_one_word_counts_one_flush_one_fence_and_one_insert() {
    let region = region();
    let domain = Modelled::over(&region, Config::counting());
    let cell = word(&region, 0);
    domain.store::<u64>(cell, 1, Ordering::Release);
    domain.persist(cell);
    // The flush has taken the line out of the caches.
    domain.load::<u64>(cell, Ordering::Acquire);
    let before = domain.counts();
    domain.store::<u64>(cell, 2, Ordering::Release);
    domain.persist(cell);
    let expected = Counts { stores: 1, flushes: 1, fences: 1, wpq_flush: 1, ..Counts::default() };
    assert_eq!(domain.counts() - before, expected);
}

#[test]
fn another_seed_of_the_evictions_gives_other_media_writes_and_the_same_inserts() {
    let count = |seed| {
        let region = region();
        let default = MachineShape::default();
        let xp_buffer = XpBufferShape { seed, ..default.xp_buffer };
        let shape = MachineShape { xp_buffer, ..default };
        let config = Config { counting: Some(shape), ..Config::default() };
        let domain = Modelled::over(&region, config);
        for index in 0..4000 {
            let at = index * 7 % 400 * 8;
            domain.store::<u64>(word(&region, at), 1, Ordering::Release);
            domain.persist(word(&region, at));
        }
        domain.counts()
    };
    let (first, second) = (count(1), count(2));
    assert_eq!(first, count(1));
    assert_eq!(first.wpq_inserts(), second.wpq_inserts());
    assert_ne!(first.media_writes, second.media_writes);
}

/// Stores and persists at one source line.
fn store_and_persist(region: &Region, domain: &Modelled) {
    domain.store::<u64>(word(region, 0), 1, Ordering::Release);
    domain.persist(word(region, 0));
}

fn points_of(run: fn(&Region, &Modelled)) -> Vec<PersistPoint> {
    let region = region();
    let domain = Modelled::over(&region, Config::tracing());
    run(&region, &domain);
    domain.persist_points().iter().map(|count| count.point).collect()
}

fn run_suppressing(
    run: fn(&Region, &Modelled),
    point: PersistPoint,
) -> (Vec<Event>, Counts, Region, Modelled) {
    let region = region();
    let config = Config { counting: Some(MachineShape::default()), ..Config::tracing() };
    let domain = Modelled::over(&region, config.suppressing(point));
    run(&region, &domain);
    (domain.take_trace().events, domain.counts(), region, domain)
}

#[test]
fn a_persist_is_a_flush_and_a_fence_of_this_file_at_one_location() {
    let points = points_of(store_and_persist);
    let [flush, fence] = points[..] else { panic!("{points:?}") };
    assert_eq!((flush.kind, fence.kind), (PersistKind::Flush, PersistKind::Fence));
    assert!(flush.file.ends_with("tests/device/modelled.rs"), "{flush}");
    assert_eq!((flush.file, flush.line, flush.column), (fence.file, fence.line, fence.column));
}

#[test]
fn a_suppressed_flush_neither_happens_nor_counts() {
    let flush = points_of(store_and_persist)[0];
    let (events, counts, region, domain) = run_suppressing(store_and_persist, flush);
    assert!(!events.iter().any(|event| matches!(event, Event::Flush { .. })));
    assert!(events.iter().any(|event| matches!(event, Event::Fence { .. })));
    assert_eq!((counts.flushes, counts.wpq_flush, counts.fences), (0, 0, 1));
    assert_eq!(word(&region, 0).load(Ordering::Relaxed), 1);
    assert_eq!(domain.persist_points()[0].passed, 1);
}

#[test]
fn a_suppressed_fence_neither_completes_nor_counts() {
    let fence = points_of(store_and_persist)[1];
    let (events, counts, ..) = run_suppressing(store_and_persist, fence);
    assert!(!events.iter().any(|event| matches!(event, Event::Fence { .. })));
    assert_eq!((counts.flushes, counts.fences), (1, 0));
}

#[test]
fn what_a_scheduled_worker_passes_is_counted_although_it_is_suppressed() {
    fn run(region: &Region, domain: &Modelled) {
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe { domain.copy_nontemporal(region.base(), &[7; 64]) };
        store_and_persist(region, domain);
    }
    let points = points_of(run);
    assert_eq!(points.len(), 3);
    for point in points {
        let region = region();
        let domain = Modelled::over(&region, Config::concurrent().suppressing(point));
        let policy = SchedulePolicy::Random { seed: 1 };
        domain.run_workers(&policy, vec![Box::new(|| run(&region, &domain))]);
        let counted: Vec<_> =
            domain.persist_points().iter().map(|it| (it.point == point, it.passed)).collect();
        assert!(counted.contains(&(true, 1)), "{point}: {counted:?}");
        assert_eq!(counted.len(), 3);
    }
}

#[test]
fn a_suppressed_nontemporal_copy_becomes_ordinary_stores() {
    fn run(region: &Region, domain: &Modelled) {
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe { domain.copy_nontemporal(region.base(), &[7; 64]) };
    }
    let point = points_of(run)[0];
    assert_eq!(point.kind, PersistKind::NonTemporal);
    let (events, counts, region, _) = run_suppressing(run, point);
    assert!(matches!(events[..], [Event::Copy { nontemporal: false, bytes: 64, .. }]));
    assert_eq!((counts.stores, counts.nontemporal_lines, counts.wpq_inserts()), (8, 0, 0));
    assert_eq!(contents(&region)[..64], [7; 64]);
}

#[test]
fn zeroing_past_the_caches_is_one_event_and_a_nontemporal_store_per_word() {
    let region = region();
    let domain = Modelled::over(&region, Config::tracing());
    word(&region, 1).store(5, Ordering::Relaxed);
    // SAFETY: inside the mapped region, which nobody else uses.
    unsafe { domain.zero_nontemporal(region.base(), 16) };
    assert_eq!(word(&region, 1).load(Ordering::Relaxed), 0);
    let trace = domain.take_trace();
    assert_eq!(trace.events.len(), 1);
    let units = trace.in_units().events;
    assert_eq!(units.len(), 2);
    assert!(units.iter().all(|event| matches!(event, Event::NonTemporal { value: 0, .. })));
}

#[test]
#[should_panic(expected = "outside of the region")]
fn flushing_memory_outside_of_the_region_is_reported() {
    let region = region();
    let domain = Modelled::over(&region, Config::default());
    domain.flush(&PCell::new(1u64));
}

#[test]
fn a_crash_during_recovery_is_explored_from_the_trace_of_the_recovery() {
    let (trace, _region) = traced_publication();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    let mut scratch = region();
    while points.advance().is_some() {
        points.bring_up_to_date(&mut scratch).unwrap();
    }
    let base = contents(&scratch);
    let recovery = Modelled::over(&scratch, Config::tracking_and_tracing());
    // SAFETY: the pool is dropped at once, before the scratch region is used again.
    let pool = Pool::open(unsafe { scratch.alias() }, recovery.clone()).unwrap();
    pool.abandon();
    drop(pool);
    let nested = recovery.take_trace();
    recovery.revert(&mut scratch);
    assert_eq!(contents(&scratch), base);

    let mut points = CrashPoints::new(&nested, &base, PowerFailDomain::Adr);
    let second = Modelled::over(&scratch, Config::tracking());
    let mut images = 0;
    while points.advance().is_some() {
        points.bring_up_to_date(&mut scratch).unwrap();
        let states = points.states();
        for image in states.images(ImageBudget::default()) {
            states.apply(&image, &mut scratch).unwrap();
            // SAFETY: as above.
            let pool = Pool::open(unsafe { scratch.alias() }, second.clone()).unwrap();
            let link: Link<PCell<u64>> = pool.root("example").unwrap();
            assert_eq!(pool.at(link).load(&second), 42);
            pool.abandon();
            drop(pool);
            second.revert(&mut scratch);
            states.revert(&image, &mut scratch).unwrap();
            images += 1;
        }
    }
    assert!(images >= 3);
}

#[derive(Clone, Debug)]
enum Write {
    Word { index: usize, value: u64 },
    Exchange { index: usize, value: u64 },
    Copy { at: usize, bytes: Vec<u8>, nontemporal: bool },
    Persist { index: usize },
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    const WORDS: usize = 64;
    let index = 0..WORDS;
    let write = prop_oneof![
        (index.clone(), any::<u64>()).prop_map(|(index, value)| Write::Word { index, value }),
        (index.clone(), any::<u64>()).prop_map(|(index, value)| Write::Exchange { index, value }),
        (0..WORDS * 8, proptest::collection::vec(any::<u8>(), 0..200), any::<bool>())
            .prop_map(|(at, bytes, nontemporal)| Write::Copy { at, bytes, nontemporal }),
        index.prop_map(|index| Write::Persist { index }),
    ];
    proptest::collection::vec(write, 1..60)
}

fn perform(region: &Region, domain: &Modelled, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Word { index, value } => {
                domain.store::<u64>(word(region, *index), *value, Ordering::Release);
            }
            Write::Exchange { index, value } => {
                let _ = domain.compare_exchange::<u64>(word(region, *index), 0, *value);
            }
            Write::Copy { at, bytes, nontemporal } => {
                // SAFETY: inside the mapped region, which nobody else uses.
                unsafe {
                    let to = region.base().add(*at);
                    if *nontemporal {
                        domain.copy_nontemporal(to, bytes);
                    } else {
                        domain.copy(to, bytes);
                    }
                }
            }
            Write::Persist { index } => domain.persist(word(region, *index)),
        }
    }
}

proptest! {
    #[test]
    fn a_revert_restores_every_byte_and_can_be_repeated(
        before in writes(), first in writes(), second in writes(),
    ) {
        let mut region = region();
        perform(&region, &Modelled::over(&region, Config::default()), &before);
        let expected = contents(&region);
        let domain = Modelled::over(&region, Config::tracking());
        for writes in [first, second] {
            perform(&region, &domain, &writes);
            domain.revert(&mut region);
            prop_assert!(contents(&region) == expected);
            prop_assert!(domain.dirtied().is_empty());
        }
    }

    #[test]
    fn replaying_a_trace_with_everything_persisted_gives_memory_as_it_is(writes in writes()) {
        let region = region();
        let domain = Modelled::over(&region, Config::tracing());
        perform(&region, &domain, &writes);
        let trace = domain.take_trace();
        for power in [PowerFailDomain::Adr, PowerFailDomain::Eadr] {
            let mut points = CrashPoints::new(&trace, &[], power);
            let mut scratch = self::region();
            let mut last = contents(&scratch);
            while points.advance().is_some() {
                points.bring_up_to_date(&mut scratch).unwrap();
                let states = points.states();
                let durable = contents(&scratch);
                let everything = states.everything();
                states.apply(&everything, &mut scratch).unwrap();
                last = contents(&scratch);
                states.revert(&everything, &mut scratch).unwrap();
                prop_assert!(contents(&scratch) == durable);
            }
            // The trace may end in events after the last crash point only if they store nothing.
            prop_assert!(last == contents(&region));
        }
    }
}
