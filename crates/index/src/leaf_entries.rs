//! What a scan hands out.

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, Pool};

use crate::index::Direction;
use crate::key::IndexKey;

/// Entries that a scan has read, in its order: those of a leaf of a B+-tree, or the one of a radix tree's leaf. There is at
/// least one, and all are durable. The keys are those of one moment; a value is that of some moment while they were read.
#[derive(Clone, Copy, Debug)]
pub struct LeafEntries<'l, D: Domain, K: IndexKey + ?Sized> {
    pool: &'l Pool<D>,
    words: &'l [(u64, u64)],
    _keys: PhantomData<fn(&K)>,
}

/// Is shown the entries of leaves, one leaf after the other, and says whether to go on.
pub type OnLeaf<'v, D, K> = &'v mut dyn FnMut(LeafEntries<'_, D, K>) -> ControlFlow<()>;

impl<'l, D: Domain, K: IndexKey + ?Sized> LeafEntries<'l, D, K> {
    /// Of key words ([`IndexKey`]) and values, in the order of the scan. Who scans has pinned the pool.
    #[inline(always)]
    pub fn new(pool: &'l Pool<D>, words: &'l [(u64, u64)]) -> Self {
        Self { pool, words, _keys: PhantomData }
    }

    /// Key words and values. The word of an integer is the integer.
    #[inline(always)]
    pub fn words(self) -> &'l [(u64, u64)] {
        self.words
    }

    /// Calls `visit` for each entry until it breaks. A word that is no key is passed over.
    #[inline(always)]
    pub fn for_each<V>(self, visit: &mut V) -> ControlFlow<()>
    where
        V: FnMut(&K, u64) -> ControlFlow<()> + ?Sized,
    {
        self.words.iter().try_for_each(|&(word, value)| visit_word(self.pool, word, value, visit))
    }

    /// Shows a visitor those that are at `from` or behind it, if there are any.
    #[inline(always)]
    pub(crate) fn show_from(
        self,
        from: Bound<&K>,
        direction: Direction,
        visit: OnLeaf<'_, D, K>,
    ) -> ControlFlow<()> {
        let is_before = |word: u64| {
            let (Bound::Included(key) | Bound::Excluded(key)) = from else { return false };
            let order = match direction {
                Direction::Forward => key.cmp_word(self.pool, word),
                Direction::Backward => key.cmp_word(self.pool, word).reverse(),
            };
            order.is_gt() || (order.is_eq() && matches!(from, Bound::Excluded(_)))
        };
        let Some(&(first, _)) = self.words.first() else { return ControlFlow::Continue(()) };
        if !is_before(first) {
            return visit(self);
        }
        match &self.words[self.words.partition_point(|&(word, _)| is_before(word))..] {
            [] => ControlFlow::Continue(()),
            words => visit(Self { words, ..self }),
        }
    }
}

/// Calls `visit` with the key of `word`; a word that is no key is passed over.
#[inline(always)]
pub(crate) fn visit_word<D: Domain, K: IndexKey + ?Sized, V>(
    pool: &Pool<D>,
    word: u64,
    value: u64,
    visit: &mut V,
) -> ControlFlow<()>
where
    V: FnMut(&K, u64) -> ControlFlow<()> + ?Sized,
{
    K::with_word(pool, word, |key| visit(key, value)).unwrap_or(ControlFlow::Continue(()))
}
