//! PopLog from outside: against a model, torn by hand, its flushes and fences counted, and cut
//! off at every event.

mod counts;
mod crash;
mod machine;
mod model;
mod torn;

use lapis_blocks::log::{LogError, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_pmem::{Committed, Domain, Pool};
use std::sync::Arc;

const ROOT: &str = "log";

/// Creates a log, publishes it and opens it.
fn create<D: Domain>(pool: &Arc<Pool<D>>, options: PopLogOptions) -> PopLog<D> {
    let root = pool.fence(PopLog::create(pool, options).unwrap());
    let _: Committed = pool.publish_root(ROOT, 0, root).unwrap().persist();
    open(pool).unwrap()
}

fn open<D: Domain>(pool: &Arc<Pool<D>>) -> Result<PopLog<D>, LogError> {
    let root = pool.root::<PopLogRoot>(ROOT).expect("the log has been published");
    PopLog::open(Arc::clone(pool), root)
}

fn contents<D: Domain>(log: &PopLog<D>) -> Vec<(Position, Vec<u8>)> {
    log.iter().map(Result::unwrap).collect()
}

/// A deterministic stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
