//! The redo log: changes of several words that happen all or not at all.
//!
//! ```text
//!  offset  bytes  field
//!       0      8  commit   0: nothing to redo; else the number of records (bits 0 to 15) and a
//!                          checksum of them (bits 16 to 63)
//!       8     56  reserved, zero
//!      64     16  record 0: where (offset in the pool), what (the word to store there)
//!     ...
//!     496     16  record 27
//! ```
//!
//! * L1. While `commit` is not zero, its records are durable, and so is all that they make
//!   reachable.
//! * L2. No word of a record differs from what it was, or from what a change that is durable without
//!   the log made of it, before `commit` is durable.
//! * L3. `commit` becomes zero when all words are durable; and nothing changes in the index, nor a
//!   record in the log, before the zero is durable.
//!
//! ```text
//!  records: flush │ fence │ commit := count and checksum: flush │ fence │ words: flush │ fence │
//!  commit := 0: flush │ fence
//! ```
//!
//! Storing the words again, in the order of the records, gives the same result however many of them
//! have been stored before: redoing is idempotent, and a power cut while the log is redone leaves
//! what another redo finishes. A word may occur twice, for the sake of readers who look on; the last
//! record of it counts.
//!
//! The checksum is there to tell damage: tearing is excluded by the order (L1).

use lapis_pmem::{
    Batch, Blocks, Committed, Domain, Durable, InFlight, LINE_BYTES, Link, Owned, PCell, Pool,
    persistent,
};

use super::mutants::{self, slots_only};
use super::node::Place;
use crate::index::IndexError;

/// Records of a log: what a split of a node with byte strings and its parent needs, and one to
/// spare (see `restructure.rs`).
const RECORDS: usize = 28;

persistent! {
    /// Where, and what.
    pub(super) struct Record: 16 {
        place: PCell<u64>,
        word: PCell<u64>,
    }
}

persistent! {
    /// The log.
    pub(super) struct Log: 512 {
        commit: PCell<u64>,
        reserved: [PCell<u64>; 7],
        records: [Record; 28],
    }
}

const COUNT_MASK: u64 = 0xFFFF;

/// Words to be stored, in order.
#[derive(Debug)]
pub(super) struct Plan {
    records: [(u64, u64); RECORDS],
    count: usize,
}

impl Plan {
    pub(super) fn new() -> Self {
        Self { records: [(0, 0); RECORDS], count: 0 }
    }

    pub(super) fn store(&mut self, place: Place, word: u64) {
        self.records[self.count] = (place.offset(), word);
        self.count += 1;
    }

    fn as_slice(&self) -> &[(u64, u64)] {
        &self.records[..self.count]
    }

    /// The commit word: never zero, as there is at least one record.
    fn commit_word(&self) -> u64 {
        let mut bytes = [0; 16 * RECORDS];
        for (bytes, (place, word)) in bytes.chunks_exact_mut(16).zip(self.as_slice()) {
            bytes[..8].copy_from_slice(&place.to_le_bytes());
            bytes[8..].copy_from_slice(&word.to_le_bytes());
        }
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..16 * self.count]);
        (checksum & !COUNT_MASK) | self.count as u64
    }
}

/// Allocates an empty log. The caller fences.
pub(super) fn create<D: Domain>(pool: &Pool<D>) -> Result<Owned<'_, D, Log, InFlight>, IndexError> {
    let mut log = pool.allocate::<Log>()?;
    log.zero();
    Ok(log.flush())
}

impl Log {
    /// Whether there is nothing to redo.
    pub(super) fn is_empty<D: Domain>(&self, domain: &D) -> bool {
        self.commit.load(domain) == 0
    }

    /// Stores the words of `plan`, which lead to `new`, all or none whatever happens. The fence at
    /// its beginning also makes durable what else the caller has flushed.
    pub(super) fn carry_out<D: Domain, B>(&self, pool: &Pool<D>, plan: &Plan, new: B) -> Committed
    where
        B: Batch<Durable: Blocks<Durable>>,
    {
        let domain = pool.domain();
        self.write_records(domain, plan);
        // L1.
        domain.flush(&self.records[..plan.count]);
        let new = pool.fence(new);
        let commit = self.commit.publish_word(domain, new, |_| plan.commit_word());
        let _: Committed = {
            let _mutant = domain.omitting(mutants::either(
                domain,
                mutants::CHANGE_BEFORE_LOG_COMMIT,
                slots_only::CHANGE_BEFORE_LOG_COMMIT,
            ));
            // L2.
            commit.persist()
        };
        self.redo(pool, plan)
    }

    /// The state between writing the log and carrying it out.
    #[cfg(test)]
    pub(super) fn write_committed<D: Domain>(&self, domain: &D, plan: &Plan) {
        self.write_records(domain, plan);
        self.commit.store(domain, plan.commit_word());
    }

    fn write_records<D: Domain>(&self, domain: &D, plan: &Plan) {
        for (record, &(place, word)) in self.records.iter().zip(plan.as_slice()) {
            record.place.store(domain, place);
            record.word.store(domain, word);
        }
    }

    /// Stores the words of a plan that the log has, and empties it.
    fn redo<D: Domain>(&self, pool: &Pool<D>, plan: &Plan) -> Committed {
        let domain = pool.domain();
        let mut lines = [0; RECORDS];
        let mut flushed = 0;
        for &(place, word) in plan.as_slice() {
            pool.at::<PCell<u64>>(Link::from_bits(place)).store_ordered(domain, word);
        }
        let truncated_early = domain.omitting(mutants::either(
            domain,
            mutants::LOG_TRUNCATED_EARLY,
            slots_only::LOG_TRUNCATED_EARLY,
        ));
        for &(place, _) in plan.as_slice() {
            let line = place / LINE_BYTES as u64;
            if !lines[..flushed].contains(&line) {
                lines[flushed] = line;
                flushed += 1;
                domain.flush(pool.at::<PCell<u64>>(Link::from_bits(place)));
            }
        }
        // L3, first half.
        domain.fence();
        drop(truncated_early);
        // L3, second half.
        self.commit.publish(domain, 0).persist()
    }

    /// Does again what a power cut may have left half done.
    pub(super) fn recover<D: Domain>(&self, pool: &Pool<D>) -> Result<(), IndexError> {
        let domain = pool.domain();
        let commit = self.commit.load(domain);
        if commit == 0 {
            return Ok(());
        }
        let damaged = || IndexError::Damaged { what: "its redo log is not what it was".into() };
        let count = (commit & COUNT_MASK) as usize;
        let mut plan = Plan::new();
        for record in self.records.get(..count).ok_or_else(damaged)? {
            let offset = record.place.load(domain);
            let place = Link::<PCell<u64>>::from_bits(offset);
            if pool.try_at(place).is_none() || place.offset() != offset {
                return Err(damaged());
            }
            plan.store(place, record.word.load(domain));
        }
        if plan.commit_word() != commit {
            return Err(damaged());
        }
        domain.happens("the redo log is carried out when the tree is opened");
        let _: Committed = if domain.commits(mutants::either(
            domain,
            mutants::LOG_NOT_REDONE,
            slots_only::LOG_NOT_REDONE,
        )) {
            self.commit.publish(domain, 0).persist()
        } else {
            self.redo(pool, &plan)
        };
        Ok(())
    }
}
