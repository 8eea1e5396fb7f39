//! A hash map of a fixed size: an index of one's own, whose tests check it for power cuts and put it beside those of
//! Lapis.
//!
//! ```text
//!  header                      lines of 64 bytes, four slots in each
//!  +-------+-------+--------+     +-------------+-------------+-----+
//!  | lines | count | unused |     | slot | slot | slot | slot | …   |     slot: key + 1 | value + 1
//!  +---|---+-------+--------+     +-------------+-------------+-----+
//!      +------------------------->
//! ```
//!
//! A key is in the first slot from the line of its hash on that has it. A slot without a key ends the search; one without a
//! value keeps its key, since others may lie behind it. One thread at a time reads or writes.
//!
//! * I1. A slot's key is stored before its value. Both lie in one line, whose stores persist in their order: a value
//!   that a power cut leaves has its key. Without it, the next key to take the slot would be there already.
//! * I2. A change is one store of a value, and durable before the next one is made or anything read.

use std::sync::{Arc, Mutex, PoisonError};

use lapis_index::{Change, IndexError};
use lapis_pmem::{BlockVisitor, Domain, Link, PCell, Pool, Slot, persistent};

const ROOT: &str = "flat map";
/// Slots in a line.
const SLOTS: usize = 4;

persistent! {
    /// What says where the slots are.
    pub struct MapHeader: 64 {
        lines: Slot<MapLine>,
        count: PCell<u64>,
        unused: [PCell<u64>; 6],
    }
}

persistent! {
    /// A line of slots: for entries, or with room for them.
    pub struct MapLine: 64 {
        slots: [MapSlot; SLOTS],
    }
}

persistent! {
    /// A slot.
    pub struct MapSlot: 16 {
        key: PCell<u64>,
        value: PCell<u64>,
    }
}

/// An open map.
#[derive(Debug)]
pub struct FlatMap<D: Domain> {
    pool: Arc<Pool<D>>,
    header: Link<MapHeader>,
    turn: Mutex<()>,
}

impl<D: Domain> FlatMap<D> {
    /// Makes an empty map with room for so many keys, at least, in a pool that has none. Durable on return.
    ///
    /// # Errors
    /// [`IndexError::Alloc`], [`IndexError::Root`].
    pub fn create(pool: Arc<Pool<D>>, capacity: usize) -> Result<Self, IndexError> {
        let count = capacity.div_ceil(SLOTS).max(1);
        let mut lines = pool.allocate_with_tail::<MapLine>((count - 1) * size_of::<MapLine>())?;
        let mut block = pool.allocate::<MapHeader>()?;
        lines.zero();
        block.zero();
        block.count.store(pool.domain(), count as u64);
        block.link_child(|header| &header.lines, lines.flush());
        let block = pool.fence(block.flush());
        let header = block.link();
        let _committed = pool.publish_root(ROOT, 0, block)?.persist();
        Ok(Self { pool, header, turn: Mutex::default() })
    }

    /// Opens the map of a pool, if it has one. There is nothing to repair.
    pub fn open(pool: Arc<Pool<D>>) -> Option<Self> {
        let header = pool.root(ROOT)?;
        let map = Self { pool, header, turn: Mutex::default() };
        (!map.lines()?.is_empty()).then_some(map)
    }

    fn lines(&self) -> Option<&[MapLine]> {
        let (header, domain) = (self.pool.try_at(self.header)?, self.pool.domain());
        self.pool.try_slice(header.lines.load(domain), header.count.load(domain) as usize)
    }

    /// The slot of a key, or the one that it may have; none if all others are taken.
    fn find(&self, key: u64) -> Option<&MapSlot> {
        let (lines, domain) = (self.lines()?, self.pool.domain());
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
        let (before, from) = lines.split_at(hash as usize % lines.len());
        let mut slots = from.iter().chain(before).flat_map(|line| &line.slots);
        slots.find(|slot| [0, key + 1].contains(&slot.key.load(domain)))
    }

    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if key == u64::MAX {
            return None;
        }
        self.find(key)?.value.load(self.pool.domain()).checked_sub(1)
    }

    /// Makes a change, and tells the value that the key had before. One flush, one fence.
    ///
    /// # Errors
    /// [`IndexError::BadOption`] of a key or value that is `u64::MAX`, and if all slots are taken.
    pub fn change(&self, key: u64, change: Change) -> Result<Option<u64>, IndexError> {
        let refused = |what: &str| Err(IndexError::BadOption { what: what.to_owned() });
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let domain = self.pool.domain();
        if key == u64::MAX {
            return refused("a flat map has no room for the key u64::MAX");
        }
        let Some(slot) = self.find(key) else { return refused("the flat map is full") };
        let previous = slot.value.load(domain).checked_sub(1);
        let value = match (change, previous) {
            (Change::Insert(_), Some(_)) | (Change::Update(_) | Change::Remove, None) => {
                return Ok(previous);
            }
            (Change::Insert(u64::MAX) | Change::Update(u64::MAX) | Change::Put(u64::MAX), _) => {
                return refused("a flat map has no room for the value u64::MAX");
            }
            (Change::Insert(value) | Change::Update(value) | Change::Put(value), _) => value + 1,
            (Change::Remove, Some(_)) => 0,
        };
        // I1
        slot.key.store(domain, key + 1);
        // I2
        let _committed = slot.value.publish(domain, value).persist();
        Ok(previous)
    }

    /// All entries, in no order.
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let domain = self.pool.domain();
        let entry = |slot: &MapSlot| {
            Some((slot.key.load(domain).checked_sub(1)?, slot.value.load(domain).checked_sub(1)?))
        };
        let lines = self.lines().unwrap_or_default();
        lines.iter().flat_map(|line| &line.slots).filter_map(entry).collect()
    }

    /// Bytes of its lines.
    pub fn bytes(&self) -> usize {
        self.lines().map_or(0, size_of_val)
    }

    /// Tells which blocks are the map's, so that the pool can tell the others to be free.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        visitor.visit(self.header, size_of::<MapHeader>());
        visitor.visit(self.pool.at(self.header).lines.load(self.pool.domain()), self.bytes());
    }

    /// The pool that the map lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }
}
