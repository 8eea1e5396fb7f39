//! The directory: the top of the inner nodes, never changed, replaced as a whole.

use std::cmp::Ordering;
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Domain, Guard, Pool};

use super::super::leaf::order_loads;
use super::arena::{Arena, Words};
use super::segment::{Edit, Entry, PlnReading, Segment, Separator, Shape};
use crate::group_search::last_admitted;
use crate::key::leading_word;

/// What a descent looks for: the last separator that it admits.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Probe<'k> {
    /// None: the first leaf.
    Lowest,
    /// Those up to a key: its first word, and its bytes.
    UpTo(u64, &'k [u8]),
    /// Those below a key.
    Below(u64, &'k [u8]),
    /// All: the last leaf.
    Highest,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(in super::super) fn up_to(bytes: &'k [u8]) -> Self {
        Self::UpTo(leading_word(bytes), bytes)
    }

    pub(in super::super) fn up_to_separator(key: &'k Separator) -> Self {
        Self::UpTo(key.first, &key.bytes)
    }

    pub(in super::super) fn below_separator(key: &'k Separator) -> Self {
        Self::Below(key.first, &key.bytes)
    }

    /// The greatest integer that is admitted. Of none it is one that no separator is, but the first, which nobody asks about.
    #[inline(always)]
    fn most(self) -> u64 {
        match self {
            Self::Lowest => 0,
            Self::UpTo(first, _) => first,
            Self::Below(first, _) => first.saturating_sub(1),
            Self::Highest => u64::MAX,
        }
    }

    /// Whether the string with its first word at `at`, and at `key_at` the place of all of it, is admitted.
    #[inline(always)]
    fn admits<D: Domain>(self, words: Words<'_, D>, at: usize, key_at: usize) -> bool {
        let order = |first: u64, bytes: &[u8]| match words.load(at).cmp(&first) {
            Ordering::Equal => words.compare_key(words.load(key_at) as usize, bytes),
            order => order,
        };
        match self {
            Self::Lowest => false,
            Self::UpTo(first, bytes) => order(first, bytes).is_le(),
            Self::Below(first, bytes) => order(first, bytes).is_lt(),
            Self::Highest => true,
        }
    }
}

/// Where a descent has led, in the directory that it went through.
#[derive(Clone, Copy)]
pub(in super::super) struct Found {
    pub(in super::super) link: u64,
    segment: usize,
    pln: usize,
    pub(in super::super) entry: usize,
    reading: PlnReading,
}

impl Found {
    /// Another entry of the same PLN.
    pub(in super::super) fn at(self, entry: usize) -> Self {
        Self { entry, ..self }
    }

    /// Entries of the PLN.
    pub(in super::super) fn siblings(&self) -> usize {
        self.reading.count
    }
}

/// Sizes of the inner nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct InnerSizes {
    pub(in super::super) nodes: u64,
    /// Blocks of the pool and their bytes.
    pub(in super::super) blocks: u64,
    pub(in super::super) bytes: u64,
}

/// The separators of all segments, and the segments. There is at least one.
pub(in super::super) struct Directory {
    arena: Arena,
    segments: Vec<Arc<Segment>>,
    shape: Shape,
}

/// A directory in which some segments have been replaced.
pub(in super::super) struct Rebuilt {
    /// None if no leaf is left.
    pub(in super::super) directory: Option<Directory>,
    /// The segments of the old directory that are not in the new one.
    replaced: std::ops::Range<usize>,
    /// Entries that were written.
    pub(in super::super) entries: usize,
}

impl Directory {
    /// Builds all inner nodes from the leaves' separators, in order; none if there are no leaves.
    /// `place` says where in the model's DRAM so many bytes lie.
    pub(in super::super) fn build<D: Domain>(
        pool: &Pool<D>,
        shape: Shape,
        entries: &[Entry],
        place: &dyn Fn(usize) -> usize,
    ) -> Option<Self> {
        let segments = segments_of(pool, shape, entries, place);
        Self::of(pool, shape, segments, place)
    }

    fn of<D: Domain>(
        pool: &Pool<D>,
        shape: Shape,
        segments: Vec<Arc<Segment>>,
        place: &dyn Fn(usize) -> usize,
    ) -> Option<Self> {
        if segments.is_empty() {
            return None;
        }
        let count = segments.len();
        let keys: usize = segments.iter().map(|segment| segment.low.words()).sum();
        let used = if shape.has_keys { 2 * count + keys } else { count };
        let arena = Arena::new(pool, shape.inner_nodes, used, place(used * 8));
        let words = arena.words(pool);
        let mut key_at = 2 * count;
        for (index, segment) in segments.iter().enumerate() {
            words.store(index, segment.low.first);
            if shape.has_keys {
                words.store_key(key_at, &segment.low.bytes);
                words.store(count + index, key_at as u64);
                key_at += segment.low.words();
            }
        }
        Some(Self { arena, segments, shape })
    }

    /// The leaf behind the last separator that `probe` admits, or the first leaf.
    #[inline(always)]
    pub(in super::super) fn find<D: Domain>(&self, pool: &Pool<D>, probe: Probe<'_>) -> Found {
        if self.shape.has_keys {
            return self.find_by(pool, false, |words, at, key_at| probe.admits(words, at, key_at));
        }
        let most = probe.most();
        self.find_by(pool, true, |words, at, _| words.load(at) <= most)
    }

    #[inline(always)]
    fn find_by<D: Domain>(
        &self,
        pool: &Pool<D>,
        are_integers: bool,
        admits: impl Fn(Words<'_, D>, usize, usize) -> bool,
    ) -> Found {
        let (top, count) = (self.arena.words(pool), self.segments.len());
        let at = last_admitted(count, are_integers, |index| admits(top, index, count + index));
        let segment = &*self.segments[at];
        let words = segment.words(pool);
        let keys_at = segment.key_of_inner_entry();
        let pln = last_admitted(segment.plns, are_integers, |index| {
            admits(words, index, keys_at + index)
        });
        segment.prefetch_pln(words, pln);
        loop {
            let reading = segment.read_pln(words, pln);
            let entry = segment
                .search_pln(words, reading, are_integers, |at, key_at| admits(words, at, key_at));
            let link = words.load(segment.link_at(reading, entry));
            let found = Found { link, segment: at, pln, entry, reading };
            if self.is_still(pool, &found) {
                return found;
            }
        }
    }

    /// Whether the PLN is what it was when `found` was found in it.
    #[inline(always)]
    pub(in super::super) fn is_still<D: Domain>(&self, pool: &Pool<D>, found: &Found) -> bool {
        order_loads();
        let segment = &self.segments[found.segment];
        segment.is_still(segment.words(pool), found.pln, found.reading.edition)
    }

    /// The separator of what was found; none if that is the first leaf of all. Right if the PLN is
    /// still the same afterwards.
    pub(in super::super) fn lower<D: Domain>(
        &self,
        pool: &Pool<D>,
        found: &Found,
    ) -> Option<Separator> {
        let first = found.segment == 0 && found.pln == 0 && found.entry == 0;
        (!first).then(|| self.entry(pool, found, found.entry).key)
    }

    /// The separator behind what was found; none if that is the last leaf of all. As above.
    pub(in super::super) fn upper<D: Domain>(
        &self,
        pool: &Pool<D>,
        found: &Found,
    ) -> Option<Separator> {
        if found.entry + 1 < found.reading.count {
            return Some(self.entry(pool, found, found.entry + 1).key);
        }
        let segment = &self.segments[found.segment];
        if found.pln + 1 < segment.plns {
            let words = segment.words(pool);
            return Some(segment.separator(words, found.pln + 1, segment.key_of_inner_entry()));
        }
        self.segments.get(found.segment + 1).map(|next| next.low.clone())
    }

    /// An entry of the PLN in which something was found.
    pub(in super::super) fn entry<D: Domain>(
        &self,
        pool: &Pool<D>,
        found: &Found,
        index: usize,
    ) -> Entry {
        let segment = &self.segments[found.segment];
        segment.entry(segment.words(pool), found.reading, index)
    }

    /// The leaf before what was found. The caller holds the lock of the structure.
    pub(in super::super) fn before<D: Domain>(&self, pool: &Pool<D>, found: &Found) -> Option<u64> {
        if found.entry > 0 {
            return Some(self.entry(pool, found, found.entry - 1).link);
        }
        let (segment, pln) = match (found.segment, found.pln) {
            (0, 0) => return None,
            (before, 0) => (&self.segments[before - 1], self.segments[before - 1].plns - 1),
            (at, pln) => (&self.segments[at], pln - 1),
        };
        let words = segment.words(pool);
        let reading = segment.read_pln(words, pln);
        Some(words.load(segment.link_at(reading, reading.count - 1)))
    }

    /// Whether `edit` can be made in the PLN of `found`.
    pub(in super::super) fn takes<D: Domain>(
        &self,
        pool: &Pool<D>,
        found: &Found,
        edit: &Edit,
    ) -> bool {
        let segment = &self.segments[found.segment];
        segment.takes(segment.words(pool), found.pln, edit)
    }

    /// Makes an edit that the PLN takes. The caller holds the lock of the structure.
    pub(in super::super) fn edit<D: Domain>(&self, pool: &Pool<D>, found: &Found, edit: &Edit) {
        let segment = &self.segments[found.segment];
        segment.edit(segment.words(pool), found.pln, edit);
    }

    /// Builds the segment of `found` anew, with `edit` made, as one, as several, or together with a
    /// neighbour. Nobody sees it yet. The caller holds the lock of the structure.
    pub(in super::super) fn rebuilt<D: Domain>(
        &self,
        pool: &Pool<D>,
        found: &Found,
        edit: &Edit,
        place: &dyn Fn(usize) -> usize,
    ) -> Rebuilt {
        let all = |index: usize, edit| {
            let segment = &self.segments[index];
            segment.entries(segment.words(pool), edit)
        };
        let mut replaced = found.segment..found.segment + 1;
        let mut entries = all(found.segment, Some((found.pln, edit)));
        let is_small = |entries: &[Entry], part| entries.len() <= self.shape.segment_fill() / part;
        if is_small(&entries, 8) && self.segments.len() > 1 {
            let neighbour = if replaced.start > 0 { replaced.start - 1 } else { replaced.end };
            let others = all(neighbour, None);
            if is_small(&others, 2) {
                let at = if neighbour < replaced.start { 0 } else { entries.len() };
                entries.splice(at..at, others);
                replaced = replaced.start.min(neighbour)..replaced.end.max(neighbour + 1);
            }
        }
        let mut segments = self.segments.clone();
        segments.splice(replaced.clone(), segments_of(pool, self.shape, &entries, place));
        let directory = Self::of(pool, self.shape, segments, place);
        Rebuilt { directory, replaced, entries: entries.len() }
    }

    /// Gives back the blocks of this directory, and of the segments that `rebuilt` has replaced,
    /// when their readers have gone.
    pub(in super::super) fn retire<D: Domain>(
        &self,
        pool: &Pool<D>,
        rebuilt: &Rebuilt,
        guard: &Guard<'_, D>,
    ) {
        self.arena.retire(pool, guard);
        for segment in &self.segments[rebuilt.replaced.clone()] {
            segment.arena.retire(pool, guard);
        }
    }

    fn arenas(&self) -> impl Iterator<Item = &Arena> {
        std::iter::once(&self.arena).chain(self.segments.iter().map(|segment| &segment.arena))
    }

    /// Gives all blocks back at once.
    pub(in super::super) fn free<D: Domain>(&self, pool: &Pool<D>) {
        self.arenas().for_each(|arena| arena.free(pool));
    }

    pub(in super::super) fn visit_blocks<D: Domain>(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.arenas().for_each(|arena| arena.visit_blocks(visitor));
    }

    /// All entries, in order. Nobody changes them meanwhile.
    pub(in super::super) fn entries<D: Domain>(&self, pool: &Pool<D>) -> Vec<Entry> {
        let of = |segment: &Arc<Segment>| segment.entries(segment.words(pool), None);
        self.segments.iter().flat_map(of).collect()
    }

    /// Nodes that lead to the segments: 0 if there is only one.
    fn levels_above(&self) -> u64 {
        let (mut levels, mut nodes) = (0, self.segments.len());
        while nodes > 1 {
            nodes = nodes.div_ceil(self.shape.fanout);
            levels += 1;
        }
        levels
    }

    /// Nodes on the way to a leaf that was found.
    pub(in super::super) fn depth_of(&self, found: &Found) -> u64 {
        self.levels_above() + 1 + u64::from(self.segments[found.segment].plns > 1)
    }

    pub(in super::super) fn sizes(&self) -> InnerSizes {
        let mut sizes = InnerSizes::default();
        let mut nodes = self.segments.len();
        while nodes > 1 {
            nodes = nodes.div_ceil(self.shape.fanout);
            sizes.nodes += nodes as u64;
        }
        for segment in &self.segments {
            sizes.nodes += segment.plns as u64 + u64::from(segment.plns > 1);
        }
        for bytes in self.arenas().filter_map(Arena::pool_bytes) {
            sizes.blocks += 1;
            sizes.bytes += bytes as u64;
        }
        sizes
    }
}

fn segments_of<D: Domain>(
    pool: &Pool<D>,
    shape: Shape,
    entries: &[Entry],
    place: &dyn Fn(usize) -> usize,
) -> Vec<Arc<Segment>> {
    let pieces = entries.len().div_ceil(shape.segment_fill());
    (0..pieces)
        .map(|piece| {
            let from = piece * entries.len() / pieces;
            let to = (piece + 1) * entries.len() / pieces;
            Arc::new(Segment::build(pool, shape, &entries[from..to], place))
        })
        .collect()
}
