//! Instructions executed by typed and by hand-written code, counted by callgrind.
//!
//! ```text
//! cargo install gungraun-runner --version 0.20.0
//! cargo bench -p lapis-pmem --features instruction-counts --bench zero_cost
//! ```
//!
//! Everything is made ready before counting starts. Valgrind's processor has its own set of flush
//! instructions; both sides use the one that is found there.

#![cfg(target_arch = "x86_64")]
#![expect(missing_docs, reason = "the macros make public items without documentation")]

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use gungraun::prelude::*;
use lapis_pmem::{Committed, Dirty, Durable, Hardware, Owned, PCell, Pool, Region, Slot};

mod pairs;

use pairs::*;

type Node = pairs::Node;

/// A pool for ever, so that what is made ready can be handed over. Valgrind has no room for the
/// address space that pools reserve by default.
fn pool() -> &'static Pool<Hardware> {
    let region = Region::anonymous(1 << 20, 1 << 26).expect("anonymous memory");
    Box::leak(Box::new(Pool::create(region, Hardware::detect()).expect("an empty pool")))
}

fn word(pool: &'static Pool<Hardware>) -> &'static PCell<u64> {
    let block = pool.allocate::<PCell<u64>>().expect("room for a word");
    block.store(pool.domain(), 1);
    pool.at(pool.fence(block.flush()).release())
}

fn slot(pool: &'static Pool<Hardware>) -> &'static Slot<Node> {
    let block = pool.allocate::<Slot<Node>>().expect("room for a slot");
    block.word().store(pool.domain(), 0);
    pool.at(pool.fence(block.flush()).release())
}

fn machine(pool: &'static Pool<Hardware>) -> &'static ByHand {
    Box::leak(Box::new(ByHand::of(pool)))
}

fn typed_word() -> (&'static Hardware, &'static PCell<u64>) {
    let pool = pool();
    (pool.domain(), word(pool))
}

fn raw_word() -> (&'static ByHand, &'static AtomicU64) {
    let pool = pool();
    (machine(pool), word(pool).atomic())
}

fn durable_node() -> (&'static Slot<Node>, Owned<'static, Hardware, Node, Durable>) {
    let pool = pool();
    let node = pool.allocate::<Node>().expect("room for a node");
    (slot(pool), pool.fence(node.flush()))
}

fn dirty_node() -> (&'static Slot<Node>, Owned<'static, Hardware, Node, Dirty>) {
    let pool = pool();
    (slot(pool), pool.allocate::<Node>().expect("room for a node"))
}

fn raw_node() -> (&'static AtomicU64, RawBlock<'static>) {
    let pool = pool();
    let node = pool.allocate::<Node>().expect("room for a node");
    let link = pool.fence(node.flush()).release();
    (slot(pool).word().atomic(), machine(pool).block(link.offset()))
}

#[library_benchmark]
#[bench::run(typed_word())]
fn bitmap_commit_with_types(input: (&'static Hardware, &'static PCell<u64>)) -> Committed {
    bitmap_commit_typed(input.0, input.1, black_box(8))
}

#[library_benchmark]
#[bench::run(raw_word())]
fn bitmap_commit_with_raw_pointers(input: (&'static ByHand, &'static AtomicU64)) {
    // SAFETY: a word that lives for ever.
    unsafe { bitmap_commit_by_hand(input.0, input.1, black_box(8)) }
}

#[library_benchmark]
#[bench::run(durable_node())]
fn publish_with_types(
    input: (&'static Slot<Node>, Owned<'static, Hardware, Node, Durable>),
) -> Committed {
    publish_typed(input.0, input.1)
}

#[library_benchmark]
#[bench::run(raw_node())]
fn publish_with_raw_pointers(input: (&'static AtomicU64, RawBlock<'static>)) {
    // SAFETY: a slot that lives for ever.
    unsafe { publish_by_hand(input.0, input.1) }
}

#[library_benchmark]
#[bench::run(dirty_node())]
fn insert_with_types(
    input: (&'static Slot<Node>, Owned<'static, Hardware, Node, Dirty>),
) -> Option<Committed> {
    insert_typed(input.0, input.1, black_box(5))
}

#[library_benchmark]
#[bench::run(raw_node())]
fn insert_with_raw_pointers(input: (&'static AtomicU64, RawBlock<'static>)) -> bool {
    // SAFETY: a slot and a block that live for ever and are this function's own.
    unsafe { insert_by_hand(input.0, input.1, black_box(5)) }
}

library_benchmark_group!(
    name = zero_cost,
    benchmarks = [
        bitmap_commit_with_types,
        bitmap_commit_with_raw_pointers,
        publish_with_types,
        publish_with_raw_pointers,
        insert_with_types,
        insert_with_raw_pointers,
    ]
);

main!(library_benchmark_groups = zero_cost);
