//! The building blocks from outside.

mod block_log;
mod formats;
mod in_place;
mod interleave;
mod logs;
mod page;
mod pop_log;
mod power_cuts;
mod ring_logs;
mod torn;

use std::sync::Arc;

use lapis_blocks::log::{Log, LogError, Position};
use lapis_device::{Config, Modelled};
use lapis_pmem::{AuditReport, Domain, Pool, Region};

/// The name of a log's root.
const ROOT: &str = "log";

type Entries = Vec<(Position, Vec<u8>)>;

fn open<D: Domain, L: Log<D>>(pool: &Arc<Pool<D>>) -> Result<L, LogError> {
    L::open(Arc::clone(pool), pool.root(ROOT).expect("the log has been published"))
}

fn contents<D: Domain, L: Log<D>>(log: &L) -> Entries {
    log.entries().map(Result::unwrap).collect()
}

fn reclaim_and_audit<D: Domain, L: Log<D>>(log: &L) -> AuditReport {
    let pool = log.pool();
    pool.reclaim_and_audit(&pool.reachable(|visitor| log.visit_blocks(visitor)))
}

fn has_no_leak<D: Domain, L: Log<D>>(log: &L) {
    let report = reclaim_and_audit(log);
    assert!(report.is_clean(), "{report:?}");
}

/// A new pool of so many bytes, which does not grow.
fn modelled(pool_bytes: usize, config: Config) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(pool_bytes, pool_bytes).unwrap();
    let domain = Modelled::over(&region, config);
    Arc::new(Pool::create(region, domain).unwrap())
}

/// What the memory of a pool holds.
fn memory<D: Domain>(pool: &Pool<D>) -> Vec<u8> {
    let region = pool.region();
    // SAFETY: mapped, and nobody writes meanwhile.
    unsafe { std::slice::from_raw_parts(region.base(), region.mapped_bytes()).to_vec() }
}

/// A pool over memory that holds `image`.
fn restart(image: &[u8], config: Config) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(image.len(), image.len()).unwrap();
    // SAFETY: freshly mapped, that long, and nobody else uses it.
    unsafe { region.base().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
    let domain = Modelled::over(&region, config);
    Arc::new(Pool::open(region, domain).unwrap())
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
