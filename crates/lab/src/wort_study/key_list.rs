//! Keys in the order in which a session uses them, whatever kind they are of.

use lapis_compiled_indexes::ModelledKey;
use lapis_index::IndexMaker;
use lapis_pmem::Hardware;

use crate::index_experiment::engine::value_of;

/// Indexes of integers on this machine.
pub(super) static INTEGERS_HERE: IndexMaker<Hardware, u64> = IndexMaker::HERE;

/// Keys one after another.
pub(super) trait KeyList: Sync {
    /// What a key is.
    type Key: ModelledKey + ?Sized;
    /// What makes and opens indexes of such keys here.
    const INDEXES_HERE: &'static IndexMaker<Hardware, Self::Key>;

    /// How many there are.
    fn count(&self) -> usize;

    /// The key at `place`, counted from zero.
    fn at(&self, place: usize) -> &Self::Key;

    /// The value that goes with a key.
    fn value_of(key: &Self::Key) -> u64;
}

impl KeyList for [u64] {
    type Key = u64;
    const INDEXES_HERE: &'static IndexMaker<Hardware, u64> = &INTEGERS_HERE;

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
