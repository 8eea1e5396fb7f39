//! What every log does, through the trait of all of them: on real pools, against a queue, with bad
//! input, and counted.

use std::collections::VecDeque;
use std::sync::Arc;

use lapis_blocks::log::{LARGEST_ENTRY_BYTES, Layout, Log, LogError, Placement, Position};
use lapis_device::{Config, Modelled};
use lapis_pmem::{Domain, Hardware, Link, Pool, RegionOptions};

use crate::{Numbers, ROOT, contents, has_no_leak, memory, modelled};

const POOL_BYTES: usize = 1 << 20;

/// A module of tests for each log, which call the functions of those names with its type.
macro_rules! for_each_log_test {
    ($domain:ty: $($test:ident)*) => {
        macro_rules! of_a_log {
            ($module:ident $log:ident $ring:tt) => {
                mod $module {
                    $(#[test] fn $test() { super::$test::<lapis_blocks::$module::$log<$domain>>(); })*
                }
            };
        }
        lapis_blocks::for_each_log!(of_a_log);
    };
}

fn layout(bytes: usize, placement: Placement) -> Layout {
    Layout { bytes, placement, size_fields: 8 }
}

/// Creates a log, publishes it and opens it.
fn create<D: Domain, L: Log<D>>(pool: &Arc<Pool<D>>, layout: Layout) -> L {
    L::create_named(pool, ROOT, L::options(layout)).unwrap()
}

fn open<D: Domain, L: Log<D>>(pool: &Arc<Pool<D>>) -> L {
    crate::open(pool).unwrap()
}

mod model {
    use super::*;

    /// Opened anew now and then, with its pool or not, after a crash of the process or not.
    fn behaves_like_a_queue<L: Log<Hardware>>() {
        let directory = tempfile::tempdir().unwrap();
        let region = RegionOptions { reserve_bytes: 1 << 30, ..Default::default() };
        for seed in 0..12 {
            let placement = Placement::ALL[seed % 3];
            let path = directory.path().join(seed.to_string());
            let mut numbers = Numbers(seed as u64);
            let mut pool = Arc::new(Pool::create_file(&path, POOL_BYTES, &region).unwrap());
            let mut log: L = create(&pool, layout([4096, 6400][seed % 2], placement));
            let mut model: VecDeque<(Position, Vec<u8>)> = VecDeque::new();
            let (mut end, mut full) = (Position::FIRST, 0);
            for step in 0..600 {
                let mut payloads: Vec<Vec<u8>> = Vec::new();
                let appended = match numbers.below(12) {
                    0 => {
                        let keep = numbers.below(4).min(model.len());
                        log.truncate(Position::from_number(end.number() - keep as u64)).unwrap();
                        model.drain(..model.len() - keep);
                        Ok(end..end)
                    }
                    1 => {
                        drop(log);
                        if step % 3 == 0 {
                            if step % 2 == 0 {
                                pool.abandon();
                            }
                            drop(pool);
                            pool = Arc::new(Pool::open_file(&path, &region).unwrap());
                        }
                        log = open(&pool);
                        has_no_leak(&log);
                        Ok(end..end)
                    }
                    2..=3 => {
                        for _ in 0..numbers.below(4) {
                            let length = 1 + numbers.below(150);
                            payloads.push(numbers.bytes(length));
                        }
                        log.append_batch(&Vec::from_iter(payloads.iter().map(Vec::as_slice)))
                    }
                    size => {
                        let largest = if L::GROWS && step % 10 == 0 { 10_000 } else { 1000 };
                        let length = 1 + numbers.below([40, 130, largest][size % 3]);
                        let payload = numbers.bytes(length);
                        let cut = numbers.below(length);
                        let parts = [&payload[..cut], &[][..], &payload[cut..]];
                        let appended = log.append_parts(&parts).map(|at| at..at.next());
                        payloads.push(payload);
                        appended
                    }
                };
                match appended {
                    Ok(positions) => {
                        assert_eq!(positions.start, end);
                        for payload in payloads {
                            model.push_back((end, payload));
                            end = end.next();
                        }
                        assert_eq!(positions.end, end);
                    }
                    Err(LogError::NoRoom { .. }) => full += 1,
                    Err(error) => panic!("{error}"),
                }
                assert_eq!((log.end(), log.log_statistics().entries), (end, model.len() as u64));
                if step % 20 == 0 {
                    let found = VecDeque::from(contents(&log));
                    assert!(found == model, "{placement}, seed {seed}, step {step}");
                    assert_eq!(log.check(), []);
                }
            }
            assert_eq!(VecDeque::from(contents(&log)), model);
            let start = model.front().map_or(end, |entry| entry.0);
            assert_eq!(log.start(), start);
            assert!((full > 5) != L::GROWS && end.number() > 150, "{full} times full, {end}");
            has_no_leak(&log);
        }
    }

    for_each_log_test! { lapis_pmem::Hardware: behaves_like_a_queue }
}

fn every_length_is_read_as_it_was_written<L: Log<Modelled>>() {
    for placement in Placement::ALL {
        let mut numbers = Numbers(77);
        let log: L = create(&modelled(POOL_BYTES, Config::default()), layout(4096, placement));
        for length in (1..200).chain([500, 1023, 1024, 2000, 3000]) {
            let payload = numbers.bytes(length);
            let position = log.append(&payload).unwrap();
            assert_eq!(contents(&log).pop(), Some((position, payload)), "{length} {placement}");
            if length % 7 == 0 || length > 400 {
                log.truncate(log.end()).unwrap();
            }
        }
    }
}

fn an_iterator_skips_what_is_truncated_and_sees_what_is_appended<L: Log<Modelled>>() {
    // Many, so that those of a log in segments lie in several.
    let count = if L::GROWS { 300 } else { 20 };
    let pool = modelled(POOL_BYTES, Config::default());
    let log: L = create(&pool, layout(4096, Placement::Padded));
    for number in 0..count {
        log.append(&[number as u8; 10]).unwrap();
    }
    let mut entries = log.entries();
    assert_eq!(entries.next().unwrap().unwrap().1, [0; 10]);
    log.truncate(Position::from_number(count - 1)).unwrap();
    log.append(&[9; 10]).unwrap();
    let rest: Vec<_> = entries.map(|entry| entry.unwrap().0.number()).collect();
    assert_eq!(rest, [count - 1, count, count + 1]);
}

fn bad_input_is_refused_and_changes_nothing<L: Log<Modelled>>() {
    let pool = modelled(POOL_BYTES, Config::default());
    let log: L = create(&pool, layout(4096, Placement::Padded));
    log.append(b"there").unwrap();
    let before = memory(&pool);
    assert!(matches!(log.append(&[]), Err(LogError::EmptyEntry)));
    assert!(matches!(log.append_parts(&[&[], &[]]), Err(LogError::EmptyEntry)));
    assert!(matches!(log.append_batch(&[b"a", b""]), Err(LogError::EmptyEntry)));
    if !L::GROWS {
        let large = vec![0; 5000];
        assert!(matches!(log.append(&large), Err(LogError::LargerThanLog { .. })));
        let batch = vec![&large[..1500]; 3];
        assert!(matches!(log.append_batch(&batch), Err(LogError::LargerThanLog { .. })));
    }
    let huge = vec![0; LARGEST_ENTRY_BYTES];
    let error = log.append_parts(&[&huge, &[1]]).unwrap_err();
    assert!(matches!(error, LogError::EntryTooLarge { asked_bytes } if asked_bytes > huge.len()));
    let beyond = Position::from_number(3);
    assert!(matches!(log.truncate(beyond), Err(LogError::BeyondEnd { .. })));
    let root = pool.root::<L::Root>(ROOT).unwrap().offset();
    for bits in [0, root + 64, root + 1, u64::MAX] {
        let error = L::open(Arc::clone(&pool), Link::from_bits(bits)).err();
        assert!(matches!(error, Some(LogError::NotALog { .. })), "{bits:#x}");
    }
    assert!(memory(&pool) == before, "something was written");
    assert_eq!(log.append_batch(&[]).unwrap(), log.end()..log.end());
    log.append(b"more").unwrap();
    assert_eq!(contents(&log).len(), 2);
}

fn an_append_takes_the_barriers_that_the_log_says<L: Log<Modelled>>() {
    for placement in Placement::ALL {
        let pool = modelled(POOL_BYTES, Config::counting());
        let log: L = create(&pool, layout(64 << 10, placement));
        for bytes in [8, 64, 100, 1000, 4096] {
            let before = pool.domain().counts();
            log.append(&vec![0xA5; bytes]).unwrap();
            let spent = pool.domain().counts() - before;
            assert_eq!(spent.fences, L::BARRIERS, "{placement} {bytes}");
        }
    }
}

for_each_log_test! {
    lapis_device::Modelled:
    every_length_is_read_as_it_was_written
    an_iterator_skips_what_is_truncated_and_sees_what_is_appended
    bad_input_is_refused_and_changes_nothing
    an_append_takes_the_barriers_that_the_log_says
}
