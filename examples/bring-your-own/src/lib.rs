//! Structures of one's own on `lapis-pmem`, as examples: a persistent ring buffer, below, and an index, in
//! [`flat_map`]. The tests have both checked by `lapis-crash`, and put the index beside those of Lapis.
//!
//! ```text
//!  byte 0      8      16        64                     64 + 64 * CAPACITY
//!       +------+------+---------+---------+---------+---+
//!       | head | tail | unused  | entry   | entry   | … |
//!       +------+------+---------+---------+---------+---+
//! ```
//!
//! Entries `head` to `tail - 1` are in the ring; entry `n` lies in slot `n % CAPACITY`. Both numbers
//! only grow. One thread uses a ring at a time.
//!
//! * I1. An entry in the ring is whole: it is durable before the tail that includes it is stored.
//! * I2. A slot is written only when it is outside of the ring, durably: `pop` persists the head
//!   before it returns, and `push` refuses a full ring.

pub mod flat_map;

use std::sync::Arc;

use lapis_pmem::{
    AllocError, BlockVisitor, Committed, Domain, Link, PCell, Pool, RootError, persistent,
};

/// Entries that a ring has room for.
pub const CAPACITY: usize = 8;
/// Words in an entry.
pub const ENTRY_WORDS: usize = 8;

const ROOT: &str = "ring";

/// What is put into a ring.
pub type Entry = [u64; ENTRY_WORDS];

persistent! {
    /// A ring as it lies in the pool.
    pub struct RingBlock: 576 {
        head: PCell<u64>,
        tail: PCell<u64>,
        unused: [PCell<u64>; 6],
        slots: [[PCell<u64>; ENTRY_WORDS]; CAPACITY],
    }
}

/// Why a ring could not be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// There is no room for the ring in the pool.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The pool has a ring already, or no room for its name.
    #[error(transparent)]
    Root(#[from] RootError),
    /// There is no room for the entry in the ring.
    #[error("the ring is full")]
    Full,
}

/// How a ring orders its stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As it must.
    #[default]
    EntryFirst,
    /// With a planted bug, for the checker to find: the entry and the tail share one fence.
    OneFence,
}

/// An open ring.
#[derive(Debug)]
pub struct Ring<D: Domain> {
    pool: Arc<Pool<D>>,
    block: Link<RingBlock>,
    order: Order,
}

impl<D: Domain> Ring<D> {
    /// Makes an empty ring in a pool that has none. Durable on return.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn create(pool: Arc<Pool<D>>, order: Order) -> Result<Self, RingError> {
        let mut block = pool.allocate::<RingBlock>()?;
        block.zero();
        let block = pool.fence(block.flush());
        let link = block.link();
        let _committed = pool.publish_root(ROOT, 0, block)?.persist();
        Ok(Self { pool, block: link, order })
    }

    /// Opens the ring of a pool, if it has one. There is nothing to repair.
    pub fn open(pool: Arc<Pool<D>>, order: Order) -> Option<Self> {
        let block = pool.root(ROOT)?;
        Some(Self { pool, block, order })
    }

    fn block(&self) -> &RingBlock {
        self.pool.at(self.block)
    }

    /// Appends an entry. Two flushes, two fences.
    ///
    /// # Errors
    /// [`RingError::Full`].
    pub fn push(&mut self, entry: &Entry) -> Result<Committed, RingError> {
        let (domain, block) = (self.pool.domain(), self.block());
        let (head, tail) = (block.head.load(domain), block.tail.load(domain));
        if tail - head == CAPACITY as u64 {
            return Err(RingError::Full);
        }
        // I2: outside of the ring.
        let slot = &block.slots[tail as usize % CAPACITY];
        for (cell, word) in slot.iter().zip(entry) {
            cell.store(domain, *word);
        }
        domain.flush(slot);
        if self.order == Order::EntryFirst {
            // I1: the entry before the tail that includes it.
            domain.fence();
        }
        Ok(block.tail.publish(domain, tail + 1).persist())
    }

    /// Takes the oldest entry out, if there is one. One flush, one fence.
    pub fn pop(&mut self) -> Option<(Entry, Committed)> {
        let (domain, block) = (self.pool.domain(), self.block());
        let (head, tail) = (block.head.load(domain), block.tail.load(domain));
        if head == tail {
            return None;
        }
        let entry = self.entry(head);
        // I2: the slot may be written from here on.
        let committed = block.head.publish(domain, head + 1).persist();
        Some((entry, committed))
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let (domain, block) = (self.pool.domain(), self.block());
        let (head, tail) = (block.head.load(domain), block.tail.load(domain));
        // Of a damaged pool, no more than there are slots.
        (head..tail).take(CAPACITY).map(|number| self.entry(number)).collect()
    }

    fn entry(&self, number: u64) -> Entry {
        let slot = &self.block().slots[number as usize % CAPACITY];
        std::array::from_fn(|word| slot[word].load(self.pool.domain()))
    }

    /// What is wrong with the ring, if anything is.
    pub fn check(&self) -> Option<String> {
        let (domain, block) = (self.pool.domain(), self.block());
        let (head, tail) = (block.head.load(domain), block.tail.load(domain));
        let sound = tail.checked_sub(head).is_some_and(|length| length <= CAPACITY as u64);
        (!sound).then(|| format!("the ring reaches from {head} to {tail}"))
    }

    /// Tells which blocks are the ring's, so that the pool can tell the others to be free.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        visitor.visit(self.block, size_of::<RingBlock>());
    }

    /// The pool that the ring lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::{Hardware, MIN_POOL_BYTES};

    use super::*;

    fn ring() -> Ring<Hardware> {
        let pool = Pool::create_anonymous(MIN_POOL_BYTES).unwrap();
        Ring::create(Arc::new(pool), Order::EntryFirst).unwrap()
    }

    #[test]
    fn entries_come_out_in_the_order_in_which_they_went_in() {
        let mut ring = ring();
        for number in 0..20 {
            ring.push(&[number; ENTRY_WORDS]).unwrap();
            ring.push(&[number + 100; ENTRY_WORDS]).unwrap();
            assert_eq!(ring.pop().unwrap().0, [number; ENTRY_WORDS]);
            assert_eq!(ring.pop().unwrap().0, [number + 100; ENTRY_WORDS]);
        }
        assert!(ring.pop().is_none());
    }

    #[test]
    fn a_full_ring_refuses_an_entry() {
        let mut ring = ring();
        for number in 0..CAPACITY as u64 {
            ring.push(&[number; ENTRY_WORDS]).unwrap();
        }
        assert!(matches!(ring.push(&[9; ENTRY_WORDS]), Err(RingError::Full)));
        assert_eq!((ring.entries().len(), ring.check()), (CAPACITY, None));
    }
}
