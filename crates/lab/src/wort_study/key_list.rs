//! Keys in the order in which a session uses them, whatever kind they are of.

use lapis_index::IndexKey;

use crate::index_experiment::engine::value_of;

/// Keys one after another.
pub(super) trait KeyList: Sync {
    /// What a key is.
    type Key: IndexKey + ?Sized;

    /// How many there are.
    fn count(&self) -> usize;

    /// The key at `place`, counted from zero.
    fn at(&self, place: usize) -> &Self::Key;

    /// The value that goes with a key.
    fn value_of(key: &Self::Key) -> u64;
}

impl KeyList for [u64] {
    type Key = u64;

    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn at(&self, place: usize) -> &u64 {
        &self[place]
    }

    #[inline(always)]
    fn value_of(key: &u64) -> u64 {
        value_of(*key, 0)
    }
}
