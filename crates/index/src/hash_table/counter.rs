//! A count in an index root that all handles share.

use lapis_pmem::{Domain, PCell};

/// The count lies below the generation of the pool in which it is true.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// A count that is never flushed, since it is of the present opening of the pool.
pub(crate) struct Counter<'a, D: Domain> {
    word: &'a PCell<u64>,
    domain: &'a D,
    generation: u64,
}

impl<'a, D: Domain> Counter<'a, D> {
    pub(crate) fn new(word: &'a PCell<u64>, domain: &'a D, pool_generation: u64) -> Self {
        Self { word, domain, generation: pool_generation << COUNT_BITS }
    }

    fn count_of(&self, word: u64) -> Option<u64> {
        (word & !COUNT_MASK == self.generation).then_some(word & COUNT_MASK)
    }

    fn word_of(&self, count: u64) -> u64 {
        self.generation | count.min(COUNT_MASK)
    }

    /// The count; 0 if nobody has counted in this generation.
    pub(crate) fn get(&self) -> u64 {
        self.count_of(self.word.load_acquire(self.domain)).unwrap_or(0)
    }

    pub(crate) fn set(&self, count: u64) {
        self.word.store(self.domain, self.word_of(count));
    }

    /// Begins with a count of so many if nobody has counted in this generation.
    pub(crate) fn begin(&self, count: impl FnOnce() -> u64) {
        let found = self.word.load(self.domain);
        if self.count_of(found).is_none() {
            // If another handle is faster, its count does.
            let _ = self.word.compare_exchange(self.domain, found, self.word_of(count()));
        }
    }

    /// Counts one more or one less, by a locked instruction.
    pub(crate) fn count(&self, comes: bool) {
        let mut found = self.word.load(self.domain);
        loop {
            let count = self.count_of(found).unwrap_or(0);
            let count = if comes { count + 1 } else { count.saturating_sub(1) };
            match self.word.compare_exchange(self.domain, found, self.word_of(count)) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }
}
