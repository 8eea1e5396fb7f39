//! Values that are no longer in the tree, and that a reader may still want.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::host_lock;
use lapis_pmem::{Domain, DramCell};
use parking_lot::{Mutex, RwLock};

use crate::key_range::KeyRange;

/// A value that readers see who began before `until`, and after what stands before it.
#[derive(Debug)]
struct Version {
    until: u64,
    value: Option<Box<[u8]>>,
}

/// What the keys of a table had before.
#[derive(Debug)]
pub(crate) struct Versions<D: Domain> {
    /// How many there are: most of the time none, and nobody looks further.
    count: DramCell<u64, D>,
    /// For each key the versions in order.
    keys: RwLock<BTreeMap<Box<[u8]>, VecDeque<Version>>>,
}

/// A key and what it had.
pub(crate) type Replaced = (Box<[u8]>, Option<Box<[u8]>>);

/// A value as a reader finds it: [`None`] if the tree has it.
pub(crate) type Found<V> = Option<Option<V>>;

/// Of a key's versions, which are in order, the one that a reader since `since` sees.
fn version_for(versions: &VecDeque<Version>, since: u64) -> Option<&Version> {
    versions.get(versions.partition_point(|version| version.until <= since))
}

impl<D: Domain> Versions<D> {
    pub(crate) fn new() -> Self {
        Self { count: DramCell::new(0), keys: RwLock::default() }
    }

    /// Keeps what the transaction `until` is about to replace. Whoever writes the key holds its stripe.
    pub(crate) fn keep(&self, domain: &D, key: &[u8], until: u64, value: Option<&[u8]>) {
        let version = Version { until, value: value.map(Box::from) };
        let mut keys = host_lock::write(domain, &self.keys);
        match keys.get_mut(key) {
            Some(versions) => versions.push_back(version),
            None => _ = keys.insert(key.into(), VecDeque::from([version])),
        }
        self.count.store_release(domain, self.count.load(domain) + 1);
    }

    /// The value that the key had for a reader since `since`, if it has been replaced. To be asked after the
    /// tree (E3).
    pub(crate) fn find<T>(
        &self,
        domain: &D,
        key: &[u8],
        since: u64,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Found<T> {
        if self.count.load_acquire(domain) == 0 {
            return None;
        }
        let keys = host_lock::read(domain, &self.keys);
        let version = version_for(keys.get(key)?, since)?;
        Some(version.value.as_deref().map(with))
    }

    /// What the keys of a range had, as far as it was replaced, in their order. To be asked after the tree.
    pub(crate) fn find_range(&self, domain: &D, range: &KeyRange, since: u64) -> Vec<Replaced> {
        if self.count.load_acquire(domain) == 0 || range.is_empty() {
            return Vec::new();
        }
        let keys = host_lock::read(domain, &self.keys);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (range.lower(), range.upper());
        let found = keys.range::<[u8], _>(bounds).filter_map(|(key, versions)| {
            let version = version_for(versions, since)?;
            Some((key.clone(), version.value.clone()))
        });
        found.collect()
    }

    /// Drops all that the key had and only readers before `oldest` would want: at once, for a key may have been replaced
    /// many times while somebody read.
    fn drop_oldest(&self, domain: &D, key: &[u8], oldest: u64) {
        let mut keys = host_lock::write(domain, &self.keys);
        let Some(versions) = keys.get_mut(key) else { return };
        let unread = versions.partition_point(|version| version.until <= oldest);
        let dropped: Vec<_> = versions.drain(..unread).collect();
        if versions.is_empty() {
            keys.remove(key);
        }
        self.count.store_release(domain, self.count.load(domain) - dropped.len() as u64);
        // Their memory is given back when nobody waits for the lock.
        drop(keys);
        drop(dropped);
    }
}

/// Which versions to drop when nobody reads them any more.
#[derive(Debug)]
pub(crate) struct VersionQueue<D: Domain>(Mutex<VecDeque<Queued<D>>>);

#[derive(Debug)]
struct Queued<D: Domain> {
    until: u64,
    versions: Arc<Versions<D>>,
    keys: Vec<Box<[u8]>>,
}

impl<D: Domain> VersionQueue<D> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Notes what the transaction `until` has kept.
    pub(crate) fn push(
        &self,
        domain: &D,
        until: u64,
        versions: &Arc<Versions<D>>,
        keys: Vec<Box<[u8]>>,
    ) {
        let queued = Queued { until, versions: Arc::clone(versions), keys };
        host_lock::lock(domain, &self.0).push_back(queued);
    }

    /// Drops what only readers before `oldest` would want. What is queued out of order goes a little later.
    pub(crate) fn drop_until(&self, domain: &D, oldest: u64) {
        loop {
            let queued = {
                let mut queue = host_lock::lock(domain, &self.0);
                match queue.front() {
                    Some(first) if first.until <= oldest => queue.pop_front(),
                    _ => None,
                }
            };
            let Some(Queued { versions, keys, .. }) = queued else { return };
            keys.iter().for_each(|key| versions.drop_oldest(domain, key, oldest));
        }
    }

    /// Versions of how many transactions are kept.
    pub(crate) fn len(&self, domain: &D) -> usize {
        host_lock::lock(domain, &self.0).len()
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::Hardware;

    use super::*;

    #[test]
    fn of_what_a_key_had_all_that_nobody_reads_any_more_goes_at_once() {
        let domain = Hardware::detect();
        let versions = Versions::new();
        for until in 1..=100 {
            versions.keep(&domain, b"key", until, Some(b"old"));
        }
        let find = |since| versions.find(&domain, b"key", since, <[u8]>::to_vec);
        versions.drop_oldest(&domain, b"key", 99);
        assert_eq!(versions.count.load(&domain), 1);
        assert_eq!((find(99), find(100)), (Some(Some(b"old".to_vec())), None));
    }
}
