//! Measures FAST & FAIR on this machine: M operations per second on random integer keys.
//!
//! `cargo run --release -p lapis-index --example fast_fair_speed [node_bytes ..]`

use std::sync::Arc;
use std::time::Instant;

use lapis_index::{FastFair, Index, IndexError, IndexKey, IndexOptions};
use lapis_pmem::{Hardware, Pool};

type Tree = FastFair<Hardware, u64>;

/// The `number`-th key: a permutation of the integers, so all are different.
fn key(number: u64) -> u64 {
    number.hash64()
}

fn tree(node_bytes: usize) -> Result<Tree, Box<dyn std::error::Error>> {
    let pool = Arc::new(Pool::create_anonymous(64 << 20)?);
    let options = IndexOptions { node_bytes, ..IndexOptions::default() };
    let root = pool.fence(<Tree as Index<Hardware, u64>>::create(&pool, &options)?);
    let link = root.link();
    let _ = pool.publish_root("speed", 0, root)?.persist();
    Ok(Tree::open(Arc::clone(&pool), link)?)
}

/// Runs `operation` for each of `keys` key numbers, shared out over `threads`; M operations/s.
fn rate(
    keys: u64,
    threads: u64,
    operation: impl Fn(u64) -> Result<(), IndexError> + Sync,
) -> Result<f64, IndexError> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread: u64| {
            let operation = &operation;
            move || (thread..keys).step_by(threads as usize).try_for_each(operation)
        };
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;
    Ok(keys as f64 / start.elapsed().as_secs_f64() / 1e6)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![512] } else { asked };
    println!("{} flushes", Hardware::detect().method());
    println!("node_bytes   keys  threads  insert Mops/s  get Mops/s");
    for node_bytes in sizes {
        for keys in [1_000_000, 4_000_000] {
            for threads in [1, 2] {
                let tree = tree(node_bytes)?;
                let insert =
                    rate(keys, threads, |number| tree.insert(&key(number), number).map(drop))?;
                // Another order than that of insertion.
                let get = rate(keys, threads, |number| {
                    let number = number.hash64() % keys;
                    assert_eq!(tree.get(&key(number)), Some(number), "a key is missing");
                    Ok(())
                })?;
                println!(
                    "{node_bytes:10}  {:4}M  {threads:7}  {insert:13.2}  {get:10.2}",
                    keys / 1_000_000
                );
            }
        }
    }
    Ok(())
}
