//! Level hashing: two levels of buckets, of which growing moves only the lower.
//!
//! Zuo, Hua, Wu: "Write-Optimized and High-Performance Hashing Index Scheme for Persistent Memory",
//! OSDI 2018; what it writes: Lee, Ahn, Kim, Oh: "Write Amplification of PM-aware Index Structures", IEEE
//! Access 2021. A key has two hashes, and by each of them a bucket of the top level and, below it, one of
//! the bottom level, which has half as many. So an entry has four places, and can make room by moving
//! once.
//!
//! ```text
//!  index root                             top: 2^n buckets
//!  +-----+--------+----------+------+     +-----+-----+-----+-----+----
//!  | top | bottom | movement | ...  |     |  0  |  1  |  2  |  3  | ...
//!  +--|--+---|----+----------+------+     +-----+-----+-----+-----+----
//!     |      |                             group 0     group 1
//!     |      +- n - 1, link ------------▶ +-----------+-----------+----
//!     +--- n, link                        |     0     |     1     | ...   bottom: 2^(n - 1) buckets
//!                                         +-----------+-----------+----
//!
//!  bucket (one line): as `hash_table/bucket.rs`, and nothing behind the three slots
//! ```
//!
//! On a modelled machine whose layouts are padded ([`Observed::padding_bytes`](lapis_pmem::Observed::padding_bytes))
//! 8 bytes more follow each bucket, as in the authors' code, so that most lie in two lines.
//!
//! Two buckets of the top level and the one below them are a group. Its lock is that of its first bucket;
//! in the others the word only says which slots are occupied. The hashes are the two halves of one: the
//! upper bits choose by the first, and bit 31 and those below it by the second. Any key word and any value
//! can be stored.
//!
//! `words[0]` of the root is the lock for moving and growing. The bottom level is in `words[1]` or
//! `words[2]`, whichever has the parity of `n`. `words[3]` is the slot of the last entry that was moved,
//! with its number in the lowest bits. `words[4]` counts iterations that are under way.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. `top`, and the word of its parity, refer to durable tables, the second of half as many buckets as
//!   the first, in which all keys are durable.
//! * I2. A slot whose bit is set holds a key word and a value that belong together, and the key is
//!   durable. Contents of slots whose bit is clear mean nothing.
//! * I3. A key is in one of its four buckets, and once; but the key in the slot that `words[3]` names may
//!   be in another of its buckets besides, with the same value. Opening the table ends that.
//! * I4. A lock that is held in the present generation of the pool has a holder that runs, or is that of
//!   a group that has been replaced.
//!
//! # The order of stores
//!
//! ```text
//!  insert      value │ key word │ occupancy: flush │ fence    (one line: R2 keeps the order)
//!  update      value: flush │ fence
//!  remove      occupancy: flush │ fence
//!  move x      words[3]: flush │ fence │ copy of x, as an insert: flush │ fence │
//!              occupancy without x │ the new entry in its slot, as an insert: flush │ fence
//!  grow        new top, past the caches │ fence │ bottom word │ top: flush │ fence │ retire the old bottom
//! ```
//!
//! A byte-string key is flushed and fenced before. An entry goes to the emptier one of its two buckets of
//! the top level, else of the bottom level. Growing makes the top level the bottom level and moves
//! the entries of the old bottom level into a new top level: those of one bucket go to four neighbours, by
//! the hash that led them there, so that there is always room. The bottom word and `top` lie in one line
//! and persist in this order; of the words for the bottom level the other one is still that of the old
//! `top`. A crash leaves the one or the other pair, and no state of a resize has to be kept.
//!
//! The table never shrinks. It is grown when an entry finds its four buckets full and none of their
//! entries has room elsewhere on its level, at a load of some four fifths.
//!
//! # Writers
//!
//! A key is changed under the lock of its first group, and a bucket under that of its own group: so most
//! changes take one lock, and those in a bucket of the second group two. Who waits for a second one has the
//! lower, as growing does; otherwise it is only tried. Moving an entry takes the locks of both its groups,
//! and that for moving: there is one movement at a time, so that one word can say which key may be twice.
//! Growing takes all locks, and those of the groups that it replaces are never given back: a lock that could
//! be taken belongs to the current table. Writers wait while `top` has been stored and is not durable yet,
//! which the lock for growing tells them.
//!
//! # Readers
//!
//! They take no lock and write nothing; as P-CLHT's they do not even pin for integers, since `top` never
//! has a former value. They read `top`, the lock of the key's first group, its buckets, the lock again and
//! `top` again: a change of the key would have been counted. A movement is counted between copying and
//! clearing as well, for who has passed the one place before the copy and the other after the clearing
//! would miss the entry. A reader that finds the lock held persists what it has read before it answers.
//!
//! An iteration must meet each entry once, wherever it is moved. It says that it is under way, and then
//! nothing is moved; what finds no room makes the table grow. One movement may have begun before: its slot is
//! in `words[3]`, and that entry is looked up at the end. Both sides store their word by a locked
//! instruction before they read the other's.

mod check;
mod grow;
mod levels;
mod locks;
mod movement;
pub mod mutants;
mod read;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_pmem::{
    Domain, GenerationLock, Guard, InFlight, Link, LockGeneration, Optimisation, Optimisations,
    Owned, PCell, Pool, Resident,
};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::hash_table::bucket::{Bucket, SLOTS};
use crate::hash_table::counter::Counter;
use crate::hash_table::table::Table;
use crate::hash_table::{forward_to_parts, locks as table_locks, writer};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, RoomNeeded};
use crate::key::IndexKey;
use crate::root::IndexRoot;

use levels::Levels;

/// The layout this code writes and the newest it reads.
const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: the lock for moving and growing.
const LOCK_WORD: usize = 0;
/// [`IndexRoot::words`]: the slot of the last entry that was moved.
const MOVED_WORD: usize = 3;
/// [`IndexRoot::words`]: iterations under way.
const ITERATIONS_WORD: usize = 4;

/// The top level has at most two to the power of this many buckets.
const MAX_LOG2: u32 = 29;
/// 2048 buckets above 1024. The sizes of blocks between a page and a chunk share slabs of eight chunks
/// each, with which smaller tables would fill a small pool on their way.
const DEFAULT_LOG2: u32 = 11;
/// Slots that are occupied of a table that is made for so many entries.
const LOAD: f64 = 0.7;

/// Level hashing. See the module documentation in the source.
///
/// An index may have several handles in one opening of its pool.
#[derive(Debug)]
pub struct LevelHash<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    root_block: Resident<D, IndexRoot>,
    generation: LockGeneration,
    /// The root's.
    seed: u64,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        &self.root_block
    }

    #[inline(always)]
    fn top(&self) -> Table<Bucket> {
        self.level_in(self.root().top.word())
    }

    #[inline(always)]
    fn level_in(&self, word: &PCell<u64>) -> Table<Bucket> {
        Table::in_word(word, self.domain()).padded(self.domain().padding_bytes())
    }

    /// The levels. They belong together if `top` is the same when they have been used, or a lock of the top level was
    /// free afterwards: the table may have grown twice between two words.
    #[inline(always)]
    fn levels(&self) -> Levels {
        let top = self.top();
        Levels { top, bottom: self.level_in(self.bottom_word(top.log2())) }
    }

    /// The lock of whoever moves an entry or grows the table.
    #[inline(always)]
    fn structure(&self) -> &GenerationLock {
        GenerationLock::in_word(&self.root().words[LOCK_WORD])
    }

    /// Counts iterations that are under way.
    fn iterations(&self) -> Counter<'_, D> {
        Counter::new(&self.root().words[ITERATIONS_WORD], self.domain(), self.pool.generation())
    }

    /// The bucket at `link`.
    ///
    /// # Panics
    /// If it is not inside the pool.
    #[inline(always)]
    fn bucket(&self, link: Link<Bucket>) -> &Bucket {
        self.pool.at(link)
    }
}

/// How many buckets the top level of a new table has that is to take `expected_entries` without growing.
fn initial_log2(expected_entries: usize) -> Result<u32, IndexError> {
    if expected_entries == 0 {
        return Ok(DEFAULT_LOG2);
    }
    // A group has two buckets of the top level and one of the bottom level.
    let groups = (expected_entries as f64 / (3.0 * SLOTS as f64 * LOAD)).ceil() as u64;
    let log2 = groups.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros).max(1) + 1;
    if log2 > MAX_LOG2 {
        return Err(IndexError::BadOption {
            what: format!("level hashing cannot be made for {expected_entries} entries"),
        });
    }
    Ok(log2)
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for LevelHash<D, K> {
    const KIND: IndexKind = IndexKind::LevelHash;
    const CAPABILITIES: Capabilities = Capabilities::HASHED;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let log2 = initial_log2(options.expected_entries)?;
        let mut root = pool.allocate::<IndexRoot>()?;
        let level = |log2| writer::empty(pool, log2, pool.domain().padding_bytes());
        let (top, bottom) = (level(log2)?, level(log2 - 1)?);
        root.init(pool.domain(), Self::KIND, K::KIND, FORMAT_VERSION);
        root.choose_seed(pool.domain(), options);
        let words = [Table::new(top.link(), log2), Table::new(bottom.link(), log2 - 1)];
        let [top_word, bottom_word] = words.map(Table::bits);
        // I1: nobody reaches the root before the fence that the caller still has to make.
        let at = levels::bottom_at(log2);
        root.link_children(|root| &root.words[at], bottom, |_| bottom_word);
        root.link_children(|root| root.top.word(), top, |_| top_word);
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let _ = IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let generation = table_locks::generation(&pool, mutants::PERSISTED_LOCK);
        let root_block = pool.resident(root);
        let seed = root_block.seed.load(pool.domain());
        let index = Self { pool, root, root_block, generation, seed, _keys: PhantomData };
        if !index.current_levels().are_inside(&index.pool) {
            return Err(IndexError::Damaged { what: "its levels are not inside the pool".into() });
        }
        index.complete_movement();
        Ok(index)
    }

    /// # Panics
    /// If the index is damaged in such a way that a level is not inside the pool.
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        // Keys out of line are read as slices, which must not be freed meanwhile.
        let _guard = (!K::INLINE).then(|| self.pool.pin());
        self.look_up(key)
    }

    /// # Panics
    /// As [`Index::get`].
    #[inline]
    fn get_pinned(&self, key: &K, _pinned: &Guard<'_, D>) -> Option<u64> {
        self.look_up(key)
    }

    fn room_for(&self, changes: usize) -> RoomNeeded {
        self.room_to_grow(changes)
    }

    fn prefetch(&self, key: &K) {
        self.prefetch_buckets(self.levels(), self.hashes_of(key));
    }

    forward_to_parts!(D, K);
}

#[cfg(test)]
mod tests;

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "level-hash",
    title: "Level hashing",
    paper: "Zuo et al., OSDI 2018",
    insert_u64: InsertCost::of(1, 1),
    insert_bytes: InsertCost::of(2, 2),
    optimisations: Optimisations::of(&[
        Optimisation::RemovalOfBloat,
        Optimisation::FlushCoalescing,
        Optimisation::EarlyEviction,
    ]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/level_hash", "index/src/hash_table"],
        // Six buckets, so that the table grows more than once.
        options: IndexOptions { expected_entries: 1, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("level-hash:u64").of(320),
            Run::byte_strings("level-hash:bytes").of(320),
        ],
        histories: &[
            ("level-hash:growing", History::GrownTable(10)),
            ("level-hash:used-slot", History::UsedSlot(10, 4)),
            ("level-hash:scanned-slot", History::ScannedSlot(10, 4)),
            // For either key room has to be made, and in different groups.
            ("level-hash:moving", History::TwoInserts(67, 78)),
            // The next slot of the first one's second group is that of the other's first.
            ("level-hash:sharing", History::TwoInserts(9, 12)),
        ],
        persist_points: (300, 2),
        rate_operations: 60,
    },
};
