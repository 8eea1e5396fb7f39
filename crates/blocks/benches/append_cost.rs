//! Instructions of PopLog's append, typed and by hand, counted by callgrind.
//!
//! ```text
//! cargo install gungraun-runner --version 0.20.0
//! cargo bench -p lapis-blocks --features instruction-counts --bench append_cost
//! ```
//!
//! Compared is what an append writes: the entry, its flushes and the fence. Finding the place and
//! taking the lock are the log's own and are measured apart, as `whole_append`.

#![cfg(target_arch = "x86_64")]
#![expect(missing_docs, reason = "the macros make public items without documentation")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gungraun::prelude::*;
use lapis_blocks::log::{Log as _, Position};
use lapis_blocks::pop_log::{ENTRY_HEADER_BYTES, PopLog, PopLogOptions, count_ones, write_entry};
use lapis_pmem::{Domain, Hardware, PCell, Pool, Region};

#[path = "../../pmem/benches/pairs/mod.rs"]
#[allow(dead_code, reason = "only the hand-written machine is of use here")]
mod pairs;

use pairs::ByHand;

/// A pool for ever. Valgrind has no room for the address space that pools reserve by default.
fn pool() -> Arc<Pool<Hardware>> {
    let region = Region::anonymous(8 << 20, 1 << 26).expect("anonymous memory");
    let pool = Arc::new(Pool::create(region, Hardware::detect()).expect("an empty pool"));
    std::mem::forget(Arc::clone(&pool));
    pool
}

/// Where an entry goes, and its payload.
struct Append {
    pool: Arc<Pool<Hardware>>,
    machine: ByHand,
    destination: *mut u8,
    payload: Vec<u8>,
}

fn append(payload_bytes: usize) -> Append {
    let pool = pool();
    let block = pool.allocate_with_tail::<PCell<u64>>(64 << 10).expect("room for entries");
    let link = pool.fence(block.zero_nontemporal()).release();
    let destination = pool.region().base().wrapping_add(link.offset() as usize);
    let payload = (0..payload_bytes).map(|i| (i * 31 + 7) as u8).collect();
    let append = Append { machine: ByHand::of(&pool), pool, destination, payload };
    // What is found out once, such as the processor's CRC instruction, is found out here.
    black_box(crc32c::crc32c(&append.payload));
    append
}

#[inline(never)]
fn append_typed(domain: &Hardware, destination: *mut u8, position: Position, payload: &[u8]) {
    // SAFETY: the caller's block is large enough, zero and its own.
    unsafe { write_entry(domain, destination, position, payload.len(), &[payload]) };
    domain.fence();
}

/// The same bytes in the same place, from parts and in pieces as PopLog has them.
#[inline(never)]
fn append_by_hand(machine: &ByHand, destination: *mut u8, position: u64, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut seed = [0; 12];
    seed[..8].copy_from_slice(&position.to_le_bytes());
    seed[8..].copy_from_slice(&(length as u32).to_le_bytes());
    let mut crc = crc32c::crc32c(&seed);
    let mut ones = (length as u32).count_ones();
    let mut at = ENTRY_HEADER_BYTES;
    // SAFETY: the caller's block is large enough, zero and its own.
    unsafe {
        for part in parts {
            for piece in part.chunks(4096) {
                ones += count_ones(piece);
                crc = crc32c::crc32c_append(crc, piece);
                destination.add(at).copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                at += piece.len();
            }
        }
        let identity = position & 0xffff_ffff | u64::from(crc) << 32;
        ones += identity.count_ones();
        let words = destination.cast::<AtomicU64>();
        (*words.add(1)).store(identity, Ordering::Relaxed);
        (*words).store(length as u64 | u64::from(ones) << 32, Ordering::Relaxed);
        machine.flush_lines(destination, at);
    }
    machine.fence();
}

#[library_benchmark]
#[benches::run(args = [24, 200, 1000], setup = append)]
fn entry_with_types(input: Append) -> Append {
    let (domain, payload) = (input.pool.domain(), &input.payload[..]);
    append_typed(domain, input.destination, Position::FIRST, black_box(payload));
    input
}

#[library_benchmark]
#[benches::run(args = [24, 200, 1000], setup = append)]
fn entry_with_raw_pointers(input: Append) -> Append {
    let payload = &input.payload[..];
    append_by_hand(&input.machine, input.destination, 1, &[black_box(payload)]);
    input
}

fn log(payload_bytes: usize) -> (PopLog<Hardware>, Vec<u8>) {
    let pool = pool();
    let options = PopLogOptions { segment_bytes: 1 << 20, ..PopLogOptions::default() };
    let log = PopLog::create_named(&pool, "log", options).expect("room for a log");
    let payload = append(payload_bytes).payload;
    log.append(&payload).expect("room for an entry");
    (log, payload)
}

#[library_benchmark]
#[benches::run(args = [24, 200, 1000], setup = log)]
fn whole_append(input: (PopLog<Hardware>, Vec<u8>)) -> (PopLog<Hardware>, Vec<u8>) {
    let position = input.0.append(black_box(&input.1));
    assert!(black_box(position).is_ok());
    input
}

library_benchmark_group!(
    name = append_cost,
    benchmarks = [entry_with_types, entry_with_raw_pointers, whole_append]
);

main!(library_benchmark_groups = append_cost);
