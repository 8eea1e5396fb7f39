//! What comes of segments: entries of any size, and a pool that is full; and many threads.

use std::sync::Arc;

use lapis_blocks::log::{LARGEST_ENTRY_BYTES, LogError, Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_pmem::{Domain, Hardware, Pool, Region};

use super::{create, open};
use crate::{Entries, Numbers, contents, has_no_leak};

struct Model {
    entries: Entries,
    end: Position,
}

impl Model {
    fn push(&mut self, position: Position, payload: Vec<u8>) {
        assert_eq!(position, self.end);
        self.entries.push((position, payload));
        self.end = position.next();
    }
}

fn assert_same<D: Domain>(log: &PopLog<D>, model: &Model) {
    assert!(contents(log) == model.entries, "the entries differ");
    let start = model.entries.first().map_or(model.end, |entry| entry.0);
    assert_eq!((log.start(), log.end()), (start, model.end));
    assert_eq!(log.statistics().entries, model.entries.len() as u64);
    assert_eq!(log.check(), []);
}

fn anonymous_log(options: PopLogOptions) -> (Arc<Pool>, PopLog<Hardware>) {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let log = create(&pool, options);
    (pool, log)
}

#[test]
fn the_largest_entry_comes_back_and_its_segment_is_given_back() {
    let (pool, log) = anonymous_log(PopLogOptions::default());
    let before = pool.usage().allocated_bytes;
    let payload = Numbers(3).bytes(LARGEST_ENTRY_BYTES);
    log.append(b"before").unwrap();
    let position = log.append(&payload).unwrap();
    log.append(b"after").unwrap();
    drop(log);
    let log = open(&pool).unwrap();
    let entries = contents(&log);
    assert!(entries[1] == (position, payload) && entries[2].1 == b"after" && entries.len() == 3);
    log.append(&vec![1; 4 << 20]).unwrap();
    log.truncate(log.end()).unwrap();
    drop(log);
    // One segment of 4 MiB and a bit remains instead of one of 4 MiB.
    assert!(pool.usage().allocated_bytes <= before + (128 << 10));
}

#[test]
fn impossible_segment_sizes_are_refused() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    for segment_bytes in [0, 64, 4032, 4097, 4160 + 8, (1 << 30) + 64] {
        let options = PopLogOptions { segment_bytes, ..Default::default() };
        let error = PopLog::create(&pool, options).unwrap_err();
        assert!(matches!(error, LogError::BadSegmentSize { .. }), "{segment_bytes}");
    }
}

#[test]
fn a_full_pool_is_an_error_that_leaves_the_log_usable() {
    let region = Region::anonymous(256 << 10, 256 << 10).unwrap();
    let pool = Arc::new(Pool::create(region, Hardware::detect()).unwrap());
    let log = create(
        &pool,
        PopLogOptions { segment_bytes: 4096, spare_segments: 1, placement: Placement::Padded },
    );
    let mut model = Model { entries: Vec::new(), end: Position::FIRST };
    let error = loop {
        let payload = Numbers(model.end.number()).bytes(1500);
        match log.append(&payload) {
            Ok(position) => model.push(position, payload),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Full(_)), "{error}");
    assert_same(&log, &model);
    // What still fits is taken, and truncation makes room.
    model.push(log.append(b"small").unwrap(), b"small".to_vec());
    let to = model.entries[10].0;
    log.truncate(to).unwrap();
    model.entries.drain(..10);
    model.push(log.append(&[3; 1500]).unwrap(), vec![3; 1500]);
    assert_same(&log, &model);
    drop(log);
    let log = open(&pool).unwrap();
    assert_same(&log, &model);
    has_no_leak(&log);
}

#[test]
fn appends_of_many_threads_are_all_there_in_the_order_of_their_positions() {
    let (pool, log) = anonymous_log(PopLogOptions {
        segment_bytes: 8192,
        spare_segments: 2,
        placement: Placement::Padded,
    });
    let mut acknowledged: Vec<(Position, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let mut numbers = Numbers(thread);
                    (0..500)
                        .map(|_| {
                            let length = 1 + numbers.below(300);
                            let payload = numbers.bytes(length);
                            (log.append(&payload).unwrap(), payload)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        // Readers and truncation meanwhile.
        for _ in 0..20 {
            let seen: Vec<_> = log.iter().map(|entry| entry.unwrap().0).collect();
            assert!(seen.is_sorted());
            if let Some(&middle) = seen.get(seen.len() / 2) {
                log.truncate(middle).unwrap();
            }
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    acknowledged.sort();
    acknowledged.retain(|entry| entry.0 >= log.start());
    assert_eq!(contents(&log), acknowledged);
    drop(log);
    let log = open(&pool).unwrap();
    assert_eq!(contents(&log), acknowledged);
    has_no_leak(&log);
}
