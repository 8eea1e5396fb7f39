//! Inserts and searches per second of P-CLHT with this machine's flush instruction: growing from
//! the smallest table and pre-sized, on one thread and on two.
//!
//! `cargo run --release -p lapis-index --example p_clht_speed [keys]`

use std::sync::Arc;
use std::time::Instant;

use lapis_index::{Index, IndexOptions, PClht};
use lapis_pmem::{Hardware, Pool};

/// A bijection: distinct inputs give distinct keys in no order.
fn key(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0xD134_2543_DE82_EF95);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0x2545_F491_4F6C_DD1D);
    bits ^ (bits >> 32)
}

/// Millions of operations per second of `operation` over all keys, divided among threads.
fn rate(keys: u64, threads: u64, operation: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let operation = &operation;
            scope.spawn(move || {
                for number in (thread..keys).step_by(threads as usize) {
                    operation(key(number));
                }
            });
        }
    });
    keys as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn run(name: &str, keys: u64, threads: u64, options: &IndexOptions) {
    let pool = Arc::new(Pool::create_anonymous(1 << 30).expect("a pool"));
    let root = pool.fence(PClht::<Hardware, u64>::create(&pool, options).expect("an index"));
    let link = root.link();
    let committed = pool.publish_root("speed", 0, root).expect("a root").persist();
    let index = PClht::<Hardware, u64>::open(Arc::clone(&pool), link).expect("an index");
    let insert = rate(keys, threads, |key| {
        assert!(index.insert(&key, !key).expect("room").previous.is_none());
    });
    let get = rate(keys, threads, |key| assert_eq!(index.get(&key), Some(!key)));
    let miss = rate(keys, threads, |key| assert_eq!(index.get(&!key.rotate_left(7)), None));
    let statistics = index.statistics();
    println!(
        "{name:<10} {threads} thread(s): insert {insert:6.2} M/s  get {get:6.2} M/s  absent {miss:6.2} M/s   \
         {:.1} bytes/key, {:.3} buckets/search",
        statistics.bytes as f64 / statistics.entries as f64,
        statistics.mean_depth,
    );
    let _ = committed;
}

fn main() {
    let keys = std::env::args().nth(1).map_or(4_000_000, |text| text.parse().expect("a number"));
    println!("{keys} keys, flush: {}", Hardware::detect().method());
    let presized = IndexOptions { expected_entries: keys as usize, ..IndexOptions::default() };
    for threads in [1, 2] {
        run("growing", keys, threads, &IndexOptions::default());
        run("pre-sized", keys, threads, &presized);
    }
}
