//! A node.
//!
//! ```text
//!  node, in words            kw: words of a separator, 1 for integers, 2 for byte strings
//!  word             words    field
//!     0                 1    level (8 bits), count of separators (8), version (48; odd: the node is part of the tree);
//!                            leaves hang from level 1
//!     1                15    pivots: the last separators of the groups, of the strings their prefixes
//!    16       16 x groups    separators: the integers, or the prefixes of the strings
//!     .  (kw-1) x 16 x groups   their handles
//!     .       16 x groups    children: numbers of nodes, or links to leaves at level 1
//! ```
//!
//! A search counts the pivots that the key is not less than, then the separators of that group, and takes the child that
//! has the separator's place. So of a node of 66 lines it waits for two that lie together, and then for two of
//! separators and two of children at once. The last group has no pivot and a separator less than it has children.

use std::cmp::Ordering as Order;
use std::sync::atomic::{Ordering, fence};

use lapis_pmem::{Domain, Pool};

use super::Target;
use super::memory::Words;
use super::separators::{Separator, Separators};
use crate::group_search::{GROUP, partition_point};
use crate::key::IndexKey;

const PIVOTS_AT: usize = 1;
const SEPARATORS_AT: usize = GROUP;
/// Separators of a node, as many as pivots serve: over leaves of 56 slots there are the three levels then that
/// Table 1 (d) of the WORT paper states for 128 M keys.
pub(in crate::fptree) const CAPACITY: usize = GROUP * GROUP - 1;
/// What a place has where no separator is.
const NO_SEPARATOR: Separator = Separator { prefix: u64::MAX, handle: 0 };

/// Where in a node the columns are that lie behind the separators.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    handles_at: usize,
    children_at: usize,
    pub(super) node_words: usize,
}

impl Columns {
    /// Of nodes with so many separators, [`CAPACITY`] at most.
    pub(super) fn of<K: IndexKey + ?Sized>(capacity: usize) -> Self {
        debug_assert!(capacity <= CAPACITY);
        let words = (capacity + 1).next_multiple_of(GROUP);
        let handles_at = SEPARATORS_AT + words;
        let children_at = if K::INLINE { handles_at } else { handles_at + words };
        Self { handles_at, children_at, node_words: children_at + words }
    }
}

/// The first word of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    const COUNT_AT: u32 = 48;
    const LEVEL_AT: u32 = 56;

    #[inline(always)]
    pub(super) fn is_in_tree(self) -> bool {
        self.0 & 1 == 1
    }

    /// Of separators.
    #[inline(always)]
    pub(super) fn count(self) -> usize {
        usize::from((self.0 >> Self::COUNT_AT) as u8)
    }

    #[inline(always)]
    pub(super) fn level(self) -> usize {
        (self.0 >> Self::LEVEL_AT) as usize
    }

    /// The next version, with so many separators.
    fn next(self, count: usize, level: usize) -> Self {
        let version = (self.0 + 1) & ((1 << Self::COUNT_AT) - 1);
        Self(version | (count as u64) << Self::COUNT_AT | (level as u64) << Self::LEVEL_AT)
    }
}

/// A node, in the arena.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) words: Words<'a>,
    pub(super) columns: Columns,
}

impl Node<'_> {
    #[inline(always)]
    pub(super) fn header<D: Domain>(&self, domain: &D) -> Header {
        Header(self.words.load_acquire(domain, 0))
    }

    /// The header after everything that was read of the node.
    #[inline(always)]
    pub(super) fn header_again<D: Domain>(&self, domain: &D) -> Header {
        fence(Ordering::Acquire);
        Header(self.words.load(domain, 0))
    }

    #[inline(always)]
    pub(super) fn separator<D: Domain, K: IndexKey + ?Sized>(
        &self,
        domain: &D,
        index: usize,
    ) -> Separator {
        let prefix = self.words.load(domain, SEPARATORS_AT + index);
        let handle =
            if K::INLINE { 0 } else { self.words.load(domain, self.columns.handles_at + index) };
        Separator { prefix, handle }
    }

    #[inline(always)]
    pub(super) fn child<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        self.words.load_acquire(domain, self.columns.children_at + index)
    }

    /// Asks for what a search reads first.
    #[inline(always)]
    pub(super) fn prefetch_pivots<D: Domain>(&self, domain: &D) {
        if let Some(pivots) = self.words.group(0) {
            pivots.prefetch(domain);
        }
    }

    /// The child to go to, of a node with so many separators.
    #[inline(always)]
    pub(super) fn search<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        separators: &Separators,
        count: usize,
        target: Target<'_, K>,
        prefix: u64,
    ) -> usize {
        let domain = pool.domain();
        let (key, equal_is_before) = match target {
            Target::Of(key) => (key, true),
            Target::Before(key) => (key, false),
            Target::First => return 0,
            Target::Last => return count,
        };
        let is_before = |there: u64, number: usize| {
            let order = if K::INLINE || there != prefix {
                there.cmp(&prefix)
            } else if number < count {
                separators.compare(pool, self.separator::<D, K>(domain, number), prefix, key)
            } else {
                Order::Greater
            };
            order.is_lt() | (equal_is_before & order.is_eq())
        };
        let Some(pivots) = self.words.group(0) else { return 0 };
        let group = partition_point(K::INLINE, |group| {
            is_before(pivots.load(domain, PIVOTS_AT + group), group * GROUP + GROUP - 1)
        });
        // The greatest integer is also where no pivot is.
        let first = group.min(count / GROUP) * GROUP;
        let Some(children) = self.words.group(self.columns.children_at + first) else { return 0 };
        let Some(group) = self.words.group(SEPARATORS_AT + first) else { return 0 };
        group.prefetch(domain);
        children.prefetch(domain);
        let passed =
            partition_point(K::INLINE, |index| is_before(group.load(domain, index), first + index));
        (first + passed).min(count)
    }

    /// Writes what the node consists of, and then that it is part of the tree, which it was not.
    pub(super) fn write<D: Domain, K: IndexKey + ?Sized>(
        &self,
        domain: &D,
        level: usize,
        separators: &[Separator],
        children: &[u64],
    ) {
        let at = |number| separators.get(number).copied().unwrap_or(NO_SEPARATOR);
        // Up to the end of the group that the last child is in.
        for number in 0..children.len().next_multiple_of(GROUP) {
            let Separator { prefix, handle } = at(number);
            self.words.store(domain, SEPARATORS_AT + number, prefix);
            if !K::INLINE {
                self.words.store(domain, self.columns.handles_at + number, handle);
            }
        }
        for group in 0..GROUP - PIVOTS_AT {
            let pivot = at(group * GROUP + GROUP - 1).prefix;
            self.words.store(domain, PIVOTS_AT + group, pivot);
        }
        for (number, child) in children.iter().enumerate() {
            self.words.store(domain, self.columns.children_at + number, *child);
        }
        self.set_header(domain, self.header(domain).next(separators.len(), level));
    }

    /// Turns a child to another of the same range.
    pub(super) fn turn_child<D: Domain>(&self, domain: &D, index: usize, child: u64) {
        self.words.store_ordered(domain, self.columns.children_at + index, child);
    }

    /// Says that it is part of the tree no more.
    pub(super) fn leave<D: Domain>(&self, domain: &D) {
        self.set_header(domain, self.header(domain).next(0, 0));
    }

    fn set_header<D: Domain>(&self, domain: &D, header: Header) {
        self.words.store_ordered(domain, 0, header.0);
    }
}
