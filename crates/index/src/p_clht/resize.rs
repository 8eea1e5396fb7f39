//! Growing: a larger table is built beside the current one and takes its place by one store.

use std::sync::atomic::Ordering;

use lapis_pmem::{Domain, Durable, InFlight, Link, Owned, Pool};

use super::PClht;
use super::mutants;
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket, BucketImage, SLOTS};
use crate::hash_table::counter::Counter;
use crate::hash_table::locks::{Frozen, HeldLock, PUBLISHING};
use crate::hash_table::table::Table;
use crate::hash_table::writer::TableWriter;
use crate::index::IndexError;
use crate::key::{IndexKey, place_hash};

/// Tables have at most two to the power of this many buckets (32 GiB).
const MAX_LOG2: u32 = 29;
/// 64 buckets, 4 KiB.
const DEFAULT_LOG2: u32 = 6;
/// 1024 buckets, 64 KiB: one chunk. The sizes between share slabs of eight chunks each and are
/// left out, so that a small pool is not filled with slabs of tables it has outgrown.
const CHUNK_LOG2: u32 = 10;
/// A table grows when it has more than one overflow bucket for so many buckets.
const BUCKETS_PER_OVERFLOW: u64 = 8;
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

/// About how many overflow buckets a table has, from a few of its chains.
fn estimate_overflow<D: Domain>(pool: &Pool<D>, table: Table<Bucket>) -> u64 {
    let sampled = table.len().min(SAMPLE);
    let mut found = 0;
    for index in 0..sampled {
        let mut next = pool.try_at(table.at(index)).map(|head| head.next.load(pool.domain()));
        for _ in 0..SAMPLE {
            let Some(bucket) = next.and_then(|link| pool.try_at(link)) else { break };
            found += 1;
            next = Some(bucket.next.load(pool.domain()));
        }
    }
    found * (table.len() / sampled.max(1))
}

/// A table on its way, and its overflow buckets.
struct Building<'p, D: Domain> {
    table: TableWriter<'p, D>,
    overflow: Vec<Owned<'p, D, Bucket, InFlight>>,
}

/// Why no larger table was built: the old one stays.
enum Refused {
    NoRoom,
    Damaged,
}

impl<'p, D: Domain> Building<'p, D> {
    /// Appends a chain with the given entries.
    fn push(&mut self, entries: &[(u64, u64)]) -> Result<(), Refused> {
        let (first, rest) = entries.split_at(entries.len().min(SLOTS));
        let mut next = Link::NULL;
        for chunk in rest.chunks(SLOTS) {
            let pool = self.table.pool();
            let bucket = pool.allocate::<Bucket>().map_err(|_| Refused::NoRoom)?;
            bucket.write(pool.domain(), &BucketImage::of(chunk, next));
            next = bucket.link();
            self.overflow.push(bucket.flush());
        }
        self.table.push(&BucketImage::of(first, next));
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
        self.overflow().begin(|| estimate_overflow(&self.pool, self.table()));
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

    fn is_growth_due(&self, table: Table<Bucket>) -> bool {
        let overflow_buckets = self.overflow_buckets();
        overflow_buckets > table.len() / BUCKETS_PER_OVERFLOW
            && overflow_buckets >= self.not_before.load(Ordering::Relaxed)
            && grown(table.log2()) <= MAX_LOG2
    }

    /// Grows the table if it has too many overflow buckets. The change that led here is durable
    /// already; that growing fails, for want of room, does not concern it.
    #[cold]
    pub(super) fn note_overflow(&self) {
        let (domain, table, growing) = (self.domain(), self.table(), self.growing());
        if !self.is_growth_due(table) {
            return;
        }
        // Whoever has the lock grows it for all.
        let Some(held) = HeldLock::try_take(growing, domain, self.generation) else { return };
        if held.before.payload() != 0 {
            // Left behind by a growth that was cut short.
            growing.set_payload(domain, 0);
        }
        if self.table() == table && self.grow(table).is_err() {
            let overflow_buckets = self.overflow_buckets();
            let not_before = overflow_buckets + overflow_buckets / 4 + 1;
            self.not_before.store(not_before, Ordering::Relaxed);
        }
        held.leave_unchanged();
    }

    fn grow(&self, old: Table<Bucket>) -> Result<(), Refused> {
        let log2 = grown(old.log2());
        let table = TableWriter::new(&self.pool, log2, mutants::UNFLUSHED_NEW_TABLE);
        let table = table.map_err(|_| Refused::NoRoom)?;
        let mut building = Building { table, overflow: Vec::new() };
        let mut frozen = Frozen::none_of(&self.pool, self.generation, old, 1);
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
        self.growing().set_payload(self.domain(), PUBLISHING);
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
        let parts = 1u64 << (log2 - old.log2());
        let mut outgrown = Vec::new();
        let mut entries: Vec<(u64, (u64, u64))> = Vec::new();
        let mut part = Vec::new();
        for index in 0..old.len() {
            entries.clear();
            let mut bucket = frozen.freeze_next().ok_or(Refused::Damaged)?;
            loop {
                for entry in bucket.occupied(self.domain()) {
                    let chain =
                        K::with_word(&self.pool, entry.0, |key| new.index_of(place_hash(key)));
                    entries.push((chain.ok_or(Refused::Damaged)?, entry));
                }
                let next = bucket.next.load(self.domain());
                if next.is_null() {
                    break;
                }
                bucket = self.pool.try_at(next).ok_or(Refused::Damaged)?;
                outgrown.push(next);
                if outgrown.len() > self.hop_limit() {
                    return Err(Refused::Damaged);
                }
            }
            let first = index * parts;
            if entries.iter().any(|(chain, _)| chain.wrapping_sub(first) >= parts) {
                return Err(Refused::Damaged);
            }
            for chain in first..first + parts {
                part.clear();
                part.extend(entries.iter().filter(|(of, _)| *of == chain).map(|(_, entry)| *entry));
                building.push(&part)?;
            }
        }
        Ok(outgrown)
    }
}
