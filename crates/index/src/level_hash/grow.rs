//! Growing: the top level becomes the bottom level, and what was below moves above it.

use lapis_pmem::{AllocError, Committed, Domain, Durable, Link, LockWait, Owned};

use super::levels::Levels;
use super::{LevelHash, MAX_LOG2, mutants};
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket, BucketImage, SLOTS};
use crate::hash_table::locks::{Frozen, PUBLISHING};
use crate::hash_table::table::Table;
use crate::hash_table::writer::TableWriter;
use crate::index::{IndexError, RoomNeeded};
use crate::key::IndexKey;

/// Buckets of the new top level for one of the old bottom level.
const PARTS: u64 = 4;

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    /// Grows the table if it is still the one in which there was no room.
    #[cold]
    pub(super) fn grow(&self, full: Levels) -> Result<(), IndexError> {
        let mut wait = LockWait::default();
        let held = loop {
            if self.top() != full.top {
                return Ok(());
            }
            match self.try_lock_structure() {
                Some(held) => break held,
                None => wait.once(self.domain()),
            }
        };
        let grown = if self.top() == full.top { self.replace(full) } else { Ok(()) };
        held.leave_unchanged();
        grown
    }

    /// What growing takes in so many changes. Once it may come to that with any change: nobody knows how full the table is.
    /// Then half of the slots are free at least, for there are twice as many, and as long as the changes fill no more
    /// than a quarter of the slots before, which is an eighth of these, it does not come to that again: tables grow at a
    /// load of some four fifths. More changes count as if the table grew until they are so few.
    pub(super) fn room_to_grow(&self, changes: usize) -> RoomNeeded {
        let (top, padding_bytes) = (self.top(), self.domain().padding_bytes());
        let level_bytes = |log2: u32| (BUCKET_BYTES + padding_bytes).saturating_mul(1 << log2);
        let mut piece_bytes = 0_usize;
        let mut log2 = top.log2();
        while log2 < MAX_LOG2 {
            log2 += 1;
            piece_bytes = piece_bytes.saturating_add(level_bytes(log2));
            // Of the table before: its top level and half as many buckets below.
            let slots = (SLOTS << (log2 - 1)) / 2 * 3;
            if changes <= slots / 4 {
                break;
            }
        }
        RoomNeeded { piece_bytes, ..RoomNeeded::for_small_nodes(changes) }
    }

    fn replace(&self, old: Levels) -> Result<(), IndexError> {
        let (pool, domain, log2) = (&*self.pool, self.domain(), old.top.log2() + 1);
        if log2 > MAX_LOG2 {
            return Err(AllocError::TooLarge { asked_bytes: usize::MAX }.into());
        }
        let padding_bytes = domain.padding_bytes();
        let mut level = TableWriter::new(pool, log2, padding_bytes, mutants::UNFLUSHED_NEW_LEVEL)?;
        let mut frozen = Frozen::none_of(pool, self.generation, old.top, 2);
        for _ in 0..old.bottom.len() {
            frozen.freeze_next().ok_or_else(|| IndexError::Damaged {
                what: "its top level is not inside the pool".into(),
            })?;
        }
        self.rehash(old, &mut level)?;
        let written = level.into_written();
        let new = {
            let _mutant = domain.omitting(mutants::SWAP_BEFORE_FLUSH);
            pool.fence(written)
        };
        domain.happens("a top level above the top level");
        // I1: whoever sees the new table from here on sees this too, and puts nothing into it.
        self.structure().set_payload(domain, PUBLISHING);
        let committed = self.replace_top(old.top, new, log2);
        self.structure().set_payload(domain, 0);
        frozen.leave();
        pool.retire(old.bottom.link(), old.bottom.bytes(), committed, &pool.pin());
        Ok(())
    }

    /// Puts `top` and the bottom level that goes with it into the root.
    fn replace_top(
        &self,
        old: Table<Bucket>,
        new: Owned<'_, D, Bucket, Durable>,
        log2: u32,
    ) -> Committed {
        let (domain, top, bottom) = (self.domain(), self.root().top.word(), self.bottom_word(log2));
        let word = Table::new(new.link(), log2).bits();
        if domain.commits(mutants::TOP_WITHOUT_BOTTOM) {
            let committed = top.publish_word(domain, new, |_| word).persist();
            bottom.store_ordered(domain, old.bits());
            return committed;
        }
        // I1: within the line these persist in this order (R2).
        bottom.store_ordered(domain, old.bits());
        let flushed = top.publish_word(domain, new, |_| word).flush();
        // I1: before anybody may change the new table or reuse the old bottom level. This thread locks
        // with a locked instruction before it does either, which would do for itself (rule R5).
        flushed.fence_for_other_threads(domain)
    }

    /// Writes the entries of the bottom level into a level of four times as many buckets.
    fn rehash(&self, old: Levels, level: &mut TableWriter<'_, D>) -> Result<(), IndexError> {
        let new = Table::<Bucket>::new(Link::NULL, old.top.log2() + 1);
        for number in 0..old.bottom.len() {
            let bucket = self.bucket(old.bottom.at(number));
            let mut parts = [([(0, 0); SLOTS], 0); PARTS as usize];
            for entry in bucket.occupied(self.domain()) {
                let leads_here = |of: &u64| old.bottom.index_of(*of) == number;
                let hash = K::with_word(&self.pool, entry.0, |key| {
                    self.hashes_of(key).0.into_iter().find(leads_here)
                });
                let hash = hash.flatten().ok_or_else(|| IndexError::Damaged {
                    what: format!("I3: bucket {number} of its bottom level has another's key"),
                })?;
                let (entries, used) = &mut parts[(new.index_of(hash) % PARTS) as usize];
                entries[*used] = entry;
                *used += 1;
            }
            for (entries, used) in parts {
                level.push(&BucketImage::of(&entries[..used], Link::NULL));
            }
        }
        Ok(())
    }
}
