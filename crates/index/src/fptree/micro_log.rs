//! Micro-logs: what a split or a merge does to the leaf that stays, written down before it is done.
//!
//! Both change two words of one leaf that lie in different lines: its bitmap and its next link. The
//! record says what they shall be. It is one line, and its first word is stored last and cleared first
//! (rule R2): once that is durable the change will happen, now or when the tree is opened next.
//!
//! A checksum of the three words is stored before the first and cleared after it. So, by rule R2, whatever a crash leaves
//! of a record has the right checksum if its first word is set (I5), and a wrong one is damage: a sound tree is never
//! refused. It is there because a record that is carried out overwrites whatever it names; one bit of an idle
//! record would be enough, whose other words are those of the last plan.

use std::sync::atomic::{AtomicU32, Ordering};

use lapis_pmem::{Blocks, Committed, Domain, Durable, Link, LockWait, PCell, Pool, persistent};

use super::FpTree;
use super::leaf::{Leaf, LeafHeader};
use super::mutants;
use crate::index::IndexError;
use crate::key::IndexKey;

/// Records: so many splits and merges can be under way at a time.
pub(super) const MICRO_LOGS: usize = 16;
/// Bytes of the block that they fill.
pub(super) const MICRO_LOG_BYTES: usize = MICRO_LOGS * size_of::<MicroLog>();

persistent! {
    /// A record.
    pub struct MicroLog: 64 {
        pub(super) leaf: PCell<u64>,
        pub(super) bitmap: PCell<u64>,
        pub(super) next: PCell<u64>,
        checksum: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 4],
    }
}

/// The checksum of what a record says: never zero, which that of an idle one is.
fn checksum_of(words: [u64; 3]) -> u64 {
    let mut bytes = [0; 24];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    xxhash_rust::xxh3::xxh3_64(&bytes) | 1
}

impl MicroLog {
    /// Whether the checksum is that of the other words.
    fn is_intact<D: Domain>(&self, domain: &D) -> bool {
        let words = [&self.leaf, &self.bitmap, &self.next].map(|word| word.load(domain));
        self.checksum.load(domain) == checksum_of(words)
    }
}

/// What a record says.
#[derive(Clone, Copy)]
pub(super) struct Plan<'p> {
    pub(super) leaf: Leaf<'p>,
    pub(super) bitmap: u64,
    pub(super) next: Link<LeafHeader>,
}

/// Which records are in use, as bits.
#[derive(Debug, Default)]
pub(super) struct Claims(AtomicU32);

impl Claims {
    fn claim<D: Domain>(&self, domain: &D) -> usize {
        let mut wait = LockWait::default();
        loop {
            let taken = self.0.load(Ordering::Relaxed);
            let free = taken.trailing_ones();
            let fits = (free as usize) < MICRO_LOGS;
            let with = taken | 1u32.checked_shl(free).unwrap_or(0);
            if fits
                && self
                    .0
                    .compare_exchange(taken, with, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return free as usize;
            }
            wait.once(domain);
        }
    }

    fn give_back<D: Domain>(&self, domain: &D, number: usize) {
        domain.synchronize();
        self.0.fetch_and(!(1 << number), Ordering::Release);
    }
}

/// A record that is durable: the plan will be carried out, whatever happens.
#[must_use]
pub(super) struct Planned<'p> {
    plan: Plan<'p>,
    number: usize,
}

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    pub(super) fn micro_log(&self, number: usize) -> &MicroLog {
        let offset = self.micro_logs.offset() + (number * size_of::<MicroLog>()) as u64;
        self.pool.at(Link::from_bits(offset))
    }

    /// Writes down, durably, what is to become of a leaf whose lock the caller holds. All that the
    /// plan leads to is durable already (I1, I2), `new` among it.
    pub(super) fn plan<'p, B: Blocks<Durable>>(&self, plan: Plan<'p>, new: B) -> Planned<'p> {
        let domain = self.domain();
        let number = self.claims.claim(domain);
        let log = self.micro_log(number);
        log.bitmap.store_ordered(domain, plan.bitmap);
        log.next.store_ordered(domain, plan.next.bits());
        let words = [plan.leaf.link.bits(), plan.bitmap, plan.next.bits()];
        log.checksum.store_ordered(domain, checksum_of(words));
        // I5: the first word is the last.
        let planned = log.leaf.publish_word(domain, new, |_| plan.leaf.link.bits());
        {
            let _mutant = domain.omitting(mutants::MICRO_LOG_NOT_PERSISTED);
            let _: Committed = planned.persist();
        }
        Planned { plan, number }
    }

    /// Does what a durable record says.
    pub(super) fn carry_out(&self, planned: &Planned<'_>) -> Committed {
        let (domain, plan) = (self.domain(), &planned.plan);
        // With it nothing is durable when the record is cleared.
        let _mutant = domain.omitting(mutants::MICRO_LOG_RESET_TOO_EARLY);
        let header = plan.leaf.header;
        // In either order: the record makes both happen (I5).
        header.line.bitmap.store_ordered(domain, plan.bitmap);
        header.next.store_ordered(domain, plan.next.bits());
        {
            let _mutant = domain.omitting(mutants::OLD_LEAF_NOT_CLEARED);
            domain.flush(&header.line.bitmap);
        }
        domain.flush(&header.next);
        Committed::after_fence(domain)
    }

    /// Clears the record of a plan that is carried out, before the leaf may change again.
    pub(super) fn finish(&self, planned: Planned<'_>) {
        let domain = self.domain();
        let log = self.micro_log(planned.number);
        // I5. This thread's next change of the leaf fences before it commits; that of another would
        // not wait for this.
        let cleared = log.leaf.publish(domain, 0);
        // After the first word, in the same line.
        log.checksum.store_ordered(domain, 0);
        let _: Committed = cleared.flush().fence_for_other_threads(domain);
        self.claims.give_back(domain, planned.number);
    }
}

/// Carries out what the records say, when the tree is opened: a crash left them. Doing it again
/// changes nothing. If one of them is damaged, none is carried out.
pub(super) fn replay<D: Domain>(
    pool: &Pool<D>,
    micro_logs: Link<MicroLog>,
    slots: usize,
) -> Result<(), IndexError> {
    let domain = pool.domain();
    let damaged = |what: &str| IndexError::Damaged { what: what.into() };
    let logs = pool
        .try_slice(micro_logs, MICRO_LOGS)
        .ok_or_else(|| damaged("its micro-logs are outside the pool"))?;
    let mut open = Vec::new();
    for log in logs.iter().filter(|log| log.leaf.load(domain) != 0) {
        // I5.
        if !log.is_intact(domain) {
            return Err(damaged("a micro-log has a wrong checksum"));
        }
        let leaf = Leaf::try_at(pool, Link::from_bits(log.leaf.load(domain)), slots)
            .ok_or_else(|| damaged("a micro-log names a leaf outside the pool"))?;
        open.push((log, leaf));
    }
    for (log, leaf) in &open {
        domain.happens("a micro-log is carried out when the tree is opened");
        leaf.header.line.bitmap.store_ordered(domain, log.bitmap.load(domain));
        leaf.header.next.store_ordered(domain, log.next.load(domain));
        let _mutant = domain.omitting(mutants::REPLAY_NOT_PERSISTED);
        domain.flush(&leaf.header.line.bitmap);
        domain.flush(&leaf.header.next);
    }
    if open.is_empty() {
        return Ok(());
    }
    domain.fence();
    for (log, _) in open {
        log.leaf.store_ordered(domain, 0);
        log.checksum.store_ordered(domain, 0);
        let _mutant = domain.omitting(mutants::REPLAYED_MICRO_LOG_NOT_RESET);
        domain.flush(&log.leaf);
    }
    // As in `finish`.
    lapis_pmem::domain::fence_for_other_threads(domain);
    Ok(())
}
