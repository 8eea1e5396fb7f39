//! Entries of an ordered index one by one.

use std::ops::{Bound, ControlFlow};

use crate::key::IndexKey;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From small keys to large ones.
    Forward,
    /// From large keys to small ones.
    Backward,
}

/// Entries fetched by one scan.
const BATCH: usize = 64;

/// Is shown an entry, and says whether to go on.
pub(crate) type Visit<'v, K> = dyn FnMut(&K, u64) -> ControlFlow<()> + 'v;

/// Scans an index from somewhere on.
type Scan<'a, K> = dyn Fn(Bound<&K>, &mut Visit<'_, K>) + Send + 'a;

/// A lazy iterator over part of an ordered index. See [`OrderedIndex::range`](crate::OrderedIndex::range).
pub struct Range<'a, K: IndexKey + ?Sized> {
    scan: Box<Scan<'a, K>>,
    from: Bound<K::Buf>,
    to: Bound<K::Buf>,
    direction: Direction,
    batch: std::vec::IntoIter<(K::Buf, u64)>,
    exhausted: bool,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for Range<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Range({:?} to {:?}, {:?})", self.from, self.to, self.direction)
    }
}

impl<'a, K: IndexKey + ?Sized> Range<'a, K> {
    pub(crate) fn new(
        scan: Box<Scan<'a, K>>,
        lower: Bound<&K>,
        upper: Bound<&K>,
        direction: Direction,
    ) -> Self {
        let (from, to) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Backward => (upper, lower),
        };
        let (from, to) = (from.map(K::to_buf), to.map(K::to_buf));
        Self { scan, from, to, direction, batch: Vec::new().into_iter(), exhausted: false }
    }
}

impl<K: IndexKey + ?Sized> Iterator for Range<'_, K> {
    type Item = (K::Buf, u64);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.batch.next() {
            return Some(entry);
        }
        if self.exhausted {
            return None;
        }
        let mut batch = Vec::with_capacity(BATCH);
        let (to, direction) = (&self.to, self.direction);
        let within = |key: &K| match (to, direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(to), Direction::Forward) => key <= K::borrow(to),
            (Bound::Excluded(to), Direction::Forward) => key < K::borrow(to),
            (Bound::Included(to), Direction::Backward) => key >= K::borrow(to),
            (Bound::Excluded(to), Direction::Backward) => key > K::borrow(to),
        };
        let mut ended = true;
        (self.scan)(self.from.as_ref().map(K::borrow), &mut |key, value| {
            if !within(key) {
                return ControlFlow::Break(());
            }
            batch.push((key.to_buf(), value));
            if batch.len() == BATCH {
                ended = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.exhausted = ended;
        if let Some((last, _)) = batch.last() {
            self.from = Bound::Excluded(last.clone());
        }
        self.batch = batch.into_iter();
        self.batch.next()
    }
}

/// The first entry that a scan visits.
pub(crate) fn first_of<K: IndexKey + ?Sized>(
    scan: impl FnOnce(&mut Visit<'_, K>),
) -> Option<(K::Buf, u64)> {
    let mut found = None;
    scan(&mut |key, value| {
        found = Some((key.to_buf(), value));
        ControlFlow::Break(())
    });
    found
}
