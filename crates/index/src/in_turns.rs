//! Look-ups of many keys on one thread, in turns: each has what it reads next on its way to the caches before another's
//! goes on.
//!
//! After section 3.5 of van Renen, Vogel, Leis, Neumann, Kemper, *Building blocks for persistent memory*, The VLDB Journal
//! 29 (2020). A structure that can do so has an `async fn lookup_in_turns(&self, key, turn)`, which gives way where
//! the look-up of a single key would wait for memory.

use lapis_blocks::interleave::{Interleaver, Turn};
use lapis_pmem::{Domain, Pool};

use crate::index::LOOK_UPS_AT_ONCE;
use crate::key::IndexKey;

/// [`Index::get_many`](crate::Index::get_many) of a structure whose look-ups give way.
pub fn get_many<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    keys: &[&K],
    look_up: impl AsyncFn(&K, Turn<'_, D>) -> Option<u64>,
    answer: &mut dyn FnMut(usize, Option<u64>),
) {
    let _pinned = pool.pin();
    let look_up = &look_up;
    Interleaver::new(pool.domain(), LOOK_UPS_AT_ONCE).run(
        keys.iter().enumerate(),
        |turn, (place, &key)| async move { (place, look_up(key, turn).await) },
        |(place, value)| answer(place, value),
    );
}

/// [`Index::get_many`](crate::Index::get_many) by `lookup_in_turns`. It does not serve inserts, which would go
/// down twice (docs/interleaving.md has what that gains and loses).
macro_rules! look_up_in_turns {
    ($domain:ident, $key:ident, $($pool:ident).+) => {
        fn get_many(&self, keys: &[&$key], answer: &mut dyn FnMut(usize, Option<u64>)) {
            let look_up = async |key: &$key, turn: lapis_blocks::interleave::Turn<'_, $domain>| {
                self.lookup_in_turns(key, turn).await
            };
            $crate::in_turns::get_many(&self.$($pool).+, keys, look_up, answer);
        }
    };
}
pub(crate) use look_up_in_turns;
