//! Bad input: a typed error, and everything as it was.

use std::sync::Arc;

use lapis_blocks::classic_log::Classic;
use lapis_blocks::header_log::Header;
use lapis_blocks::log::{LARGEST_ENTRY_BYTES, LogError, Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_blocks::pop_ring::Pop;
use lapis_blocks::rawl::Raw;
use lapis_blocks::ring_log::{RingLog, RingOptions, RingRoot, Scheme};
use lapis_blocks::shared_log::SharedLog;
use lapis_device::{Config, Modelled};
use lapis_pmem::Pool;

use super::{contents, create, for_each_kind, memory, modelled, open, options};

fn bad_entries_are_refused_and_nothing_is_appended<S: Scheme>() {
    let pool = modelled(Config::default());
    let log = create::<S, _>(&pool, options(Placement::Padded));
    log.append(b"there").unwrap();
    let before = memory(&pool);
    assert!(matches!(log.append(&[]), Err(LogError::EmptyEntry)));
    assert!(matches!(log.append_parts(&[]), Err(LogError::EmptyEntry)));
    assert!(matches!(log.append_batch(&[b"a", b""]), Err(LogError::EmptyEntry)));
    let large = vec![0; 5000];
    assert!(matches!(log.append(&large), Err(LogError::LargerThanLog { .. })));
    let batch = vec![&large[..1500]; 3];
    assert!(matches!(log.append_batch(&batch), Err(LogError::LargerThanLog { .. })));
    let huge = vec![0; LARGEST_ENTRY_BYTES + 1];
    assert!(matches!(log.append(&huge), Err(LogError::EntryTooLarge { .. })));
    let beyond = Position::from_number(3);
    assert!(matches!(log.truncate(beyond), Err(LogError::BeyondEnd { .. })));
    assert!(memory(&pool) == before, "something was written");
    assert_eq!(log.append_batch(&[]).unwrap(), log.end()..log.end());
    log.append(b"more").unwrap();
    assert_eq!(contents(&log).len(), 2);
}

fn a_newer_version_and_impossible_roots_are_refused<S: Scheme>() {
    let pool = modelled(Config::default());
    let root = create::<S, _>(&pool, options(Placement::Padded)).root();
    let at = root.offset() as usize;
    let poke = |offset: usize, value: u64| {
        // SAFETY: a word of the pool that nobody uses meanwhile.
        unsafe { pool.region().base().add(at + offset).cast::<u64>().write(value) };
    };
    let peek = |offset: usize| {
        // SAFETY: as above.
        unsafe { pool.region().base().add(at + offset).cast::<u64>().read() }
    };
    for (offset, value) in [(8, 3), (8, 0), (16, 4096 * 2), (24, 9), (32, 5000), (40, 1), (80, 1)] {
        let was = peek(offset);
        poke(offset, value);
        let before = memory(&pool);
        let error = open::<S, _>(&pool).unwrap_err();
        match (offset, value) {
            (8, 3) => {
                assert!(matches!(error, LogError::NewerVersion { found: 3, .. }));
            }
            _ => assert!(matches!(error, LogError::Damaged(_)), "{offset}: {error}"),
        }
        assert!(memory(&pool) == before, "something was written");
        poke(offset, was);
    }
    open::<S, _>(&pool).unwrap();
}

fn is_refused<S: Scheme>(pool: &Arc<Pool<Modelled>>) {
    let error = open::<S, _>(pool).unwrap_err();
    assert!(matches!(error, LogError::NotALog { .. }), "{}: {error}", S::NAME);
}

fn other_readers_are_refused<S: Scheme>() {
    let pool = modelled(Config::default());
    let log = create::<S, _>(&pool, options(Placement::Padded));
    log.append(b"mine").unwrap();
    let before = memory(&pool);
    let mut refused = 0;
    macro_rules! try_kind {
        ($($kind:ty),*) => {$(
            if std::any::TypeId::of::<S>() != std::any::TypeId::of::<$kind>() {
                is_refused::<$kind>(&pool);
                refused += 1;
            }
        )*};
    }
    try_kind!(Classic, Header, Raw, Pop);
    assert_eq!(refused, 3);
    let error = PopLog::open(Arc::clone(&pool), log.root().cast::<PopLogRoot>()).unwrap_err();
    assert!(matches!(error, LogError::NotALog { .. }), "{error}");
    assert!(memory(&pool) == before, "something was written");
}

fn impossible_options_are_refused<S: Scheme>() {
    let pool = modelled(Config::default());
    for capacity_bytes in [0, 64, 4095, 4097, 4032, usize::MAX] {
        let options = RingOptions { capacity_bytes, ..RingOptions::default() };
        let error = RingLog::<_, S>::create(&pool, options).unwrap_err();
        assert!(matches!(error, LogError::BadCapacity { .. }), "{capacity_bytes}: {error}");
    }
    let too_large =
        RingOptions { capacity_bytes: 2 * super::POOL_BYTES, ..options(Placement::Padded) };
    let error = RingLog::<_, S>::create(&pool, too_large).unwrap_err();
    assert!(matches!(error, LogError::Full(_)), "{error}");
}

for_each_kind! {
    bad_entries_are_refused_and_nothing_is_appended
    a_newer_version_and_impossible_roots_are_refused
    other_readers_are_refused
    impossible_options_are_refused
}

#[test]
fn a_pop_log_is_refused_by_the_readers_of_rings() {
    let pool = modelled(Config::default());
    let root = pool.fence(
        PopLog::create(
            &pool,
            PopLogOptions { segment_bytes: 4096, spare_segments: 0, placement: Placement::Padded },
        )
        .unwrap(),
    );
    let link = root.link();
    let _: lapis_pmem::Committed = pool.publish_root(super::ROOT, 0, root).unwrap().persist();
    let error = RingLog::<_, Raw>::open(Arc::clone(&pool), link.cast::<RingRoot>()).unwrap_err();
    assert!(matches!(error, LogError::NotALog { .. }), "{error}");
}

#[test]
fn a_number_of_size_fields_that_cannot_be_is_refused() {
    let pool = modelled(Config::default());
    for size_fields in [0, 1025] {
        let options = RingOptions { size_fields, ..options(Placement::Dense) };
        let error = RingLog::<_, Header>::create(&pool, options).unwrap_err();
        assert!(matches!(error, LogError::BadSizeFields { .. }), "{error}");
    }
}

#[test]
fn logs_whose_entries_share_lines_are_not_shared() {
    for placement in [Placement::Dense, Placement::Streamed] {
        let pool = modelled(Config::default());
        let log = create::<Pop, _>(&pool, options(placement));
        let error = SharedLog::new(log).unwrap_err();
        assert!(matches!(error, LogError::SharedLines { .. }), "{error}");
    }
}
