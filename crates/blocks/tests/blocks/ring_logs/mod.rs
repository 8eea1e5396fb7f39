//! The logs in a ring from outside: counted, damaged, torn, shared by threads.

mod counts;
mod damage;
mod errors;
mod recovery;
mod shared;
mod threads;

use std::sync::Arc;

use lapis_blocks::log::{Layout, Log as _, LogError, Placement};
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_device::{Config, Modelled};
use lapis_pmem::{Domain, Pool};

use crate::{Entries, Numbers, ROOT, contents, memory, restart};

const POOL_BYTES: usize = 640 << 10;

fn options(placement: Placement) -> Layout {
    Layout { bytes: 4096, placement, size_fields: 8 }
}

fn modelled(config: Config) -> Arc<Pool<Modelled>> {
    crate::modelled(POOL_BYTES, config)
}

/// Creates a log, publishes it and opens it.
fn create<K: RingKind, D: Domain>(pool: &Arc<Pool<D>>, options: Layout) -> RingLog<D, K> {
    RingLog::create_named(pool, ROOT, options).unwrap()
}

fn open<K: RingKind, D: Domain>(pool: &Arc<Pool<D>>) -> Result<RingLog<D, K>, LogError> {
    crate::open(pool)
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
