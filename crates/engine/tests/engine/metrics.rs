//! What an engine tells of itself.

use lapis_engine::Durability;

use crate::harness::{Rig, small};

#[test]
fn bytes_commits_and_accesses_are_those_that_there_were() {
    let (rig, table) = Rig::with_table();
    let before = rig.engine.metrics();
    for number in 0..50_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[7; 96], Durability::Immediate).unwrap();
    }
    rig.engine.put(&table, b"eventual", &[7; 92], Durability::Eventual).unwrap();
    for number in 0..30_u32 {
        rig.engine.get(&table, &number.to_be_bytes()).unwrap().unwrap();
    }
    let metrics = rig.engine.metrics().since(&before);
    // A record says of a value, in a byte more, that it is short.
    assert_eq!(metrics.written_bytes, 50 * 101 + 101);
    assert_eq!(metrics.commits.count(), 50);
    assert!(metrics.commits.quantile(0.5) <= metrics.commits.quantile(1.0));
    assert_eq!(metrics.leaf_accesses, 51 + 30);
    assert_eq!(metrics.dram_hit_ratio(), Some(1.0));
    assert!(metrics.log_bytes > metrics.written_bytes);
    assert!(metrics.write_amplification().unwrap() > 1.0, "each commit writes a block");
    assert_eq!(metrics.persistent_memory_hit_ratio(), None);
}

#[test]
fn pages_that_do_not_fit_into_memory_are_misses() {
    let rig = Rig::new(small());
    let entries = (0..20_000_u32).map(|number| (number.to_be_bytes(), [7; 100]));
    let table = rig.engine.load_table("t", entries).unwrap();
    let before = rig.engine.metrics();
    assert_eq!(before.dram.capacity, 64 * 4096);
    assert!(before.device.used > 2 << 20 && before.device.used <= before.device.capacity);
    for number in (0..20_000_u32).step_by(37) {
        rig.engine.get(&table, &number.to_be_bytes()).unwrap().unwrap();
    }
    let metrics = rig.engine.metrics().since(&before);
    assert!(metrics.evictions_from_dram > 100 && metrics.loads_from_device > 100);
    assert!(metrics.dram_hit_ratio().unwrap() < 0.5);
    assert!(metrics.dram.used > 0 && metrics.dram.used <= metrics.dram.capacity);
    assert_eq!(metrics.persistent_memory_hit_ratio(), Some(0.0));
}
