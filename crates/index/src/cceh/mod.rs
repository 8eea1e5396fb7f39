//! CCEH: cacheline-conscious extendible hashing.
//!
//! Nam, Cha, Choi, Noh, Nam: "Write-Optimized Dynamic Hashing for Persistent Memory", FAST 2019;
//! what it writes: Lee, Ahn, Kim, Oh: "Write Amplification of PM-aware Index Structures", IEEE Access
//! 2021. The first bits of a hash choose, by a directory, a segment of 16 KiB, and the last ones a line
//! in it. The table grows a segment at a time.
//!
//! ```text
//!  index root                                   directory: 2^G entries
//!  +-----+------+------------------------+      +------+------+------+------+
//!  | top | lock | record | segment bytes |      | 00   | 01   | 10   | 11   |   here G is 2
//!  +--|--+------+------------------------+      +--|---+--|---+--|---+--|---+
//!     +------------------- G, link ---------------▶|      |      |      |
//!                               depth 1, link ─────+------+      |      |  depth 2, link
//!                                                         ▼      ▼      ▼
//!                                                     segment  segment  segment
//!
//!  segment (16 KiB)
//!  offset  bytes  field
//!       0      8  lock           GenerationLock
//!       8      8  start          the smallest hash that the segment is for
//!      16      8  until_counted  removals until the entries are counted: a hint
//!      24     40  reserved, zero
//!      64     64  line 0         four slots: key word, value
//!     ...     64  line 254
//! ```
//!
//! Words that refer to something have a depth in their upper 16 bits. The lines that a key may be in are
//! its home and the three behind it, the first following on the last. Any key word and any value can be
//! stored: what is in a free slot is the word of a key that belongs elsewhere.
//!
//! `words[0]` of the root is the lock for changes of the directory, `words[1..4]` are the record of the
//! last one (`directory.rs`), `words[4]` says how large segments are.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. `top` refers to a durable directory of as many entries as it says.
//! * I2. Each entry refers to a durable segment. With the change completed that is recorded, all entries
//!   for hashes that begin with the same `depth` bits are the same, and that segment's `start` is the
//!   least of these hashes.
//! * I3. An integer's slot counts if the hash of its key begins with those bits, a byte string's if its
//!   word is not zero. It then holds a key word and a value that belong together, the key is durable, and
//!   the slot is in the key's window. What other slots hold means nothing.
//! * I4. A key counts at most once.
//! * I5. The record is that of the last change of the directory. Until the entries that it names are
//!   durable nobody records another, and what it leads to is as current as what it replaces. Carrying it
//!   out once more changes nothing.
//! * I6. A lock that is held in the present generation of the pool has a holder that runs.
//!
//! # The order of stores
//!
//! ```text
//!  insert      value │ key word: flush │ fence            (one line: R2 keeps the order)
//!  update      value: flush │ fence
//!  remove      a free slot's word: flush │ fence
//!  split       upper half's segment, past the caches │ fence │ record: flush │ fence │
//!              entries: flush │ fence
//!  merge       segment of both │ fence │ record: flush │ fence │ entries: flush │ fence │
//!              retire the two
//!  directory   new one: flush │ fence │ top: flush │ fence │ retire the old one
//! ```
//!
//! A byte-string key is flushed and fenced before its word is stored. A change is made under the lock of
//! its segment; who changes the directory has the locks of all segments that the change replaces or
//! divides, and then that of the directory.
//!
//! **Lazy deletion.** A segment that is split keeps the entries of its upper half: since the entries of
//! the directory say that it is deeper, these slots are free (I3). A word of a byte string does not say
//! what its key's hash is, and the key may be gone; so segments of byte strings are split into two new
//! ones.
//!
//! **A half-done split.** The published table stores one entry after the other, and what it finds after a
//! crash in between are entries of two depths, from which it cannot tell what has been moved: it takes
//! the right neighbours for what they should be. Here the split is certain as soon as its record is
//! durable (I5), and opening the table carries it out once more. There is one record, so one change of
//! the directory at a time; what takes long, building the segment, is done before.
//!
//! **Shrinking.** After so many removals as can have left a quarter of its slots in use, a segment's
//! entries are counted; if its buddy has as few, the two become one. When no segment is as deep as the
//! directory, the directory is halved. Both need room for what is new, and do not happen without it.
//!
//! # Readers
//!
//! They take no lock and write nothing. They pin, so that no segment or directory that they have found is
//! used for something else, and read the entry, the segment's lock, the window, the lock again and the
//! entry again. If the lock has counted no section and the entry is the same, what was read was there at
//! one instant: a segment that is replaced or divided never becomes an entry again as it was. A reader
//! that finds the lock held persists the window before it answers. That the entry, or `top`, may not be
//! durable yet concerns no reader: the record is, or the old directory says the same.

mod check;
mod directory;
pub mod mutants;
mod read;
mod restructure;
mod segment;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_pmem::{
    AllocError, Domain, GenerationLock, Guard, InFlight, Link, LockGeneration, Optimisation,
    Optimisations, Owned, Pool,
};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::hash_table::{forward_to_parts, locks};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, RoomNeeded};
use crate::key::{IndexKey, place_hash_by};
use crate::root::IndexRoot;

use directory::{Directory, Reference};
use segment::{Header, Image, MAX_DEPTH, Prefix, SEGMENT_SIZES, SLOTS, Segment, few_entries};

/// The layout this code writes and the newest it reads.
const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: the lock for changes of the directory.
const LOCK_WORD: usize = 0;
/// [`IndexRoot::words`]: bytes per segment.
const SEGMENT_BYTES_WORD: usize = 4;

/// Extendible hashing. See the module documentation in the source.
///
/// An index may have several handles in one opening of its pool.
#[derive(Debug)]
pub struct Cceh<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    generation: LockGeneration,
    /// Lines behind a segment's header.
    lines: usize,
    /// The root's.
    seed: u64,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Cceh<D, K> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        self.pool.at(self.root)
    }

    /// The hash that decides about a key's segment and its window there.
    #[inline(always)]
    fn hash_of(&self, key: &K) -> u64 {
        place_hash_by(key, self.seed)
    }

    /// The lock for changes of the directory.
    fn structure_lock(&self) -> &GenerationLock {
        GenerationLock::in_word(&self.root().words[LOCK_WORD])
    }

    #[inline(always)]
    fn directory(&self) -> Directory {
        Directory::in_word(self.root().top.word(), self.domain())
    }

    /// The entry of the directory for a hash, if the directory is inside the pool.
    #[inline(always)]
    fn reference(&self, hash: u64) -> Option<Reference> {
        self.reference_in(self.directory(), hash)
    }

    #[inline(always)]
    fn reference_in(&self, directory: Directory, hash: u64) -> Option<Reference> {
        let entry = self.pool.try_at(directory.at(directory.index_of(hash)))?;
        Some(Reference(entry.load_acquire(self.domain())))
    }

    #[inline(always)]
    fn segment(&self, link: Link<Header>) -> Option<Segment<'_>> {
        Segment::at(&self.pool, link, self.lines, self.seed)
    }

    fn segment_bytes(&self) -> usize {
        size_of::<Header>() + self.lines * lapis_pmem::LINE_BYTES
    }
}

#[cold]
fn damaged_directory() -> IndexError {
    IndexError::Damaged { what: "its directory leads out of the pool".into() }
}

#[cold]
#[inline(never)]
fn leads_out_of_the_pool() -> ! {
    panic!("the pool is damaged: a directory leads out of it")
}

/// The depth of a new table that is to take `expected_entries`: one for three slots, since now and then
/// a window is full long before its segment.
fn initial_depth(expected_entries: usize, lines: usize) -> Result<u32, IndexError> {
    let segments = expected_entries.div_ceil((lines * SLOTS / 3).max(1)).max(2);
    let depth = segments.checked_next_power_of_two().map_or(u64::BITS, usize::trailing_zeros);
    if depth > MAX_DEPTH {
        return Err(IndexError::BadOption {
            what: format!("a CCEH cannot be made for {expected_entries} entries"),
        });
    }
    Ok(depth)
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for Cceh<D, K> {
    const KIND: IndexKind = IndexKind::Cceh;
    const CAPABILITIES: Capabilities = Capabilities::HASHED;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let segment_bytes = SEGMENT_SIZES.chosen(options)?;
        let lines = lines_of(segment_bytes);
        let depth = initial_depth(options.expected_entries, lines)?;
        let asked_bytes = segment_bytes.saturating_mul(1 << depth);
        if asked_bytes > pool.region().reserved_bytes() {
            return Err(AllocError::TooLarge { asked_bytes }.into());
        }
        let domain = pool.domain();
        let mut root = pool.allocate::<IndexRoot>()?;
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.choose_seed(domain, options);
        root.words[SEGMENT_BYTES_WORD].store(domain, segment_bytes as u64);
        let mut segments = Vec::new();
        for index in 0..1u64 << depth {
            let prefix = Prefix::of(index << (64 - depth), depth);
            // Room that was asked for is not given back for the first removals.
            let until_counted = few_entries(lines) as u64;
            segments.push(Image::vacant::<K>(prefix, lines).build(pool, until_counted)?);
        }
        let references = segments.iter().map(|segment| Reference::new(segment.link(), depth));
        let directory = directory::compose(pool, references)?.flush();
        // I1, I2: nobody reaches the root before the fence that the caller still has to make.
        root.link_children(
            |root| root.top.word(),
            (directory, segments),
            |(directory, _)| Directory::new(directory.link(), depth).bits(),
        );
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let found = IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let bytes = SEGMENT_SIZES.found(found.words[SEGMENT_BYTES_WORD].load(pool.domain()))?;
        let generation = locks::generation(&pool, mutants::PERSISTED_LOCK);
        let seed = found.seed.load(pool.domain());
        let index =
            Self { pool, root, generation, lines: lines_of(bytes), seed, _keys: PhantomData };
        if !index.directory().is_inside(&index.pool) {
            return Err(damaged_directory());
        }
        index.complete_change()?;
        Ok(index)
    }

    /// # Panics
    /// If the index is damaged in such a way that its directory leads out of the pool.
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.get_pinned(key, &self.pool.pin())
    }

    /// # Panics
    /// As [`Index::get`].
    #[inline]
    fn get_pinned(&self, key: &K, _pinned: &Guard<'_, D>) -> Option<u64> {
        let (hash, tag) = (self.hash_of(key), key.tag());
        loop {
            if let Some(found) = self.try_get(hash, key, tag) {
                return found;
            }
        }
    }

    fn room_for(&self, changes: usize) -> RoomNeeded {
        self.room_to_split(changes)
    }

    /// Its part of the directory is read: it is small beside the segments.
    fn prefetch(&self, key: &K) {
        let (_pinned, hash) = (self.pool.pin(), self.hash_of(key));
        // What leads out of the pool is for the look-up to say.
        let reference = self.reference(hash);
        if let Some(segment) = reference.and_then(|reference| self.segment(reference.link())) {
            self.domain().prefetch((&raw const *segment.header).cast());
            self.prefetch_window(segment, hash);
        }
    }

    forward_to_parts!(D, K);
}

fn lines_of(segment_bytes: usize) -> usize {
    segment_bytes / lapis_pmem::LINE_BYTES - 1
}

#[cfg(test)]
mod tests;

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "cceh",
    title: "CCEH",
    paper: "Nam et al., FAST 2019",
    insert_u64: InsertCost::of(1, 1),
    insert_bytes: InsertCost::of(2, 2),
    optimisations: Optimisations::of(&[Optimisation::FlushCoalescing, Optimisation::EarlyEviction]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/cceh"],
        // Segments of twenty slots, of which a key has sixteen.
        options: IndexOptions { node_bytes: 384, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("cceh:u64").of(320),
            Run::byte_strings("cceh:bytes").of(320),
            // Segments are merged and the directory is halved.
            Run::drained("cceh:drained").filled(),
            // With a directory of many lines.
            Run::drained("cceh:crowded").of(48).crowded(),
            Run { drains: true, ..Run::byte_strings("cceh:drained-bytes").of(80).filled() },
            // Changes of the directory replace entries in several lines.
            Run::large("cceh:wide", 320).crowded(),
            // One of the two first segments is about to be split.
            Run::large("cceh:in-use", 2728).as_in_use(),
        ],
        histories: &[
            ("cceh:growing", History::GrownTable(24)),
            ("cceh:used-slot", History::UsedSlot(20, 6)),
            // Segments are split, and their slots are used by what stays in them.
            ("cceh:divided", History::UsedSlot(28, 24)),
            ("cceh:scanned-slot", History::ScannedSlot(20, 6)),
            ("cceh:scanned-divided", History::ScannedSlot(28, 24)),
        ],
        persist_points: (300, 2),
        rate_operations: 60,
    },
};
