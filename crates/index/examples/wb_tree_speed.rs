//! Measures the wB+-Tree on this machine: M operations per second on random integer keys, with both
//! kinds of nodes.
//!
//! `cargo run --release -p lapis-index --example wb_tree_speed [million_keys ..]`

use std::sync::Arc;
use std::time::Instant;

use lapis_index::{Index, IndexError, IndexKey, IndexOptions, WbTree, WbTreeNodes};
use lapis_pmem::{Hardware, Pool};

type Tree = WbTree<Hardware, u64>;

/// The `number`-th key: a permutation of the integers, so all are different.
fn key(number: u64) -> u64 {
    number.hash64()
}

fn tree(wb_tree_nodes: WbTreeNodes) -> Result<Tree, Box<dyn std::error::Error>> {
    let pool = Arc::new(Pool::create_anonymous(64 << 20)?);
    let options = IndexOptions { wb_tree_nodes, ..IndexOptions::default() };
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
    let asked: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1, 4] } else { asked };
    println!("{} flushes", Hardware::detect().method());
    println!("nodes             keys  threads  insert Mops/s  get Mops/s  depth");
    for nodes in [WbTreeNodes::BitmapAndSlots, WbTreeNodes::SlotsOnly] {
        for &millions in &sizes {
            let keys = millions * 1_000_000;
            for threads in [1, 2] {
                let tree = tree(nodes)?;
                let insert =
                    rate(keys, threads, |number| tree.insert(&key(number), number).map(drop))?;
                // Another order than that of insertion.
                let get = rate(keys, threads, |number| {
                    let number = number.hash64() % keys;
                    assert_eq!(tree.get(&key(number)), Some(number), "a key is missing");
                    Ok(())
                })?;
                let depth = tree.statistics().mean_depth;
                let nodes = format!("{nodes:?}");
                println!(
                    "{nodes:15}  {millions:4}M  {threads:7}  {insert:13.2}  {get:10.2}  {depth:5.1}"
                );
            }
        }
    }
    Ok(())
}
