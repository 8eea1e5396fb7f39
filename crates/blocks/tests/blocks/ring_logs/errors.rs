//! Bad input: a typed error, and everything as it was.

use lapis_blocks::header_log::Header;
use lapis_blocks::log::{Layout, LogError, Placement, Position};
use lapis_blocks::pop_ring::Pop;
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_blocks::shared_log::SharedLog;
use lapis_device::Config;

use super::{contents, create, for_each_kind, memory, modelled, open, options};

fn a_newer_version_and_impossible_roots_are_refused<K: RingKind>() {
    let pool = modelled(Config::default());
    let root = create::<K, _>(&pool, options(Placement::Padded)).root();
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
        let error = open::<K, _>(&pool).unwrap_err();
        match (offset, value) {
            (8, 3) => {
                assert!(matches!(error, LogError::NewerVersion { found: 3, .. }));
            }
            _ => assert!(matches!(error, LogError::Damaged(_)), "{offset}: {error}"),
        }
        assert!(memory(&pool) == before, "something was written");
        poke(offset, was);
    }
    open::<K, _>(&pool).unwrap();
}

fn impossible_options_are_refused<K: RingKind>() {
    let pool = modelled(Config::default());
    for capacity_bytes in [0, 64, 4095, 4097, 4032, usize::MAX] {
        let options = Layout { bytes: capacity_bytes, ..Layout::default() };
        let error = RingLog::<_, K>::create(&pool, options).unwrap_err();
        assert!(matches!(error, LogError::BadCapacity { .. }), "{capacity_bytes}: {error}");
    }
    let too_large = Layout { bytes: 2 * super::POOL_BYTES, ..options(Placement::Padded) };
    let error = RingLog::<_, K>::create(&pool, too_large).unwrap_err();
    assert!(matches!(error, LogError::Full(_)), "{error}");
}

fn a_full_log_refuses_and_overwrites_nothing<K: RingKind>() {
    for placement in Placement::ALL {
        let pool = modelled(Config::default());
        let log = create::<K, _>(&pool, options(placement));
        let mut count = 0u8;
        let error = loop {
            match log.append(&[count; 100]) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LogError::NoRoom { .. }), "{error}");
        let all = contents(&log);
        assert_eq!(all.len(), usize::from(count));
        assert!(all.iter().enumerate().all(|(at, (_, entry))| *entry == [at as u8; 100]));
        // Room for one comes back with the oldest.
        log.truncate(Position::from_number(4)).unwrap();
        log.append(&[0xEE; 100]).unwrap();
        assert_eq!(contents(&log)[..all.len() - 3], all[3..]);
        assert_eq!(log.check(), []);
    }
}

for_each_kind! {
    a_full_log_refuses_and_overwrites_nothing
    a_newer_version_and_impossible_roots_are_refused
    impossible_options_are_refused
}

#[test]
fn a_number_of_size_fields_that_cannot_be_is_refused() {
    let pool = modelled(Config::default());
    for size_fields in [0, 1025] {
        let options = Layout { size_fields, ..options(Placement::Dense) };
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
