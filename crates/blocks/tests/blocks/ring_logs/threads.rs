//! A log per thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::log::{Layout, Log as _, LogError, Placement};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_blocks::rawl::Rawl;
use lapis_blocks::ring_log::RingLog;
use lapis_blocks::thread_logs::ThreadLogs;
use lapis_device::{Config, ImageBudget, Marker, Modelled, set_current_worker};
use lapis_pmem::{Domain, Pool};
use parking_lot::Mutex;

use super::{memory, modelled};
use crate::power_cuts::at_length;

const THREADS: usize = 3;

fn rings<D: Domain>(pool: &Arc<Pool<D>>) -> Vec<Rawl<D>> {
    (0..THREADS)
        .map(|thread| {
            let name = format!("log {thread}");
            let options = Layout { bytes: 1 << 16, ..Default::default() };
            match pool.root(&name) {
                Some(root) => RingLog::open(Arc::clone(pool), root),
                None => RingLog::create_named(pool, &name, options),
            }
            .unwrap()
        })
        .collect()
}

#[test]
fn entries_of_all_threads_are_merged_by_their_numbers() {
    let pool = Arc::new(Pool::create_anonymous(1 << 22).unwrap());
    let logs = ThreadLogs::new(rings(&pool), 1).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let logs = &logs;
            scope.spawn(move || {
                let mut last = 0;
                for number in 0..200u8 {
                    let sequence = logs.append(thread, &[thread as u8, number]).unwrap();
                    assert!(sequence > last);
                    last = sequence;
                }
            });
        }
    });
    drop(logs);
    let logs = ThreadLogs::new(rings(&pool), 1).unwrap();
    let entries: Vec<_> = logs.entries().map(Result::unwrap).collect();
    let numbers: Vec<_> = entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=200 * THREADS as u64).collect::<Vec<_>>());
    for thread in 0..THREADS as u8 {
        let own = entries.iter().filter(|(_, entry)| entry[0] == thread);
        assert!(own.map(|(_, entry)| entry[1]).eq(0..200));
    }
    assert_eq!(logs.end(), 200 * THREADS as u64 + 1);
}

#[test]
fn truncation_drops_smaller_numbers_from_every_log() {
    let pool = Arc::new(Pool::create_anonymous(1 << 22).unwrap());
    let logs = ThreadLogs::new(rings(&pool), 1).unwrap();
    for number in 0..30 {
        logs.append(number % THREADS, &[number as u8]).unwrap();
    }
    logs.truncate(20).unwrap();
    let numbers: Vec<_> = logs.entries().map(|entry| entry.unwrap().0).collect();
    assert_eq!(numbers, (20..=30).collect::<Vec<_>>());
    logs.truncate(31).unwrap();
    drop(logs);
    let logs = ThreadLogs::new(rings(&pool), 31).unwrap();
    assert_eq!((logs.entries().count(), logs.append(0, b"next").unwrap()), (0, 31));
}

#[test]
fn logs_without_numbers_and_empty_entries_are_refused() {
    let pool = Arc::new(Pool::create_anonymous(1 << 22).unwrap());
    let options =
        PopLogOptions { segment_bytes: 4096, spare_segments: 0, placement: Placement::Padded };
    let log = PopLog::create_named(&pool, "pop", options).unwrap();
    let logs = ThreadLogs::new(vec![log], 1).unwrap();
    assert!(matches!(logs.append(0, &[]), Err(LogError::EmptyEntry)));
    assert_eq!(logs.append(0, &[1]).unwrap(), 1);
    logs.log(0).unwrap().append(b"short").unwrap();
    assert!(matches!(logs.entries().last(), Some(Err(LogError::Damaged(_)))));
}

#[test]
fn a_log_for_each_thread_survives_power_cuts() {
    let images = power_cuts(ImageBudget { exhaustive_limit: 16, samples: 40, seed: 0 });
    assert!(images > 150, "only {images} images");
}

#[test]
#[ignore = "takes minutes; run with --ignored"]
fn a_log_for_each_thread_survives_a_hundred_thousand_images() {
    at_length("a log for each thread", power_cuts);
}

/// Threads append on the modelled machine, each to its log; then the power is cut everywhere. How many
/// images were tried.
fn power_cuts(budget: ImageBudget) -> u64 {
    let pool = modelled(Config::tracing());
    let logs = ThreadLogs::new(rings(&pool), 1).unwrap();
    pool.domain().take_trace();
    let base = memory(&pool);
    let all: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (logs, pool, all) = (&logs, &pool, &all);
            scope.spawn(move || {
                set_current_worker(thread as u8);
                for number in 0..6 {
                    let payload = vec![(16 * thread + number) as u8; 5 + number * 23];
                    let sequence = logs.append(thread, &payload).unwrap();
                    all.lock().insert(sequence, payload);
                    pool.domain().mark(Marker::End(sequence as u32));
                }
            });
        }
    });
    let all = all.into_inner();
    let trace = pool.domain().take_trace();
    let survives = |ended: &[u32], pool: &Arc<Pool<Modelled>>| {
        let logs = ThreadLogs::new(rings(pool), 1).unwrap();
        let found: Vec<_> = logs.entries().map(Result::unwrap).collect();
        assert!(found.is_sorted_by(|one, other| one.0 < other.0), "numbers rise");
        assert!(found.iter().all(|(number, entry)| all.get(number) == Some(entry)));
        let kept = |number: &u32| {
            found.binary_search_by_key(&u64::from(*number), |(found, _)| *found).is_ok()
        };
        assert!(ended.iter().all(kept), "an acknowledged entry is lost");
        let last = found.last().map_or(0, |(number, _)| *number);
        for thread in 0..THREADS {
            assert_eq!(logs.log(thread).unwrap().check(), []);
            assert!(logs.append(thread, &[1; 50]).unwrap() > last);
        }
        true
    };
    crate::power_cuts::power_cuts(&trace, &base, budget, survives).unwrap()
}
