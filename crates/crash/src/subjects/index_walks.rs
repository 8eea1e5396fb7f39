//! Walks over an index that leave out the parts that are known.

use std::cell::RefCell;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::rc::Rc;

use lapis_device::{BytesOfLine, Modelled};
use lapis_index::{EntriesByPart, IndexKey};
use lapis_pmem::ReachablePart;
use lapis_pmem::parts::{KnownParts, PartEnds, PartName};

use super::entries::Entries;
use crate::reuse::walks::{PartMemory, Walk};
use crate::subject::WalkMemory;

/// What is known of the parts of an index.
#[derive(Debug)]
pub(super) struct IndexWalks<B> {
    /// From visiting its entries.
    pub(super) entries: RefCell<PartMemory<EntriesPart<B>>>,
    /// From visiting its blocks.
    pub(super) blocks: RefCell<PartMemory<ReachablePart>>,
    /// Room for entries that are visited.
    pub(super) visited: RefCell<Visited<B>>,
}

/// Keys and values.
pub(super) type Visited<B> = (Vec<B>, Vec<u64>);

impl<B> Default for IndexWalks<B> {
    fn default() -> Self {
        let (entries, blocks, visited) = Default::default();
        Self { entries, blocks, visited }
    }
}

impl<B: 'static> WalkMemory for IndexWalks<B> {
    fn begin_point(&self, watched: &[u32]) {
        self.entries.borrow_mut().begin_point(watched);
        self.blocks.borrow_mut().begin_point(watched);
    }

    fn begin_run(&self, differing: &[BytesOfLine]) {
        self.entries.borrow_mut().begin_run(differing);
        self.blocks.borrow_mut().begin_run(differing);
    }

    fn changes_durably(&self, changed: BytesOfLine) {
        self.entries.borrow_mut().changes_durably(changed);
        self.blocks.borrow_mut().changes_durably(changed);
    }

    fn forget(&self) {
        self.entries.borrow_mut().forget();
        self.blocks.borrow_mut().forget();
    }

    fn passed(&self) -> u64 {
        self.entries.borrow().passed() + self.blocks.borrow().passed()
    }
}

/// The entries of a part, in the order in which they are visited.
#[derive(Debug)]
pub(super) struct EntriesPart<B> {
    ends: PartEnds,
    keys: Vec<B>,
    values: Vec<u64>,
}

/// Finds out which of a few states an index is in that visits its entries in order.
pub(super) struct InOrder<'e, B> {
    expected: &'e [&'e Entries<B>],
    /// A bit for each that it may be.
    possible: u64,
    /// So many entries have been visited.
    at: usize,
}

impl<'e, B: Ord> InOrder<'e, B> {
    pub(super) fn new(expected: &'e [&'e Entries<B>]) -> Self {
        Self { expected, possible: (1 << expected.len()) - 1, at: 0 }
    }

    /// The next entries are `count`, and one of the states has them if `same` says so of its next.
    #[inline]
    fn visit(&mut self, count: usize, same: impl Fn(&[B], &[u64]) -> bool) -> ControlFlow<()> {
        let next = self.at..self.at + count;
        for (number, state) in self.expected.iter().enumerate() {
            let (keys, values) = (state.keys().get(next.clone()), state.values().get(next.clone()));
            if !keys.zip(values).is_some_and(|(keys, values)| same(keys, values)) {
                self.possible &= !(1 << number);
            }
        }
        self.at += count;
        if self.possible == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    #[inline]
    pub(super) fn entry<K>(&mut self, key: &K, value: u64) -> ControlFlow<()>
    where
        K: IndexKey<Buf = B> + ?Sized,
    {
        self.visit(1, |keys, values| {
            values == [value] && keys.iter().all(|other| K::borrow(other).cmp(key).is_eq())
        })
    }

    /// Which state it is, after all entries.
    pub(super) fn found(&self) -> Option<usize> {
        let whole = |&number: &usize| {
            self.possible & 1 << number != 0 && self.expected[number].len() == self.at
        };
        (0..self.expected.len()).find(whole)
    }
}

/// [`InOrder`] by parts.
pub(super) struct InOrderByPart<'e, 'm, B> {
    pub(super) order: InOrder<'e, B>,
    walk: Walk<'m, EntriesPart<B>>,
    /// The part that was found to be known.
    next: Option<Rc<EntriesPart<B>>>,
    /// Of each part that the walk is in: whether it may come to be known, and how much of `visited`
    /// is before it.
    open: Vec<(bool, usize)>,
    /// How many of those may.
    kept: usize,
    /// Entries of them.
    visited: &'m mut Visited<B>,
}

impl<'e, 'm, B: Ord> InOrderByPart<'e, 'm, B> {
    pub(super) fn new(
        expected: &'e [&'e Entries<B>],
        memory: &'m mut PartMemory<EntriesPart<B>>,
        domain: &'m Modelled,
        visited: &'m mut Visited<B>,
    ) -> Self {
        let (order, walk) = (InOrder::new(expected), memory.walk(domain));
        visited.0.clear();
        visited.1.clear();
        Self { order, walk, next: None, open: Vec::with_capacity(16), kept: 0, visited }
    }
}

impl<K, B> EntriesByPart<K> for InOrderByPart<'_, '_, B>
where
    K: IndexKey<Buf = B> + ?Sized,
    B: Ord + Clone + Debug,
{
    fn known(&mut self, name: PartName) -> Option<PartEnds> {
        self.next = self.walk.known(name);
        self.next.as_ref().map(|part| part.ends)
    }

    fn pass(&mut self, name: PartName) -> ControlFlow<()> {
        let Some(part) = self.next.take() else { return ControlFlow::Break(()) };
        self.walk.passed(name);
        if self.kept > 0 {
            self.visited.0.extend_from_slice(&part.keys);
            self.visited.1.extend_from_slice(&part.values);
        }
        self.order.visit(part.keys.len(), |keys, values| keys == part.keys && values == part.values)
    }

    fn begin(&mut self, name: PartName) {
        let kept = self.walk.begin(name);
        self.kept += usize::from(kept);
        self.open.push((kept, self.visited.0.len()));
    }

    fn end(&mut self, ends: Option<PartEnds>) {
        let Some((kept, from)) = self.open.pop() else { return };
        let part = ends.filter(|_| kept && self.walk.keeps()).map(|ends| {
            let (keys, values) = (self.visited.0[from..].to_vec(), self.visited.1[from..].to_vec());
            EntriesPart { ends, keys, values }
        });
        self.walk.end(part);
        self.kept -= usize::from(kept);
        if self.kept == 0 {
            self.visited.0.clear();
            self.visited.1.clear();
        }
    }

    fn entry(&mut self, key: &K, value: u64) -> ControlFlow<()> {
        if self.kept > 0 {
            self.visited.0.push(key.to_buf());
            self.visited.1.push(value);
        }
        self.order.entry(key, value)
    }
}
