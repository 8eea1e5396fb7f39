//! The logs in a ring from outside: against a model, counted, damaged, torn, shared by threads.

mod counts;
mod damage;
mod errors;
mod model;
mod recovery;
mod shared;
mod threads;

use std::sync::Arc;

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::ring_log::{RingLog, RingOptions, RingRoot, Scheme};
use lapis_device::{Config, Modelled};
use lapis_pmem::{Committed, Domain, Pool, Region};

const ROOT: &str = "log";
const POOL_BYTES: usize = 640 << 10;

fn options(placement: Placement) -> RingOptions {
    RingOptions { capacity_bytes: 4096, placement, size_fields: 8 }
}

fn modelled(config: Config) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    let domain = Modelled::over(&region, config);
    Arc::new(Pool::create(region, domain).unwrap())
}

/// Creates a log, publishes it and opens it.
fn create<S: Scheme, D: Domain>(pool: &Arc<Pool<D>>, options: RingOptions) -> RingLog<D, S> {
    let root = pool.fence(RingLog::<D, S>::create(pool, options).unwrap());
    let _: Committed = pool.publish_root(ROOT, 0, root).unwrap().persist();
    open(pool).unwrap()
}

fn open<S: Scheme, D: Domain>(pool: &Arc<Pool<D>>) -> Result<RingLog<D, S>, LogError> {
    let root = pool.root::<RingRoot>(ROOT).expect("the log has been published");
    RingLog::open(Arc::clone(pool), root)
}

fn contents<S: Scheme, D: Domain>(log: &RingLog<D, S>) -> Vec<(Position, Vec<u8>)> {
    log.iter().map(Result::unwrap).collect()
}

/// What the memory of a pool holds.
fn memory<D: Domain>(pool: &Pool<D>) -> Vec<u8> {
    // SAFETY: mapped, and nobody writes meanwhile.
    unsafe { std::slice::from_raw_parts(pool.region().base(), POOL_BYTES).to_vec() }
}

/// A pool over memory that holds `image`.
fn restart(image: &[u8], config: Config) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
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

/// A module of tests for each kind of log in a ring, which call the functions of those names with the
/// kind.
macro_rules! for_each_kind {
    ($($test:ident)*) => {
        macro_rules! of_a_log {
            ($module:ident $log:ident []) => {};
            ($module:ident $log:ident [$kind:ident]) => {
                mod $module {
                    $(#[test] fn $test() { super::$test::<lapis_blocks::$module::$kind>(); })*
                }
            };
        }
        lapis_blocks::for_each_log!(of_a_log);
    };
}
use for_each_kind;
