//! What a store says about itself.

use std::time::Duration;

use lapis::Store;

use crate::harness::*;

#[test]
fn a_store_in_memory_promises_nothing() {
    let info = Store::in_memory().unwrap().info(false).unwrap();
    assert_eq!(info.durability, "none");
    assert!(info.why.contains("ends with it"));
}

#[test]
fn a_store_on_files_promises_what_its_file_system_keeps() {
    let (_directory, store) = created();
    let info = store.info(false).unwrap();
    // Where temporary files lie in memory, no power cut is survived, and it is not claimed.
    let in_memory = info.tiers[1].medium.contains("tmpfs");
    assert_eq!(info.durability, if in_memory { "process-crash" } else { "power-fail" });
    let holds: Vec<_> = info.tiers.iter().map(|tier| (tier.holds, tier.survives)).collect();
    let kept = info.durability;
    assert_eq!(holds, [("cache", "none"), ("pages", kept), ("log", kept)]);
    assert_eq!(info.tiers[0].bytes, 64 * 4096);
    assert!(info.tiers[2].path.as_deref().unwrap().ends_with("log.lapis"));
    assert_eq!((info.page_bytes, info.bytes.storage > 1 << 20), (4096, true));
}

#[test]
fn a_restart_is_estimated_and_bounded() {
    let directory = directory();
    let most = Duration::from_millis(1500);
    let store = Store::open(config(directory.path()).most_time_to_redo(most)).unwrap();
    let seconds = || store.info(false).unwrap().seconds_to_redo;
    let before = seconds();
    let table = store.create_table("t").unwrap();
    (0..200_u32).for_each(|key| table.put(&key.to_be_bytes(), &[1; 400]).unwrap());
    assert!(seconds() > before);
    assert_eq!(store.info(false).unwrap().most_seconds_to_redo, 1.5);
}

#[test]
fn entries_are_counted_when_that_is_asked_for() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let entries = |count| store.info(count).unwrap().tables[0].entries;
    assert_eq!((entries(false), entries(true)), (None, Some(1)));
}

#[test]
fn metrics_tell_evictions_once_dram_is_full() {
    let (_directory, store) = created();
    let table = store.create_table("t").unwrap();
    for first in (0..5000_u32).step_by(500) {
        let mut transaction = store.transaction().unwrap();
        for number in first..first + 500 {
            transaction.put(&table, &number.to_be_bytes(), &[7; 200]).unwrap();
        }
        transaction.commit().unwrap();
    }
    let metrics = store.metrics();
    assert!(metrics.evictions_from_dram > 50, "{metrics:?}");
    assert!(metrics.log_bytes > 0 && metrics.device_written_bytes > 0, "{metrics:?}");
    assert_eq!(table.len().unwrap(), 5000);
    assert_sound(&store);
}
