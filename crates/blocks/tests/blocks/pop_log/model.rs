//! PopLog against a vector of entries, on real pools.

use std::path::Path;
use std::sync::Arc;

use lapis_blocks::log::{LARGEST_ENTRY_BYTES, LogError, Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_pmem::{Domain, Hardware, Link, Pool, Region, RegionOptions};
use proptest::prelude::*;

use super::{contents, create, open};
use crate::Numbers;

#[derive(Clone, Debug)]
enum Step {
    Append {
        bytes: usize,
        seed: u64,
    },
    AppendParts {
        bytes: Vec<usize>,
        seed: u64,
    },
    /// Keeps this share of the entries, in 256ths.
    Truncate {
        keep: u8,
    },
    PrepareSpares,
    /// Opens the log anew; with the pool too, or after a crash of the process.
    Reopen {
        pool: bool,
        crash: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![4 => 1..200usize, 2 => 1..10_000usize, 1 => Just(4016usize)];
    prop_oneof![
        12 => (bytes(), any::<u64>()).prop_map(|(bytes, seed)| Step::Append { bytes, seed }),
        2 => (prop::collection::vec(1..300usize, 1..6), any::<u64>())
            .prop_map(|(bytes, seed)| Step::AppendParts { bytes, seed }),
        3 => any::<u8>().prop_map(|keep| Step::Truncate { keep }),
        1 => Just(Step::PrepareSpares),
        2 => any::<(bool, bool)>().prop_map(|(pool, crash)| Step::Reopen { pool, crash }),
    ]
}

struct Model {
    entries: Vec<(Position, Vec<u8>)>,
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

fn assert_no_leak<D: Domain>(pool: &Pool<D>, log: &PopLog<D>) {
    let traced = pool.trace(|tracer| log.trace(tracer));
    if pool.needs_reclaim() {
        pool.reclaim(&traced);
    }
    let report = pool.audit(&traced);
    assert!(report.is_clean(), "{report:?}");
}

fn run(path: &Path, log_options: PopLogOptions, steps: &[Step]) {
    let options = RegionOptions { reserve_bytes: 1 << 30, ..Default::default() };
    let mut pool = Arc::new(Pool::create_file(path, 1 << 20, &options).unwrap());
    let mut log = create(&pool, log_options);
    let mut model = Model { entries: Vec::new(), end: Position::FIRST };
    for step in steps {
        match step {
            Step::Append { bytes, seed } => {
                let payload = Numbers(*seed).bytes(*bytes);
                model.push(log.append(&payload).unwrap(), payload);
            }
            Step::AppendParts { bytes, seed } => {
                let mut numbers = Numbers(*seed);
                let parts: Vec<_> = bytes.iter().map(|&length| numbers.bytes(length)).collect();
                let slices: Vec<_> = parts.iter().map(Vec::as_slice).collect();
                model.push(log.append_parts(&slices).unwrap(), parts.concat());
            }
            Step::Truncate { keep } => {
                let drop = model.entries.len() * (256 - usize::from(*keep)) / 256;
                let to = model.entries.get(drop).map_or(model.end, |entry| entry.0);
                log.truncate(to).unwrap();
                model.entries.drain(..drop);
            }
            Step::PrepareSpares => log.prepare_spares().unwrap(),
            Step::Reopen { pool: false, .. } => {
                drop(log);
                log = open(&pool).unwrap();
            }
            Step::Reopen { pool: true, crash } => {
                if *crash {
                    pool.abandon();
                }
                drop((log, pool));
                pool = Arc::new(Pool::open_file(path, &options).unwrap());
                log = open(&pool).unwrap();
                assert_no_leak(&pool, &log);
            }
        }
        assert_eq!(log.end(), model.end);
    }
    assert_same(&log, &model);
    assert_no_leak(&pool, &log);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_vector_of_entries(
        segment_lines in prop_oneof![Just(64usize), 64..400usize, Just(1024usize)],
        spare_segments in 0..4usize,
        placement in prop_oneof![Just(Placement::Padded), Just(Placement::Dense), Just(Placement::Streamed)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let options =
            PopLogOptions { segment_bytes: segment_lines * 64, spare_segments, placement };
        run(&directory.path().join("pool"), options, &steps);
    }
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
fn entries_of_no_bytes_and_of_too_many_are_refused() {
    let (_pool, log) = anonymous_log(PopLogOptions::default());
    assert!(matches!(log.append(&[]), Err(LogError::EmptyEntry)));
    assert!(matches!(log.append_parts(&[&[], &[]]), Err(LogError::EmptyEntry)));
    let large = vec![1; LARGEST_ENTRY_BYTES];
    let error = log.append_parts(&[&large, &[1]]).unwrap_err();
    assert!(
        matches!(error, LogError::EntryTooLarge { asked_bytes } if asked_bytes == large.len() + 1)
    );
    assert_eq!(contents(&log), []);
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
fn truncating_beyond_the_end_is_refused() {
    let (_pool, log) = anonymous_log(PopLogOptions::default());
    let position = log.append(b"x").unwrap();
    let error = log.truncate(position.next().next()).unwrap_err();
    assert!(matches!(error, LogError::BeyondEnd { .. }));
    assert_eq!(contents(&log).len(), 1);
}

#[test]
fn a_root_that_is_no_log_is_refused() {
    let (pool, log) = anonymous_log(PopLogOptions::default());
    for bits in [0, log.root().offset() + 64, log.root().offset() + 1, u64::MAX] {
        let error = PopLog::open(Arc::clone(&pool), Link::<PopLogRoot>::from_bits(bits));
        assert!(matches!(error, Err(LogError::NotALog { .. })), "{bits:#x}");
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
    assert_no_leak(&pool, &log);
}

#[test]
fn an_iterator_goes_on_over_appends_and_truncation() {
    let (_pool, log) = anonymous_log(PopLogOptions {
        segment_bytes: 4096,
        spare_segments: 1,
        placement: Placement::Padded,
    });
    let mut iter = log.iter();
    assert!(iter.next().is_none());
    for number in 1..=300u64 {
        log.append(&number.to_le_bytes()).unwrap();
    }
    let number = |entry: Option<Result<(Position, Vec<u8>), LogError>>| {
        let (position, payload) = entry.unwrap().unwrap();
        assert_eq!(payload, position.number().to_le_bytes());
        position.number()
    };
    assert_eq!((number(iter.next()), number(iter.next())), (1, 2));
    log.truncate(Position::from_number(200)).unwrap();
    assert_eq!(number(iter.next()), 200);
    assert_eq!(
        iter.map(|entry| number(Some(entry))).collect::<Vec<_>>(),
        (201..=300).collect::<Vec<_>>()
    );
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
    assert_no_leak(&pool, &log);
}
