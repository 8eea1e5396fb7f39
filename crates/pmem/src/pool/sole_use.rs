//! Blocks that one of those who have a pool open uses alone: structures whose locks are in their handle.

use std::fmt;
use std::sync::Arc;

use super::Pool;
use crate::domain::Domain;

/// The right to use what hangs at a block alone in an opening of the pool: no other is given out until it is dropped, or
/// the block is retired with all that hangs there. Nothing of it is in the pool. See [`Pool::sole_use`].
pub struct SoleUse<D: Domain> {
    pool: Arc<Pool<D>>,
    number: u64,
}

/// Those of a pool.
#[derive(Default)]
pub(super) struct SoleUses {
    given_out: u64,
    /// Where the block is, and the number by which its user lets go of it: another block may be there by then.
    current: Vec<(u64, u64)>,
}

impl SoleUses {
    /// What hung at the block is gone.
    pub(super) fn end(&mut self, retired: u64) {
        self.current.retain(|&(offset, _)| offset != retired);
    }
}

impl<D: Domain> SoleUse<D> {
    pub(super) fn of(pool: &Arc<Pool<D>>, block: u64) -> Option<Self> {
        let mut in_use = pool.in_use.lock();
        if in_use.current.iter().any(|&(offset, _)| offset == block) {
            return None;
        }
        in_use.given_out += 1;
        let number = in_use.given_out;
        in_use.current.push((block, number));
        Some(Self { pool: Arc::clone(pool), number })
    }
}

impl<D: Domain> Drop for SoleUse<D> {
    fn drop(&mut self) {
        self.pool.in_use.lock().current.retain(|&(_, number)| number != self.number);
    }
}

impl<D: Domain> fmt::Debug for SoleUse<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoleUse({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Link, PCell};
    use crate::commit::Committed;
    use crate::hardware::Hardware;

    fn pool() -> Arc<Pool<Hardware>> {
        Arc::new(Pool::create_anonymous(1 << 20).unwrap())
    }

    #[test]
    fn what_is_used_alone_and_retired_may_be_used_again_by_another() {
        let pool = pool();
        let block = pool.allocate::<PCell<u64>>().unwrap().flush();
        let link = pool.fence(block).release();
        let first = pool.sole_use(link).unwrap();
        let reachable = pool.reachable(|visitor| _ = visitor.visit(link, 8));
        pool.retire_reachable(&reachable, Committed::nothing_to_do(), &pool.pin());
        let second = pool.sole_use(link).unwrap();
        drop(first);
        assert!(pool.sole_use(link).is_none());
        drop(second);
        assert!(pool.sole_use(link).is_some());
    }

    #[test]
    fn a_block_is_used_alone_until_that_use_ends() {
        let pool = pool();
        let [one, other] = [64, 128].map(Link::<PCell<u64>>::from_bits);
        let first = pool.sole_use(one).unwrap();
        assert!(pool.sole_use(one).is_none());
        assert!(pool.sole_use(other).is_some());
        drop(first);
        assert!(pool.sole_use(one).is_some());
    }
}
