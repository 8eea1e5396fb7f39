//! A number that threads add to and subtract from, and that a model observes, because decisions hang on it.

use lapis_pmem::{Domain, DramCell};

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Counter<D: Domain>(DramCell<u64, D>);

impl<D: Domain> Counter<D> {
    pub(crate) fn new() -> Self {
        Self(DramCell::new(0))
    }

    pub(crate) fn get(&self, domain: &D) -> u64 {
        self.0.load(domain)
    }

    /// Adds to it. Returns what it was.
    pub(crate) fn add(&self, domain: &D, add: i64) -> u64 {
        let mut now = self.0.load(domain);
        while let Err(found) = self.0.compare_exchange(domain, now, now.wrapping_add_signed(add)) {
            now = found;
        }
        now
    }
}
