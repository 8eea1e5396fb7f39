//! Workloads against real stores, small.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lapis::{Config, Store, Table};
use lapis_lab::replay::{read_trace, replay};
use lapis_lab::ycsb::{Driver, Options, Workload};

fn table() -> (Store, Table) {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("usertable").unwrap();
    (store, table)
}

fn options() -> Options {
    Options { records: 1000, operations: 3000, ..Options::default() }
}

#[test]
fn every_workload_runs() {
    let (store, table) = table();
    let mut driver = Driver::new(&table, options()).unwrap();
    for workload in Workload::ALL {
        let report = driver.run(workload, &|_| ()).unwrap();
        let operations = if workload == Workload::Load { 1000 } else { 3000 };
        assert_eq!(report.operations, operations, "{workload}");
        assert!(report.ops_per_s > 0.0 && report.latency_ns.p9999 >= report.latency_ns.p50);
    }
    driver.verify().unwrap();
    assert!(store.check().ok);
}

#[test]
fn threads_see_each_others_acknowledged_writes() {
    let (store, table) = table();
    let mut driver = Driver::new(&table, Options { threads: 3, ..options() }).unwrap();
    for workload in [Workload::Load, Workload::A, Workload::D, Workload::F] {
        driver.run(workload, &|_| ()).unwrap();
    }
    driver.verify().unwrap();
    assert!(store.check().ok);
}

#[test]
fn a_store_on_a_file_is_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let records = {
        let store = Store::open(Config::new(directory.path())).unwrap();
        let table = store.table_or_create("usertable").unwrap();
        let mut driver = Driver::new(&table, options()).unwrap();
        for workload in [Workload::Load, Workload::A, Workload::D] {
            driver.run(workload, &|_| ()).unwrap();
        }
        driver.records()
    };
    let store = Store::open(Config::new(directory.path())).unwrap();
    let table = store.table("usertable").unwrap();
    let mut driver = Driver::attach(&table, options()).unwrap();
    assert_eq!(driver.records(), records);
    driver.run(Workload::B, &|_| ()).unwrap();
}

#[test]
fn a_small_trace_replays_without_mismatch() {
    let mut text = String::from("version,time_us,op,size,lbn\n");
    for i in 0..600u64 {
        let (operation, size, block) = (["2a", "28", "2a"][i as usize % 3], 512 + i * 7, i % 37);
        text += &format!("1,{i},{operation},{size},{block}\n");
    }
    let requests = read_trace(text.as_bytes(), usize::MAX).unwrap();
    let (store, table) = table();
    let report = replay(&table, &requests, &|_| ()).unwrap();
    // 200 reads, and 37 blocks in the end.
    assert_eq!((report.verified, report.mismatches), (237, 0));
    assert!(store.check().ok);
}

#[test]
fn a_real_trace_replays_without_mismatch() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/cloudphysics-io.csv");
    let Ok(file) = File::open(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return;
    };
    // All of it takes several gigabytes; its beginning will do.
    const REQUESTS: usize = 6_000;
    let requests = read_trace(BufReader::new(file), REQUESTS).unwrap();
    let (store, table) = table();
    let report = replay(&table, &requests, &|_| ()).unwrap();
    assert_eq!(report.mismatches, 0, "{:?}", report.first_mismatches);
    assert_eq!(report.report.operations, REQUESTS as u64);
    assert!(store.check().ok);
}
