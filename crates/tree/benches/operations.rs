//! What operations of a tree in DRAM cost: CPU time, and with callgrind, instructions.
//!
//! ```text
//! cargo bench -p lapis-tree --bench operations -- [RECORDS]
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured_get*' BENCHMARK RECORDS
//! ```
//!
//! Keys of 8 bytes that look random, values of 100.

use std::sync::Arc;
use std::time::Instant;

use lapis_buffer::{BufferManager, BufferOptions};
use lapis_pmem::Hardware;
use lapis_tree::{NoStructureLog, Tree, TreeError};

type Memory = Tree<Hardware, NoStructureLog>;

const VALUE: [u8; 100] = [7; 100];
const SCANNED: u64 = 100;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Any order of `records` numbers but their own.
fn shuffled(number: u64, records: u64) -> u64 {
    number.wrapping_mul(2_654_435_761) % records
}

fn report(what: &str, operations: u64, begun: Instant) {
    let nanoseconds = begun.elapsed().as_nanos() as f64 / operations as f64;
    println!("{what:<28} {nanoseconds:8.0} ns");
}

#[inline(never)]
fn measured_put(tree: &Memory, records: u64) -> Result<(), TreeError> {
    (0..records).try_for_each(|number| tree.put(&key(number), &VALUE, 0, None))
}

#[inline(never)]
fn measured_overwrite(tree: &Memory, records: u64) -> Result<(), TreeError> {
    let order = (0..records).map(|number| shuffled(number, records));
    order.into_iter().try_for_each(|number| tree.put(&key(number), &VALUE, 0, None))
}

#[inline(never)]
fn measured_get(tree: &Memory, records: u64) -> Result<u64, TreeError> {
    let (mut value, mut found) = (Vec::new(), 0);
    for number in 0..records {
        found += u64::from(tree.get(&key(shuffled(number, records)), &mut value)?);
    }
    Ok(found)
}

#[inline(never)]
fn measured_scan(tree: &Memory, scans: u64) -> Result<u64, TreeError> {
    let (mut cursor, mut bytes) = (tree.cursor(), 0);
    for number in 0..scans {
        cursor.seek(core::ops::Bound::Included(&key(number * 77)))?;
        for _ in 0..SCANNED {
            let Some((key, value)) = cursor.next()? else { break };
            bytes += (key.len() + value.len()) as u64;
        }
    }
    Ok(bytes)
}

fn main() -> Result<(), TreeError> {
    let records = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let frames = records as usize / 60 + 64;
    let options = BufferOptions { frames, ..BufferOptions::default() };
    let manager = || BufferManager::in_memory(Hardware::detect(), &options).map(Arc::new);
    let tree = Tree::create(manager()?, NoStructureLog)?;
    let begun = Instant::now();
    measured_put(&tree, records)?;
    report("put, random order", records, begun);
    let begun = Instant::now();
    measured_overwrite(&tree, records)?;
    report("put, of a key that is there", records, begun);
    let begun = Instant::now();
    let found = measured_get(&tree, records)?;
    report("get", records, begun);
    let scans = records / SCANNED;
    let begun = Instant::now();
    let bytes = measured_scan(&tree, scans)?;
    report("scan of 100", scans, begun);
    println!("{found} found, {bytes} bytes scanned, {:?}", tree.check(&mut |_| ()));

    let ordered: Vec<_> = (0..records).map(|number| (number.to_be_bytes(), VALUE)).collect();
    let tree = Tree::create(manager()?, NoStructureLog)?;
    let begun = Instant::now();
    ordered.iter().try_for_each(|(key, value)| tree.put(key, value, 0, None))?;
    report("put, in order", records, begun);
    let tree = Tree::create(manager()?, NoStructureLog)?;
    let begun = Instant::now();
    tree.bulk_load(ordered, 100)?;
    report("bulk load", records, begun);
    Ok(())
}
