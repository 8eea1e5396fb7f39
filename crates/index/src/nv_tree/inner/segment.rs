//! Segments: an inner node and its parent-of-leaf nodes (PLNs), in one piece, without pointers.
//!
//! ```text
//!  words
//!  inner node  n first words of separators │ n places of whole keys (byte strings only)
//!  PLN 0       one line: edition (48 bits), entries (16) │ pivots of copy 0 │ of copy 1 │ copy 0 │ copy 1
//!  ...            pivots: one line, the first words of the separators 16, 32, ..
//!                 a copy: first words of separators │ places (byte strings only) │ links of leaves
//!  PLN n-1
//!  keys        length and bytes of each separator (byte strings only), appended
//! ```
//!
//! PLN i is the child of entry i of the inner node; nothing refers to it. A PLN changes by writing
//! its other copy and then its first line: one store, whose lowest bit of the edition says which
//! copy counts. A reader that finds the line as it was has read one moment; one that does not knows
//! that somebody has made a change since. So readers wait for nobody, and a PLN has never more
//! than one step of a change to show.
//!
//! A search waits for the first line and the pivots, which come together, and then for 16 separators and their links.
//!
//! Entry 0, of the inner node and of a PLN, covers everything below entry 1 whatever its key.

use lapis_pmem::{Domain, LINE_BYTES, Pool};

use super::arena::{Arena, Words, key_words};
use crate::group_search::{GROUP, last_admitted, partition_point};
use crate::index::InnerNodes;
use crate::key::leading_word;

/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES / 8;
/// Words before the copies of a PLN: its first line, and the pivots of each copy.
const PLN_HEAD_WORDS: usize = 3 * LINE_WORDS;
/// Pivots of a copy: a power of two less one.
const PIVOTS: usize = LINE_WORDS - 1;
/// Entries of a PLN that as many pivots serve.
pub(in super::super) const MOST_PLN_ENTRIES: usize = (PIVOTS + 1) * GROUP;
/// Words for keys that are left free at the least.
const SPARE_KEY_WORDS: usize = 256;
const COUNT_BITS: u32 = 16;

/// A separator with the leaf behind it, outside of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry {
    pub(in super::super) key: Separator,
    pub(in super::super) link: u64,
}

/// A key that all behind it are not below: an integer, or a byte string and its first word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Separator {
    pub(in super::super) first: u64,
    /// Empty for integers.
    pub(in super::super) bytes: Box<[u8]>,
}

impl Separator {
    pub(in super::super) fn integer(key: u64) -> Self {
        Self { first: key, bytes: Box::default() }
    }

    pub(in super::super) fn string(key: &[u8]) -> Self {
        Self { first: leading_word(key), bytes: key.into() }
    }

    pub(super) fn words(&self) -> usize {
        if self.bytes.is_empty() { 0 } else { key_words(self.bytes.len()) }
    }
}

/// The sizes of nodes, in entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Shape {
    pub(in super::super) pln_entries: usize,
    pub(in super::super) fanout: usize,
    /// Keys are byte strings, of which nodes hold the first word and the place.
    pub(in super::super) has_keys: bool,
    pub(in super::super) inner_nodes: InnerNodes,
}

impl Shape {
    /// Entries that a new PLN gets: half of what it has room for, as in the paper.
    pub(super) fn pln_fill(&self) -> usize {
        self.pln_entries / 2
    }

    /// Entries with which a segment is full when it is built.
    pub(super) fn segment_fill(&self) -> usize {
        self.pln_fill() * self.fanout
    }

    fn copy_words(&self) -> usize {
        self.pln_entries * if self.has_keys { 3 } else { 2 }
    }

    fn pln_words(&self) -> usize {
        (PLN_HEAD_WORDS + 2 * self.copy_words()).next_multiple_of(8)
    }
}

/// A change of the entries of one PLN.
#[derive(Clone, Debug)]
pub(in super::super) struct Edit {
    /// So many entries, from here on, go.
    pub(in super::super) entry: usize,
    pub(in super::super) removed: usize,
    /// The leaf that takes the place of all of them, behind the separator of the first.
    pub(in super::super) replaced_by: Option<u64>,
    /// What comes behind that.
    pub(in super::super) followed_by: Option<Entry>,
}

impl Edit {
    fn grows(&self, count: usize) -> usize {
        count - self.removed
            + usize::from(self.replaced_by.is_some())
            + usize::from(self.followed_by.is_some())
    }
}

/// The copy of a PLN that counts.
#[derive(Clone, Copy)]
pub(super) struct PlnReading {
    /// The word that stays the same as long as the PLN does.
    pub(super) edition: u64,
    /// Where its pivots are.
    pivots_at: usize,
    /// Where its entries begin.
    base: usize,
    pub(super) count: usize,
}

/// An inner node with its PLNs.
pub(super) struct Segment {
    pub(super) arena: Arena,
    pub(super) low: Separator,
    pub(super) plns: usize,
    shape: Shape,
    plns_at: usize,
    keys_end: usize,
    /// Where the next key goes. Changes under the lock of the structure.
    keys_used: std::sync::atomic::AtomicUsize,
}

impl Segment {
    /// Builds a segment of entries, of which there is at least one.
    pub(super) fn build<D: Domain>(
        pool: &Pool<D>,
        shape: Shape,
        entries: &[Entry],
        place: impl FnOnce(usize) -> usize,
    ) -> Self {
        let plns = entries.len().div_ceil(shape.pln_fill());
        let plns_at = (plns * if shape.has_keys { 2 } else { 1 }).next_multiple_of(8);
        let keys_at = plns_at + plns * shape.pln_words();
        let key_words: usize = entries.iter().map(|entry| entry.key.words()).sum();
        let spare = if shape.has_keys { key_words.max(SPARE_KEY_WORDS) } else { 0 };
        let keys_end = keys_at + key_words + spare;
        let arena = Arena::new(pool, shape.inner_nodes, keys_end, place(keys_end * 8));
        let low = entries[0].key.clone();
        let segment =
            Self { arena, low, plns, shape, plns_at, keys_end, keys_used: keys_at.into() };
        let words = segment.words(pool);
        for pln in 0..plns {
            let from = pln * entries.len() / plns;
            let to = (pln + 1) * entries.len() / plns;
            let base = segment.copy_at(pln, 0);
            for (index, entry) in entries[from..to].iter().enumerate() {
                let key_at = segment.add_key(words, &entry.key);
                segment.put(words, (pln, 0), index, (entry.key.first, key_at, entry.link));
            }
            words.store(segment.pln_at(pln), (to - from) as u64);
            words.store(pln, words.load(base));
            if shape.has_keys {
                words.store(plns + pln, words.load(base + shape.pln_entries));
            }
        }
        segment
    }

    #[inline(always)]
    pub(super) fn words<'a, D: Domain>(&'a self, pool: &'a Pool<D>) -> Words<'a, D> {
        self.arena.words(pool)
    }

    #[inline(always)]
    pub(super) fn pln_at(&self, pln: usize) -> usize {
        self.plns_at + pln * self.shape.pln_words()
    }

    #[inline(always)]
    fn copy_at(&self, pln: usize, copy: usize) -> usize {
        self.pln_at(pln) + PLN_HEAD_WORDS + copy * self.shape.copy_words()
    }

    #[inline(always)]
    fn pivots_at(&self, pln: usize, copy: usize) -> usize {
        self.pln_at(pln) + (1 + copy) * LINE_WORDS
    }

    /// Asks for what tells where in a PLN to go on.
    #[inline(always)]
    pub(super) fn prefetch_pln<D: Domain>(&self, words: Words<'_, D>, pln: usize) {
        words.prefetch(self.pln_at(pln), PLN_HEAD_WORDS);
    }

    /// The last entry of a PLN that is admitted; entry 0 if none is. `admits` is asked about the word at a place,
    /// and told where the place of the whole key is kept.
    #[inline(always)]
    pub(super) fn search_pln<D: Domain>(
        &self,
        words: Words<'_, D>,
        reading: PlnReading,
        are_integers: bool,
        admits: impl Fn(usize, usize) -> bool,
    ) -> usize {
        let PlnReading { pivots_at, base, count, .. } = reading;
        let entries = self.shape.pln_entries;
        // Pivot 0 is that of the second group.
        let groups = count.div_ceil(GROUP).max(1);
        let group = last_admitted(groups, are_integers, |group| {
            admits(pivots_at + group - 1, base + entries + group * GROUP)
        });
        let first = group * GROUP;
        let together = GROUP.min(entries - first);
        words.prefetch(base + first, together);
        words.prefetch(self.link_at(reading, first), together);
        // The first one is admitted, or there is none before it.
        let passed = partition_point(are_integers, |index| {
            let index = first + 1 + index;
            (index < count) && admits(base + index, base + entries + index)
        });
        first + passed
    }

    /// Where a PLN's entries are now.
    #[inline(always)]
    pub(super) fn read_pln<D: Domain>(&self, words: Words<'_, D>, pln: usize) -> PlnReading {
        let edition = words.load(self.pln_at(pln));
        let copy = (edition >> COUNT_BITS & 1) as usize;
        let count = (edition & ((1 << COUNT_BITS) - 1)) as usize;
        let (pivots_at, base) = (self.pivots_at(pln, copy), self.copy_at(pln, copy));
        PlnReading { edition, pivots_at, base, count }
    }

    /// Whether a PLN is what it was.
    #[inline(always)]
    pub(super) fn is_still<D: Domain>(
        &self,
        words: Words<'_, D>,
        pln: usize,
        edition: u64,
    ) -> bool {
        words.load(self.pln_at(pln)) == edition
    }

    #[inline(always)]
    pub(super) fn key_of_inner_entry(&self) -> usize {
        self.plns
    }

    /// Where the link of an entry of a PLN is.
    #[inline(always)]
    pub(super) fn link_at(&self, reading: PlnReading, entry: usize) -> usize {
        let arrays = if self.shape.has_keys { 2 } else { 1 };
        reading.base + arrays * self.shape.pln_entries + entry
    }

    /// Writes an entry of a copy of a PLN.
    fn put<D: Domain>(
        &self,
        words: Words<'_, D>,
        (pln, copy): (usize, usize),
        index: usize,
        (first, key_at, link): (u64, u64, u64),
    ) {
        let (base, entries) = (self.copy_at(pln, copy), self.shape.pln_entries);
        if index > 0 && index.is_multiple_of(GROUP) {
            words.store(self.pivots_at(pln, copy) + index / GROUP - 1, first);
        }
        words.store(base + index, first);
        if self.shape.has_keys {
            words.store(base + entries + index, key_at);
            words.store(base + 2 * entries + index, link);
        } else {
            words.store(base + entries + index, link);
        }
    }

    /// Appends a key to the segment's keys, where there is room for it.
    fn add_key<D: Domain>(&self, words: Words<'_, D>, key: &Separator) -> u64 {
        if !self.shape.has_keys {
            return 0;
        }
        let at = self
            .keys_used
            .fetch_add(key_words(key.bytes.len()), std::sync::atomic::Ordering::Relaxed);
        words.store_key(at, &key.bytes);
        at as u64
    }

    /// Whether a PLN has room for an edit and something is left in it.
    pub(super) fn takes<D: Domain>(&self, words: Words<'_, D>, pln: usize, edit: &Edit) -> bool {
        let count = edit.grows(self.read_pln(words, pln).count);
        let free = self.keys_end - self.keys_used.load(std::sync::atomic::Ordering::Relaxed);
        let needed = edit.followed_by.as_ref().map_or(0, |entry| entry.key.words());
        (1..=self.shape.pln_entries).contains(&count) && needed <= free
    }

    /// Makes an edit that the PLN takes. The caller holds the lock of the structure.
    pub(super) fn edit<D: Domain>(&self, words: Words<'_, D>, pln: usize, edit: &Edit) {
        let now = self.read_pln(words, pln);
        let other = (pln, (now.edition >> COUNT_BITS & 1 ^ 1) as usize);
        let mut to = 0;
        let mut add = |entry| {
            self.put(words, other, to, entry);
            to += 1;
        };
        let entry_at = |index| {
            let key_at = if self.shape.has_keys {
                words.load(now.base + self.shape.pln_entries + index)
            } else {
                0
            };
            (words.load(now.base + index), key_at, words.load(self.link_at(now, index)))
        };
        for index in 0..now.count {
            if index == edit.entry {
                if let Some(link) = edit.replaced_by {
                    let (first, key_at, _) = entry_at(index);
                    add((first, key_at, link));
                }
                if let Some(entry) = &edit.followed_by {
                    let key_at = self.add_key(words, &entry.key);
                    add((entry.key.first, key_at, entry.link));
                }
            }
            if !(edit.entry..edit.entry + edit.removed).contains(&index) {
                add(entry_at(index));
            }
        }
        let edition = (now.edition >> COUNT_BITS).wrapping_add(1) << COUNT_BITS;
        words.store(self.pln_at(pln), edition | to as u64);
        // The copy that was current is written only by the next edit: whoever sees one of its
        // stores must see the line above first.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// All entries, with `edit` made in one PLN if it is given. The caller holds the lock of the
    /// structure, or nobody changes it.
    pub(super) fn entries<D: Domain>(
        &self,
        words: Words<'_, D>,
        edit: Option<(usize, &Edit)>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        for pln in 0..self.plns {
            let reading = self.read_pln(words, pln);
            let edit = edit.filter(|(edited, _)| *edited == pln).map(|(_, edit)| edit);
            for index in 0..reading.count {
                let entry = self.entry(words, reading, index);
                let Some(edit) = edit else {
                    entries.push(entry);
                    continue;
                };
                let goes = (edit.entry..edit.entry + edit.removed).contains(&index);
                if index == edit.entry {
                    if let Some(link) = edit.replaced_by {
                        entries.push(Entry { key: entry.key.clone(), link });
                    }
                    entries.extend(edit.followed_by.clone());
                }
                if !goes {
                    entries.push(entry);
                }
            }
        }
        entries
    }

    /// An entry of a PLN.
    pub(super) fn entry<D: Domain>(
        &self,
        words: Words<'_, D>,
        reading: PlnReading,
        index: usize,
    ) -> Entry {
        let at = reading.base + index;
        let key = self.separator(words, at, self.shape.pln_entries);
        Entry { key, link: words.load(self.link_at(reading, index)) }
    }

    /// The separator whose first word is at `at` and whose place is `stride` words further on.
    pub(super) fn separator<D: Domain>(
        &self,
        words: Words<'_, D>,
        at: usize,
        stride: usize,
    ) -> Separator {
        let first = words.load(at);
        let bytes = if self.shape.has_keys {
            words.load_key(words.load(at + stride) as usize).into()
        } else {
            Box::default()
        };
        Separator { first, bytes }
    }
}
