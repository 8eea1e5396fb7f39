//! Workloads against real stores, small.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lapis::{Config, Error, IndexKind, Store, TableOptions};
use lapis_lab::key_value::TableTarget;
use lapis_lab::replay::{read_trace, replay};
use lapis_lab::ycsb::{Driver, Options, Workload, WorkloadError};

fn table(index: IndexKind) -> (Store, TableTarget<lapis::Hardware>) {
    let store = Store::in_memory(64 << 20).unwrap();
    let options = TableOptions { index, ..TableOptions::default() };
    let table = store.create_table("usertable", &options).unwrap();
    let target = TableTarget::new(&store, &table);
    (store, target)
}

fn options() -> Options {
    Options { records: 1000, operations: 3000, ..Options::default() }
}

#[test]
fn every_workload_runs_on_every_ordered_index() {
    for index in [IndexKind::Wort, IndexKind::FastFair] {
        let (store, target) = table(index);
        let mut driver = Driver::new(&target, options()).unwrap();
        for workload in Workload::ALL {
            let report = driver.run(workload, &|_| ()).unwrap();
            let operations = if workload == Workload::Load { 1000 } else { 3000 };
            assert_eq!(report.operations, operations, "{index} {workload}");
            assert!(report.ops_per_s > 0.0 && report.latency_ns.p9999 >= report.latency_ns.p50);
        }
        driver.verify().unwrap();
        assert!(store.check().ok, "{index}");
    }
}

#[test]
fn a_hash_table_runs_all_but_scans() {
    let (store, target) = table(IndexKind::PClht);
    let mut driver = Driver::new(&target, options()).unwrap();
    for workload in Workload::ALL {
        let result = driver.run(workload, &|_| ());
        if workload == Workload::E {
            let error = result.unwrap_err();
            assert!(matches!(error, WorkloadError::Target(Error::Unordered { .. })), "{error}");
        } else {
            result.unwrap();
        }
    }
    assert!(store.check().ok);
}

#[test]
fn threads_see_each_others_acknowledged_writes() {
    for index in IndexKind::ALL {
        let (store, target) = table(index);
        let mut driver = Driver::new(&target, Options { threads: 3, ..options() }).unwrap();
        for workload in [Workload::Load, Workload::A, Workload::D, Workload::F] {
            driver.run(workload, &|_| ()).unwrap();
        }
        driver.verify().unwrap();
        assert!(store.check().ok, "{index}");
    }
}

#[test]
fn a_store_on_a_file_is_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let records = {
        let store = Store::open(Config::new(directory.path())).unwrap();
        let table = store.table_or_create("usertable", &TableOptions::default()).unwrap();
        let target = TableTarget::new(&store, &table);
        let mut driver = Driver::new(&target, options()).unwrap();
        for workload in [Workload::Load, Workload::A, Workload::D] {
            driver.run(workload, &|_| ()).unwrap();
        }
        driver.records()
    };
    let store = Store::open(Config::new(directory.path())).unwrap();
    let target = TableTarget::new(&store, &store.table("usertable").unwrap());
    let mut driver = Driver::attach(&target, options()).unwrap();
    assert_eq!(driver.records(), records);
    driver.run(Workload::B, &|_| ()).unwrap();
}

#[test]
fn a_small_trace_replays_without_mismatch_on_every_index() {
    let mut text = String::from("version,time_us,op,size,lbn\n");
    for i in 0..600u64 {
        let (operation, size, block) = (["2a", "28", "2a"][i as usize % 3], 512 + i * 7, i % 37);
        text += &format!("1,{i},{operation},{size},{block}\n");
    }
    let requests = read_trace(text.as_bytes(), usize::MAX).unwrap();
    for index in IndexKind::ALL {
        let (store, target) = table(index);
        let report = replay(&target, &requests, &|_| ()).unwrap();
        // 200 reads, and 37 blocks in the end.
        assert_eq!((report.verified, report.mismatches), (237, 0), "{index}");
        assert!(store.check().ok, "{index}");
    }
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
    let requests = read_trace(BufReader::new(file), 20_000).unwrap();
    let (store, target) = table(IndexKind::Wort);
    let report = replay(&target, &requests, &|_| ()).unwrap();
    assert_eq!(report.mismatches, 0, "{:?}", report.first_mismatches);
    assert_eq!(report.report.operations, 20_000);
    assert!(store.check().ok);
}
