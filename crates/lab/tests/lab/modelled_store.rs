//! Counts per operation of a store, from the modelled machine.

use lapis::{IndexKind, TableOptions};
use lapis_lab::experiment::OPTANE_100;
use lapis_lab::modelled_store::{CountError, ModelledStore, count_replay, count_ycsb};
use lapis_lab::replay::read_trace;
use lapis_lab::report::PerOperation;
use lapis_lab::ycsb::{Driver, Options, Workload};

fn count(index: IndexKind, workload: Workload) -> PerOperation {
    let options = Options { records: 500, operations: 500, threads: 4, ..Options::default() };
    let table = TableOptions { index, ..TableOptions::default() };
    count_ycsb(OPTANE_100, &table, workload, &options).unwrap()
}

#[test]
fn counts_are_the_same_on_every_run() {
    for index in IndexKind::ALL {
        assert_eq!(count(index, Workload::A), count(index, Workload::A), "{index}");
    }
}

#[test]
fn counts_do_not_depend_on_the_threads_that_the_process_had_before() {
    let options = Options { records: 500, operations: 500, threads: 1, ..Options::default() };
    // The allocator of a process deals its threads to caches in turn.
    let start_threads = |count: usize| {
        for _ in 0..count {
            let another = || ModelledStore::create(OPTANE_100, &TableOptions::default()).is_ok();
            assert!(std::thread::scope(|scope| scope.spawn(another).join()).unwrap());
        }
    };
    let count_with = |threads_before: usize| {
        let modelled = ModelledStore::create(OPTANE_100, &TableOptions::default()).unwrap();
        let mut driver = Driver::new(modelled.target(), options.clone()).unwrap();
        driver.run(Workload::Load, &|_| ()).unwrap();
        start_threads(threads_before);
        modelled
            .count(500, |_| driver.run(Workload::A, &|_| ()).map(|report| report.operations))
            .unwrap()
    };
    let expected = count_with(0);
    for threads_before in 1..17 {
        assert_eq!(count_with(threads_before), expected, "after {threads_before} threads");
    }
}

#[test]
fn reading_flushes_and_fences_nothing() {
    for index in IndexKind::ALL {
        let counts = count(index, Workload::C).counts.unwrap();
        assert_eq!((counts.flushes, counts.fences), (0.0, 0.0), "{index}");
        assert_eq!(counts.media_writes, 0.0, "{index}");
    }
}

#[test]
fn a_put_of_a_kilobyte_flushes_it_and_reports_its_size() {
    for index in IndexKind::ALL {
        let found = count(index, Workload::Load);
        let counts = found.counts.unwrap();
        // The record is 1000 bytes, 16 lines, and reaches the memory controller at least once.
        assert!(counts.wpq_inserts >= 16.0 && counts.fences >= 2.0, "{index}: {counts:?}");
        assert_eq!((found.profile.as_deref(), found.records), (Some(OPTANE_100), Some(500)));
    }
}

#[test]
fn a_replay_is_counted() {
    let text: String = (0..50).map(|i| format!("1,{i},2a,4096,{}\n", i % 20)).collect();
    let requests = read_trace(text.as_bytes(), usize::MAX).unwrap();
    let counts = count_replay(OPTANE_100, &TableOptions::default(), &requests).unwrap();
    assert!(counts.counts.unwrap().wpq_inserts >= 64.0, "{counts:?}");
    assert_eq!(counts.records, Some(50));
}

#[test]
fn an_unknown_profile_is_an_error() {
    let error = count_replay("papyrus", &TableOptions::default(), &[]).unwrap_err();
    assert!(matches!(error, CountError::Profile(_)));
}
