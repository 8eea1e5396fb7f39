//! What operations of a tree in DRAM cost: CPU time, and with callgrind, instructions.
//!
//! ```text
//! cargo bench -p lapis-tree --bench operations -- [RECORDS [VALUE_BYTES [sorted|hashed]]]
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured_get*' BENCHMARK RECORDS 100 sorted
//! ```
//!
//! Keys of 8 bytes that look random, values of 100 unless another length is asked for; leaves of both kinds unless one is.

use std::sync::Arc;
use std::time::Instant;

use lapis_buffer::{BufferManager, BufferOptions};
use lapis_pmem::Hardware;
use lapis_tree::{BulkLoad, LeafLayout, NoStructureLog, Tree, TreeError};

type Memory = Tree<Hardware, NoStructureLog>;

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
fn measured_put(tree: &Memory, records: u64, value: &[u8]) -> Result<(), TreeError> {
    (0..records).try_for_each(|number| tree.put(&key(number), value, 0, None))
}

#[inline(never)]
fn measured_overwrite(tree: &Memory, records: u64, value: &[u8]) -> Result<(), TreeError> {
    let order = (0..records).map(|number| shuffled(number, records));
    order.into_iter().try_for_each(|number| tree.put(&key(number), value, 0, None))
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
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().and_then(|it| it.parse().ok()).unwrap_or(default);
    let (records, value_bytes) = (number(1_000_000_u64), number(100));
    let only = arguments.next();
    for (name, leaves) in [("sorted", LeafLayout::Sorted), ("hashed", LeafLayout::Hashed)] {
        if only.as_ref().is_none_or(|only| only == name) {
            println!("{name} leaves");
            measure(records, &vec![7; value_bytes as usize], leaves)?;
        }
    }
    Ok(())
}

fn measure(records: u64, value: &[u8], leaves: LeafLayout) -> Result<(), TreeError> {
    let frames = records as usize * (20 + value.len()) / (8 << 10) + 64;
    let options = BufferOptions { frames, ..BufferOptions::default() };
    let tree = || {
        let manager = Arc::new(BufferManager::in_memory(Hardware::detect(), &options)?);
        Tree::create_with(manager, NoStructureLog, leaves)
    };
    let random = tree()?;
    let begun = Instant::now();
    measured_put(&random, records, value)?;
    report("put, random order", records, begun);
    let begun = Instant::now();
    measured_overwrite(&random, records, value)?;
    report("put, of a key that is there", records, begun);
    let begun = Instant::now();
    let found = measured_get(&random, records)?;
    report("get", records, begun);
    let scans = records / SCANNED;
    let begun = Instant::now();
    let bytes = measured_scan(&random, scans)?;
    report("scan of 100", scans, begun);
    println!("{found} found, {bytes} bytes scanned, {:?}", random.check(&mut |_| ()));
    drop(random);

    let in_order = tree()?;
    let ordered: Vec<_> = (0..records).map(|number| (number.to_be_bytes(), value)).collect();
    let begun = Instant::now();
    ordered.iter().try_for_each(|(key, value)| in_order.put(key, value, 0, None))?;
    report("put, in order", records, begun);
    drop(in_order);
    let loaded = tree()?;
    let begun = Instant::now();
    let mut load = BulkLoad::begin(loaded, 100)?;
    ordered.iter().try_for_each(|(key, value)| load.push(key, value))?;
    load.finish()?;
    report("bulk load", records, begun);
    Ok(())
}
