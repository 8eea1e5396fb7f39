//! Pieces of persistent memory that are kept for indexes (X5 of [`crate::index_table`]).
//!
//! Some indexes grow into one block of many chunks, and chunks that are free here and there make none. So a block is kept
//! for such an index before a put is in the log, and whoever finds no room when it applies what is there has all of them
//! given back.
//!
//! Nothing refers to such a block durably: after a crash it is found with all that nobody reaches.

use lapis_pmem::host_lock::{self, HostGuard};
use lapis_pmem::{BlockVisitor, Committed, Domain, Link, PCell, Pool};
use parking_lot::{Mutex, MutexGuard};

use crate::error::EngineError;

/// The pieces that are kept. One lock for all: who gives them back has nobody else keep one meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Mutex<Vec<Piece>>);

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The root of the index it is kept for.
    root: u64,
    block: Link<PCell<u64>>,
    bytes: usize,
}

impl Piece {
    fn allocate<D: Domain>(pool: &Pool<D>, root: u64, bytes: usize) -> Result<Self, EngineError> {
        let block = pool.allocate_with_tail::<PCell<u64>>(bytes - size_of::<PCell<u64>>())?;
        let piece = Self { root, block: block.link(), bytes };
        // Nothing is written to it. Who gives it back is `free`.
        std::mem::forget(block);
        Ok(piece)
    }

    fn free<D: Domain>(self, pool: &Pool<D>) {
        // Nothing has ever referred to it.
        pool.free_unshared(self.block, self.bytes, Committed::nothing_to_do());
    }
}

impl Pieces {
    fn kept<'p, D: Domain>(
        &'p self,
        pool: &'p Pool<D>,
    ) -> HostGuard<'p, D, MutexGuard<'p, Vec<Piece>>> {
        host_lock::lock(pool.domain(), &self.0)
    }

    /// Whether a piece of so many bytes is kept for an index.
    pub(crate) fn has<D: Domain>(&self, pool: &Pool<D>, root: u64, bytes: usize) -> bool {
        self.kept(pool).iter().any(|piece| piece.root == root && piece.bytes >= bytes)
    }

    /// Keeps a piece of so many bytes for an index, unless `is_gone` says that there is nothing to keep one for. `is_alone`
    /// says that nobody else's puts may be in the log and not yet applied, so that nobody needs the smaller one that it may
    /// have. Both are asked when nobody else can keep one or give any back.
    pub(crate) fn keep<D: Domain>(
        &self,
        pool: &Pool<D>,
        root: u64,
        bytes: usize,
        is_alone: impl FnOnce() -> bool,
        is_gone: impl FnOnce() -> bool,
    ) -> Result<(), EngineError> {
        let mut kept = self.kept(pool);
        let place = kept.iter().position(|piece| piece.root == root);
        if is_gone() || place.is_some_and(|place| kept[place].bytes >= bytes) {
            return Ok(());
        }
        match place {
            // First, so that the new one may lie where it was.
            Some(place) if is_alone() => kept.swap_remove(place).free(pool),
            Some(place) => {
                let piece = Piece::allocate(pool, root, bytes)?;
                std::mem::replace(&mut kept[place], piece).free(pool);
                return Ok(());
            }
            None => {}
        }
        kept.push(Piece::allocate(pool, root, bytes)?);
        Ok(())
    }

    /// Does what found no room with all pieces given back. Nobody keeps one until it is done.
    pub(crate) fn without<D: Domain, R>(&self, pool: &Pool<D>, work: impl FnOnce() -> R) -> R {
        let mut kept = self.kept(pool);
        kept.drain(..).for_each(|piece| piece.free(pool));
        work()
    }

    /// Gives back what is kept for an index, and calls `gone` before anybody can keep another.
    pub(crate) fn let_go<D: Domain>(&self, pool: &Pool<D>, root: u64, gone: impl FnOnce()) {
        let mut kept = self.kept(pool);
        kept.extract_if(.., |piece| piece.root == root).for_each(|piece| piece.free(pool));
        gone();
    }

    /// Tells of what is kept for an index.
    pub(crate) fn visit<D: Domain>(&self, root: u64, visitor: &mut BlockVisitor<'_, D>) {
        let kept: Vec<_> = self.kept(visitor.pool()).iter().copied().collect();
        for piece in kept.into_iter().filter(|piece| piece.root == root) {
            visitor.visit(piece.block, piece.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::{EXTENT_BYTES, FlushMethod, Hardware, Region};

    use super::*;

    const BYTES: usize = 8 * EXTENT_BYTES;

    /// One that does not grow, and of which most has been used.
    fn pool() -> Pool<Hardware> {
        let region = Region::anonymous(8 << 20, 8 << 20).unwrap();
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        let pool = Pool::create(region, domain).unwrap();
        drop(pool.allocate_with_tail::<PCell<u64>>(7 << 20).unwrap());
        pool
    }

    fn used_bytes(pool: &Pool<Hardware>) -> u64 {
        pool.usage().allocated_bytes
    }

    #[test]
    fn a_piece_is_kept_once_and_given_back_with_its_index() {
        let (pool, pieces) = (pool(), Pieces::default());
        let before = used_bytes(&pool);
        pieces.keep(&pool, 1, BYTES, || false, || false).unwrap();
        pieces.keep(&pool, 1, BYTES, || false, || false).unwrap();
        assert_eq!(used_bytes(&pool), before + BYTES as u64);
        assert!(pieces.has(&pool, 1, BYTES) && !pieces.has(&pool, 2, BYTES));
        pieces.let_go(&pool, 1, || ());
        assert_eq!(used_bytes(&pool), before);
    }

    #[test]
    fn nothing_is_kept_for_an_index_that_is_gone() {
        let (pool, pieces) = (pool(), Pieces::default());
        let before = used_bytes(&pool);
        pieces.keep(&pool, 1, BYTES, || true, || true).unwrap();
        assert!(!pieces.has(&pool, 1, BYTES));
        assert_eq!(used_bytes(&pool), before);
    }

    #[test]
    fn who_is_not_alone_keeps_the_smaller_piece_until_there_is_a_larger_one() {
        let (pool, pieces) = (pool(), Pieces::default());
        pieces.keep(&pool, 1, BYTES, || false, || false).unwrap();
        assert!(pieces.keep(&pool, 1, 8 << 20, || false, || false).is_err());
        assert!(pieces.has(&pool, 1, BYTES));
        pieces.keep(&pool, 1, 2 * BYTES, || false, || false).unwrap();
        assert!(pieces.has(&pool, 1, 2 * BYTES));
    }

    #[test]
    fn who_is_alone_may_have_the_larger_piece_where_the_smaller_was() {
        let (pool, pieces) = (pool(), Pieces::default());
        pieces.keep(&pool, 1, 3 << 20, || true, || false).unwrap();
        pieces.keep(&pool, 1, 5 << 20, || true, || false).unwrap();
        assert!(pieces.has(&pool, 1, 5 << 20));
    }

    #[test]
    fn who_finds_no_room_is_given_all_that_is_kept() {
        let (pool, pieces) = (pool(), Pieces::default());
        pieces.keep(&pool, 1, 3 << 20, || false, || false).unwrap();
        let allocate = || pool.allocate_with_tail::<PCell<u64>>(5 << 20).map(drop);
        assert!(allocate().is_err());
        pieces.without(&pool, allocate).unwrap();
        assert!(!pieces.has(&pool, 1, 1));
    }
}
