//! Growing: a larger table is built beside the current one and takes its place by one store.

use std::sync::atomic::Ordering;

use lapis_pmem::{AllocError, Domain, Durable, InFlight, Link, Owned, Pool};

use super::PClht;
use super::mutants;
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket, BucketImage, SLOTS};
use crate::hash_table::counter::Counter;
use crate::hash_table::locks::{Frozen, HeldLock, PUBLISHING, WHOLE_PAYLOAD};
use crate::hash_table::table::Table;
use crate::hash_table::writer::{self, TableWriter};
use crate::index::{IndexError, RoomNeeded};
use crate::key::IndexKey;

/// Tables have at most two to the power of this many buckets (32 GiB).
const MAX_LOG2: u32 = 29;
/// 64 buckets, 4 KiB.
const DEFAULT_LOG2: u32 = 6;
/// 1024 buckets, 64 KiB: one chunk. The sizes between share slabs of eight chunks each and are
/// left out, so that a small pool is not filled with slabs of tables it has outgrown.
const CHUNK_LOG2: u32 = 10;
/// A table grows when it has more than one overflow bucket for so many units.
const UNITS_PER_OVERFLOW: u64 = 8;
/// Entries per bucket at which about that many buckets overflow.
const ENTRIES_PER_BUCKET: f64 = 1.75;
/// Buckets looked at when the index is opened.
const SAMPLE: u64 = 64;

/// The size of a new table that is to take `expected_entries` without growing.
pub(super) fn initial_log2(expected_entries: usize) -> Result<u32, IndexError> {
    if expected_entries == 0 {
        return Ok(DEFAULT_LOG2);
    }
    let buckets = (expected_entries as f64 / ENTRIES_PER_BUCKET).ceil() as u64;
    let exponent = buckets.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
    let log2 = rounded(exponent.max(2));
    if log2 > MAX_LOG2 {
        return Err(IndexError::BadOption {
            what: format!("a P-CLHT cannot be made for {expected_entries} entries"),
        });
    }
    Ok(log2)
}

fn rounded(log2: u32) -> u32 {
    if log2 > DEFAULT_LOG2 { log2.max(CHUNK_LOG2) } else { log2 }
}

/// The size to grow to: four times as many buckets. Doubling would copy each entry three times as
/// often and touch half as much memory again on the way to the same size.
fn grown(log2: u32) -> u32 {
    rounded(log2 + 2)
}

/// A table of empty buckets, the first one another's successors in units of so many.
pub(super) fn empty<D: Domain>(
    pool: &Pool<D>,
    log2: u32,
    unit_buckets: u64,
) -> Result<Owned<'_, D, Bucket, InFlight>, AllocError> {
    if unit_buckets == 1 {
        return writer::empty(pool, log2, 0);
    }
    let mut building = Building::new(pool, log2, unit_buckets)?;
    for _ in 0..(1 << log2) / unit_buckets {
        building.push(&[])?;
    }
    Ok(building.table.into_written())
}

/// A table on its way, and its overflow buckets.
struct Building<'p, D: Domain> {
    table: TableWriter<'p, D>,
    overflow: Vec<Owned<'p, D, Bucket, InFlight>>,
    unit_buckets: u64,
}

/// Why no larger table was built: the old one stays.
enum Refused {
    NoRoom,
    Damaged,
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Self::NoRoom
    }
}

impl<'p, D: Domain> Building<'p, D> {
    fn new(pool: &'p Pool<D>, log2: u32, unit_buckets: u64) -> Result<Self, AllocError> {
        let table = TableWriter::new(pool, log2, 0, mutants::UNFLUSHED_NEW_TABLE)?;
        Ok(Self { table, overflow: Vec::new(), unit_buckets })
    }

    /// Appends a chain with the given entries.
    fn push(&mut self, entries: &[(u64, u64)]) -> Result<(), AllocError> {
        let in_table = entries.len().min(SLOTS * self.unit_buckets as usize);
        let (mut first, rest) = entries.split_at(in_table);
        let mut overflow = Link::NULL;
        for chunk in rest.chunks(SLOTS) {
            let pool = self.table.pool();
            let bucket = pool.allocate::<Bucket>()?;
            bucket.write(pool.domain(), &BucketImage::of(chunk, overflow));
            overflow = bucket.link();
            self.overflow.push(bucket.flush());
        }
        for after in (0..self.unit_buckets).rev() {
            let own;
            (own, first) = first.split_at(first.len().min(SLOTS));
            let next = if after > 0 { self.table.after_next() } else { overflow };
            self.table.push(&BucketImage::of(own, next));
        }
        Ok(())
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PClht<D, K> {
    /// Counts overflow buckets, for all handles together: a growth that one of them decides on rests on
    /// what the others have added and removed. A hint.
    fn overflow(&self) -> Counter<'_, D> {
        Counter::new(&self.root().words[1], self.domain(), self.pool.generation())
    }

    /// Makes the count true for this generation, if no other handle has.
    pub(super) fn begin_counting(&self) {
        self.overflow().begin(|| self.estimate_overflow(self.table()));
    }

    /// About how many overflow buckets a table has, from a few of its chains.
    fn estimate_overflow(&self, table: Table<Bucket>) -> u64 {
        let (pool, chains) = (&self.pool, table.len() / self.unit_buckets());
        let sampled = chains.min(SAMPLE);
        let mut found = 0;
        for index in self.chains(table).take(sampled as usize) {
            let mut next = pool.try_at(table.at(index)).map(|head| head.next.load(pool.domain()));
            for _ in 0..SAMPLE {
                let Some((link, bucket)) = next.and_then(|link| Some((link, pool.try_at(link)?)))
                else {
                    break;
                };
                found += u64::from(!self.is_in_unit(link));
                next = Some(bucket.next.load(pool.domain()));
            }
        }
        found * (chains / sampled.max(1))
    }

    /// Overflow buckets, as far as is known.
    pub(super) fn overflow_buckets(&self) -> u64 {
        self.overflow().get()
    }

    /// Counts an overflow bucket that comes or goes, under the lock of its chain and before
    /// anything of the change is flushed: a locked instruction completes flushes (rule R5), and no
    /// order may rest on that.
    pub(super) fn count_overflow(&self, comes: bool) {
        self.overflow().count(comes);
    }

    fn is_growth_due(&self, table: Table<Bucket>, overflow_buckets: u64) -> bool {
        overflow_buckets > table.len() / self.unit_buckets() / UNITS_PER_OVERFLOW
            && overflow_buckets >= self.not_before.load(Ordering::Relaxed)
            && grown(table.log2()) <= MAX_LOG2
    }

    /// Grows the table if it has too many overflow buckets. The change that led here is durable
    /// already; that growing fails, for want of room, does not concern it.
    #[cold]
    pub(super) fn note_overflow(&self) {
        let (domain, table, growing) = (self.domain(), self.table(), self.growing());
        if !self.is_growth_due(table, self.overflow_buckets()) {
            return;
        }
        // Whoever has the lock grows it for all.
        let held = HeldLock::try_take_cleared(growing, domain, self.generation, WHOLE_PAYLOAD);
        let Some(held) = held else { return };
        if self.table() == table && self.grow(table).is_err() {
            self.grow_later();
        }
        held.leave_unchanged();
    }

    /// After a growth for which there was no room.
    pub(super) fn grow_later(&self) {
        let overflow_buckets = self.overflow_buckets();
        let not_before = overflow_buckets + overflow_buckets / 4 + 1;
        self.not_before.store(not_before, Ordering::Relaxed);
    }

    /// What so many changes take, and growing if it may come to that: what they have been promised must not go into a
    /// larger table. It has few overflow buckets, and each such is one of the small nodes.
    pub(super) fn room_to_grow(&self, changes: usize) -> RoomNeeded {
        let table = self.table();
        let small = RoomNeeded::for_small_nodes(changes);
        if !self.is_growth_due(table, self.overflow_buckets().saturating_add(changes as u64)) {
            return small;
        }
        let bytes = BUCKET_BYTES << grown(table.log2());
        // One bucket in sixteen overflows, if that many do.
        RoomNeeded { bytes: small.bytes.saturating_add(bytes + bytes / 16), ..small }
    }

    fn grow(&self, old: Table<Bucket>) -> Result<(), Refused> {
        let log2 = grown(old.log2());
        let mut building = Building::new(&self.pool, log2, self.unit_buckets())?;
        let mut frozen = Frozen::none_of(&self.pool, self.generation, old, self.unit_buckets());
        let outgrown = self.divide(old, log2, &mut building, &mut frozen)?;
        // I1: one fence for the whole table.
        let written = (building.table.into_written(), building.overflow);
        let new = {
            let _mutant = self.domain().omitting(mutants::SWAP_BEFORE_FLUSH);
            self.pool.fence(written)
        };
        self.domain().happens("a larger table");
        if !outgrown.is_empty() {
            self.domain().happens("a larger table in place of chains");
        }
        if !new.1.is_empty() {
            self.domain().happens("a larger table with chains");
        }
        self.overflow().set(new.1.len() as u64);
        // I1: whoever sees the new table from here on sees this too, and puts nothing into it.
        if !self.domain().commits(mutants::GROWTH_NOT_ANNOUNCED) {
            self.growing().set_payload(self.domain(), PUBLISHING);
        }
        let top = self.root().top.word();
        let flushed = {
            let _mutant = self.domain().omitting(mutants::DOUBLE_FREE);
            let word = |(table, _): &(Owned<'_, D, Bucket, Durable>, _)| {
                Table::new(table.link(), log2).bits()
            };
            top.publish_word(self.domain(), new, word).flush()
        };
        // I1: before anybody may change the new table or reuse the old one. This thread locks with a
        // locked instruction before it does either, which would do for itself (rule R5).
        let committed = flushed.fence_for_other_threads(self.domain());
        self.growing().set_payload(self.domain(), 0);
        frozen.leave();
        let guard = self.pool.pin();
        self.pool.retire(old.link(), old.bytes(), committed, &guard);
        for link in outgrown {
            self.pool.retire(link, BUCKET_BYTES, committed, &guard);
        }
        Ok(())
    }

    /// Freezes chain after chain of `old` and writes its entries into the chains of the new table that it divides
    /// into. Returns the overflow buckets of the old table.
    fn divide(
        &self,
        old: Table<Bucket>,
        log2: u32,
        building: &mut Building<'_, D>,
        frozen: &mut Frozen<'_, D>,
    ) -> Result<Vec<Link<Bucket>>, Refused> {
        let new = Table::<Bucket>::new(Link::NULL, log2);
        let part_buckets = 1u64 << (log2 - old.log2());
        let mut outgrown = Vec::new();
        let mut entries: Vec<(u64, (u64, u64))> = Vec::new();
        let mut part = Vec::new();
        for index in self.chains(old) {
            entries.clear();
            let mut bucket = frozen.freeze_next().ok_or(Refused::Damaged)?;
            for hops in 0.. {
                for entry in bucket.occupied(self.domain()) {
                    let chain = K::with_word(&self.pool, entry.0, |key| {
                        self.chain_of(new, self.hash_of(key))
                    });
                    entries.push((chain.ok_or(Refused::Damaged)?, entry));
                }
                let next = bucket.next.load(self.domain());
                if next.is_null() {
                    break;
                }
                bucket = self.pool.try_at(next).ok_or(Refused::Damaged)?;
                if !self.is_in_unit(next) {
                    outgrown.push(next);
                }
                if hops > self.hop_limit() {
                    return Err(Refused::Damaged);
                }
            }
            let first = index * part_buckets;
            let buckets = part_buckets * self.unit_buckets();
            if entries.iter().any(|(chain, _)| chain.wrapping_sub(first) >= buckets) {
                return Err(Refused::Damaged);
            }
            for chain in (first..first + buckets).step_by(self.unit_buckets() as usize) {
                part.clear();
                part.extend(entries.iter().filter(|(of, _)| *of == chain).map(|(_, entry)| *entry));
                building.push(&part)?;
            }
        }
        Ok(outgrown)
    }
}
