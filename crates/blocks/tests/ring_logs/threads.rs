//! A log per thread.

use std::sync::Arc;

use lapis_blocks::log::LogError;
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_blocks::rawl::Rawl;
use lapis_blocks::ring_log::{RingLog, RingOptions};
use lapis_blocks::thread_logs::ThreadLogs;
use lapis_pmem::{Committed, Hardware, Pool};

const THREADS: usize = 3;

fn rings(pool: &Arc<Pool<Hardware>>) -> Vec<Rawl<Hardware>> {
    (0..THREADS)
        .map(|thread| {
            let name = format!("log {thread}");
            if pool.root::<lapis_blocks::ring_log::RingRoot>(&name).is_none() {
                let root = RingLog::<_, lapis_blocks::rawl::Raw>::create(
                    pool,
                    RingOptions { capacity_bytes: 1 << 16, ..Default::default() },
                );
                let root = pool.fence(root.unwrap());
                let _: Committed = pool.publish_root(&name, 0, root).unwrap().persist();
            }
            RingLog::open(Arc::clone(pool), pool.root(&name).unwrap()).unwrap()
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
    let options = PopLogOptions { segment_bytes: 4096, spare_segments: 0 };
    let root = pool.fence(PopLog::create(&pool, options).unwrap());
    let link = root.link();
    let _: Committed = pool.publish_root("pop", 0, root).unwrap().persist();
    let log = PopLog::open(Arc::clone(&pool), link).unwrap();
    let logs = ThreadLogs::new(vec![log], 1).unwrap();
    assert!(matches!(logs.append(0, &[]), Err(LogError::EmptyEntry)));
    assert_eq!(logs.append(0, &[1]).unwrap(), 1);
    logs.log(0).unwrap().append(b"short").unwrap();
    assert!(matches!(logs.entries().last(), Some(Err(LogError::Damaged(_)))));
}
