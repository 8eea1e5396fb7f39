//! Counts per operation of a store, from the modelled machine.

use lapis_engine::Placement;
use lapis_lab::experiment::OPTANE_100;
use lapis_lab::key_value::KeyValue;
use lapis_lab::modelled_store::{CountError, ModelledStore, count_replay, count_ycsb};
use lapis_lab::replay::read_trace;
use lapis_lab::report::PerOperation;
use lapis_lab::ycsb::{Driver, Options, Workload};

fn count(workload: Workload) -> PerOperation {
    let options = Options { records: 500, operations: 500, threads: 4, ..Options::default() };
    count_ycsb(OPTANE_100, workload, &options).unwrap()
}

#[test]
fn counts_are_the_same_on_every_run() {
    assert_eq!(count(Workload::A), count(Workload::A));
}

#[test]
fn counts_do_not_depend_on_the_threads_that_the_process_had_before() {
    let options = Options { records: 500, operations: 500, threads: 1, ..Options::default() };
    // The allocator of a process deals its threads to caches in turn.
    let start_threads = |count: usize| {
        for _ in 0..count {
            let another = || ModelledStore::create(OPTANE_100, Placement::ThreeTier).is_ok();
            assert!(std::thread::scope(|scope| scope.spawn(another).join()).unwrap());
        }
    };
    let count_with = |threads_before: usize| {
        let modelled = ModelledStore::create(OPTANE_100, Placement::ThreeTier).unwrap();
        let mut driver = Driver::new(modelled.target(), options.clone()).unwrap();
        driver.run(Workload::Load, &|_| ()).unwrap();
        start_threads(threads_before);
        modelled
            .count(500, |_| driver.run(Workload::A, &|_| ()).map(|report| report.operations))
            .unwrap()
    };
    let expected = count_with(0);
    for threads_before in [1, 4, 15] {
        assert_eq!(count_with(threads_before), expected, "after {threads_before} threads");
    }
}

#[test]
fn reading_what_is_in_dram_costs_nothing_that_lasts() {
    let found = count(Workload::C);
    let (counts, ssd) = (found.counts.unwrap(), found.ssd.unwrap());
    assert_eq!((counts.flushes, counts.fences, counts.media_writes), (0.0, 0.0, 0.0));
    assert_eq!((ssd.ssd_written_bytes, ssd.ssd_read_bytes), (0.0, 0.0));
}

#[test]
fn a_put_of_a_kilobyte_waits_for_one_fence_where_the_log_is_in_persistent_memory() {
    let found = count(Workload::Load);
    let (counts, ssd) = (found.counts.unwrap(), found.ssd.unwrap());
    // The record is 1000 bytes: 16 lines and some to the log, and once to a page in the end.
    assert!((17.0..36.0).contains(&counts.wpq_inserts), "{counts:?}");
    assert!((1.0..1.2).contains(&counts.fences), "{counts:?}");
    assert!(ssd.ssd_flushes < 0.1, "{ssd:?}");
    assert_eq!((found.profile.as_deref(), found.records), (Some(OPTANE_100), Some(500)));
}

#[test]
fn it_waits_for_one_flush_where_the_log_is_on_an_ssd() {
    let modelled = ModelledStore::create(OPTANE_100, Placement::Ssd).unwrap();
    let found = modelled.count(100, |table| {
        for number in 0..100_u8 {
            table.write(&[number], &[number; 1000])?;
        }
        Ok::<_, CountError>(100)
    });
    let found = found.unwrap();
    let (counts, ssd) = (found.counts.unwrap(), found.ssd.unwrap());
    assert!((1.0..1.2).contains(&ssd.ssd_flushes), "{ssd:?}");
    assert!(ssd.ssd_written_bytes >= 4096.0 + 1000.0, "{ssd:?}");
    assert_eq!((counts.fences, counts.wpq_inserts), (0.0, 0.0));
}

#[test]
fn a_replay_is_counted() {
    let text: String = (0..50).map(|i| format!("1,{i},2a,4096,{}\n", i % 20)).collect();
    let requests = read_trace(text.as_bytes(), usize::MAX).unwrap();
    let counts = count_replay(OPTANE_100, &requests).unwrap();
    assert!(counts.counts.unwrap().wpq_inserts >= 64.0 * 0.6, "{counts:?}");
    assert_eq!(counts.records, Some(50));
}

#[test]
fn an_unknown_profile_is_an_error() {
    let error = count_replay("papyrus", &[]).unwrap_err();
    assert!(matches!(error, CountError::Profile(_)));
}
