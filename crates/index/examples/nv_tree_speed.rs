//! Measures NV-Tree on this machine: M operations per second on random integer keys, and how long
//! opening takes on one thread and on two.
//!
//! `cargo run --release -p lapis-index --example nv_tree_speed [leaf_bytes ..]`

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use lapis_index::{Index, IndexError, IndexKey, IndexOptions, IndexRoot, NvTree};
use lapis_pmem::{Hardware, Link, Pool};

type Tree = NvTree<Hardware, u64>;

/// The `number`-th key: a permutation of the integers, so all are different.
fn key(number: u64) -> u64 {
    number.hash64()
}

fn tree(node_bytes: usize) -> Result<(Tree, Link<IndexRoot>), Box<dyn Error>> {
    let pool = Arc::new(Pool::create_anonymous(64 << 20)?);
    let options = IndexOptions { node_bytes, ..IndexOptions::default() };
    let root = pool.fence(<Tree as Index<Hardware, u64>>::create(&pool, &options)?);
    let link = root.link();
    let _ = pool.publish_root("speed", 0, root)?.persist();
    Ok((Tree::open(Arc::clone(&pool), link)?, link))
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

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![512] } else { asked };
    println!("{} flushes", Hardware::detect().method());
    println!(
        "leaf_bytes   keys  threads  insert Mops/s  get Mops/s  depth  rebuilds  moved  open ms (1, 2)"
    );
    for node_bytes in sizes {
        let keys = 4_000_000;
        for threads in [1, 2] {
            let (tree, root) = tree(node_bytes)?;
            let insert = rate(keys, threads, |number| tree.insert(&key(number), number).map(drop))?;
            // Another order than that of insertion.
            let get = rate(keys, threads, |number| {
                let number = number.hash64() % keys;
                assert_eq!(tree.get(&key(number)), Some(number), "a key is missing");
                Ok(())
            })?;
            let depth = tree.statistics().mean_depth;
            let cost = tree.inner_rebuilds();
            let pool = Arc::clone(tree.pool());
            drop(tree);
            let open = |threads| -> Result<f64, IndexError> {
                let start = Instant::now();
                let opened = Tree::open_with(Arc::clone(&pool), root, threads)?;
                let took = start.elapsed();
                drop(opened);
                Ok(took.as_secs_f64() * 1e3)
            };
            println!(
                "{node_bytes:10}  {:4}M  {threads:7}  {insert:13.2}  {get:10.2}  {depth:5.2}  {:8}  \
                 {:5}  {:.1}, {:.1}",
                keys / 1_000_000,
                cost.rebuilds,
                cost.entries_moved,
                open(1)?,
                open(2)?
            );
        }
    }
    Ok(())
}
