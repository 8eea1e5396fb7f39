//! Against a queue.

use std::collections::VecDeque;

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::ring_log::Scheme;
use lapis_device::Config;

use super::{Numbers, contents, create, for_each_kind, modelled, open, options};

fn behaves_like_a_queue<S: Scheme>() {
    for placement in Placement::ALL {
        for seed in 0..4 {
            let mut numbers = Numbers(seed);
            let pool = modelled(Config::default());
            let mut log = create::<S, _>(&pool, options(placement));
            let mut model: VecDeque<(Position, Vec<u8>)> = VecDeque::new();
            let (mut end, mut full, mut wrapped) = (Position::FIRST, 0, 0);
            for step in 0..600 {
                match numbers.below(12) {
                    0 => {
                        let keep = numbers.below(4).min(model.len());
                        let start = Position::from_number(end.number() - keep as u64);
                        log.truncate(start).unwrap();
                        model.drain(..model.len() - keep);
                    }
                    1 => {
                        drop(log);
                        log = open(&pool).unwrap();
                    }
                    2..=3 => {
                        let payloads: Vec<Vec<u8>> = (0..numbers.below(4))
                            .map(|_| {
                                let length = 1 + numbers.below(150);
                                numbers.bytes(length)
                            })
                            .collect();
                        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                        match log.append_batch(&slices) {
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
                    }
                    size => {
                        let length = 1 + numbers.below([40, 130, 1000][size % 3]);
                        let payload = numbers.bytes(length);
                        let cut = numbers.below(length);
                        let parts = [&payload[..cut], &[][..], &payload[cut..]];
                        match log.append_parts(&parts) {
                            Ok(position) => {
                                assert_eq!(position, end);
                                model.push_back((end, payload));
                                end = end.next();
                            }
                            Err(LogError::NoRoom { .. }) => full += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
                assert_eq!((log.end(), log.statistics().entries), (end, model.len() as u64));
                if step % 20 == 0 {
                    assert_eq!(
                        VecDeque::from(contents(&log)),
                        model,
                        "{placement}, seed {seed}, step {step}"
                    );
                    assert_eq!(log.check(), []);
                    wrapped = end.number();
                }
            }
            assert_eq!(VecDeque::from(contents(&log)), model);
            assert!(full > 5 && wrapped > 150, "{full} times full, {wrapped} entries");
        }
    }
}

fn every_length_is_read_as_it_was_written<S: Scheme>() {
    for placement in Placement::ALL {
        let mut numbers = Numbers(77);
        let pool = modelled(Config::default());
        let log = create::<S, _>(&pool, options(placement));
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

fn a_full_log_refuses_and_overwrites_nothing<S: Scheme>() {
    for placement in Placement::ALL {
        let pool = modelled(Config::default());
        let log = create::<S, _>(&pool, options(placement));
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

fn an_iterator_skips_what_is_truncated_and_sees_what_is_appended<S: Scheme>() {
    let pool = modelled(Config::default());
    let log = create::<S, _>(&pool, options(Placement::Padded));
    for number in 0..5 {
        log.append(&[number; 10]).unwrap();
    }
    let mut entries = log.iter();
    assert_eq!(entries.next().unwrap().unwrap().1, [0; 10]);
    log.truncate(Position::from_number(4)).unwrap();
    log.append(&[9; 10]).unwrap();
    let rest: Vec<_> = entries.map(|entry| entry.unwrap().1[0]).collect();
    assert_eq!(rest, [3, 4, 9]);
}

for_each_kind! {
    behaves_like_a_queue
    every_length_is_read_as_it_was_written
    a_full_log_refuses_and_overwrites_nothing
    an_iterator_skips_what_is_truncated_and_sees_what_is_appended
}
