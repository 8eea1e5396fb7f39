//! Locks of keys, as many as there are stripes.

use lapis_pmem::host_lock::{self, HostGuard};
use lapis_pmem::{Domain, DramCell};
use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::tables::TableId;

/// The hash of a key of a table.
pub(crate) fn hash_of(table: TableId, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(table))
}

#[derive(Debug)]
struct Stripe<D: Domain> {
    lock: Mutex<()>,
    /// The last transaction that wrote a key of the stripe and is to be durable.
    last: DramCell<u64, D>,
}

/// Every key belongs to one stripe. Who writes it holds the stripe (E2).
#[derive(Debug)]
pub(crate) struct Stripes<D: Domain> {
    stripes: Box<[Stripe<D>]>,
}

/// Stripes that are held.
pub(crate) type Held<'s, D> = Vec<HostGuard<'s, D, MutexGuard<'s, ()>>>;

impl<D: Domain> Stripes<D> {
    pub(crate) fn new(count: usize) -> Self {
        let stripe = |_| Stripe { lock: Mutex::new(()), last: DramCell::new(0) };
        Self { stripes: (0..count.next_power_of_two()).map(stripe).collect() }
    }

    fn index_of(&self, hash: u64) -> usize {
        hash as usize & (self.stripes.len() - 1)
    }

    /// The stripes of these keys, each once, in the order in which all take them.
    pub(crate) fn of(&self, hashes: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut found: Vec<_> = hashes.map(|hash| self.index_of(hash)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    pub(crate) fn hold<'s>(&'s self, domain: &'s D, stripes: &[usize]) -> Held<'s, D> {
        stripes.iter().map(|&at| host_lock::lock(domain, &self.stripes[at].lock)).collect()
    }

    /// Notes, before a tree is changed, who is about to change it. The stripes are held.
    pub(crate) fn note(&self, domain: &D, stripes: &[usize], lsn: u64) {
        stripes.iter().for_each(|&at| self.stripes[at].last.store_release(domain, lsn));
    }

    /// The transaction that has to be durable, and in all trees, before what was read of the key counts (E4).
    pub(crate) fn last_of(&self, domain: &D, hash: u64) -> u64 {
        self.stripes[self.index_of(hash)].last.load_acquire(domain)
    }
}
