//! P-CLHT: the cache-line hash table on persistent memory.
//!
//! Lee, Mohan, Kashyap, Kim, Chidambaram: "RECIPE: Converting Concurrent DRAM Indexes to
//! Persistent-Memory Indexes", SOSP 2019; the table it converts: David, Guerraoui, Trigonakis:
//! "Asynchronized Concurrency: The Secret to Scaling Concurrent Search Data Structures",
//! ASPLOS 2015. A bucket is one cache line, so that most changes persist with one flush and most
//! searches miss the cache once.
//!
//! ```text
//!  index root            table: 2^n buckets, nothing else      overflow bucket
//!  +-----+----------+    +----------+----------+-----+         +----------+
//!  | top | n, link  |───▶| bucket 0 | bucket 1 | ... |──next──▶| bucket   |──next──▶ null
//!  +-----+----------+    +----------+----------+-----+         +----------+
//!
//!  bucket (one line): lock, three slots of key word and value, next (`hash_table/bucket.rs`)
//! ```
//!
//! An index can be made with *units* of 256 bytes, as much as media write at once: each chain then begins
//! with four neighbouring buckets of the table, linked from the start, and the chain's number is that of the
//! first of them. `words[2]` is how many there are, 0 for one.
//!
//! The lock of a chain is that of its first bucket; in the others the word only says which slots
//! are occupied. `words[0]` of the root is the lock for growing, `words[1]` counts overflow buckets.
//! The word that refers to the table has `n` besides (`hash_table/table.rs`). Chain `i` holds the keys the upper
//! `n` bits of whose hash (`key.rs`, `place_hash_by`, with the root's seed) are `i`, or lie within the unit of bucket `i`. Any key word and any
//! value can be stored.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. `top` refers to a table all of whose buckets, overflow buckets and keys are durable.
//! * I2. A slot whose bit is set holds a key word and a value that belong together, and the key is
//!   durable. Contents of slots whose bit is clear mean nothing.
//! * I3. A key occurs at most once, in its own chain.
//! * I4. `next` is null or refers to a durable bucket of this chain that nothing else refers to. Those within
//!   a unit never change.
//! * I5. Every bucket outside the table holds an entry (else it would be reclaimed only with
//!   the table: a structure that only grows).
//! * I6. A lock that is held in the present generation of the pool has a holder that runs: a crash
//!   may leave any lock word locked, and the next opening of the pool, which has another
//!   generation, makes it free. The occupancy in the word stays true whatever the lock says.
//!
//! # The order of stores
//!
//! * Insert into a free slot: value, key word, occupancy (the lock stays held), all in one line (rule R2 keeps their
//!   order), flush, fence. A byte-string key is flushed and fenced before.
//! * Insert into a full chain: a new bucket that holds the entry is written, flushed, fenced, and
//!   then linked by one store of `next` in the last bucket, flush, fence.
//! * Update: one store of the value, flush, fence.
//! * Remove: one store of `occupancy` in which the bit is clear, flush, fence. The last entry of an
//!   overflow bucket goes by unlinking the bucket instead (I5): one store of the `next` before it.
//! * Growing: under the lock for growing, chain after chain is locked and copied; the new table is
//!   written past the caches, its overflow buckets are flushed, one fence, one store of `top`, flush,
//!   fence; then the old table and its overflow buckets are retired, once. A crash before `top` is
//!   durable leaves the old table, in which nothing but lock words was changed, and blocks that no
//!   root reaches. Without room for a larger table the chains are given back and become longer.
//!
//! The table never shrinks. It stays bounded by its greatest number of entries: a table of `b`
//! units grows only while it has more than `b / 8` overflow buckets, each holding an entry (I5).
//!
//! Readers take no lock and write nothing; `docs/p-clht.md` says why what they read is whole, not freed, and
//! durable, and what the locks cost.

mod check;
pub mod mutants;
mod read;
mod resize;
mod write;

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lapis_pmem::{
    Domain, GenerationLock, Guard, InFlight, Link, LockGeneration, Optimisation, Optimisations,
    Owned, Pool, Resident, XPLINE_BYTES,
};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket};
use crate::hash_table::table::Table;
use crate::hash_table::{forward_to_parts, locks};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, RoomNeeded};
use crate::key::{IndexKey, place_hash_by};
use crate::leaf_entries::visit_word;
use crate::root::IndexRoot;

/// The layout this code writes and the newest it reads.
const FORMAT_VERSION: u32 = 1;

/// [`IndexRoot::words`]: buckets that a chain begins with, if they are not one.
const UNIT_WORD: usize = 2;
/// Buckets in a unit of 256 bytes.
const XPLINE_BUCKETS: u64 = (XPLINE_BYTES / BUCKET_BYTES) as u64;

/// A P-CLHT. See the module documentation in the source.
///
/// An index may have several handles in one opening of its pool.
#[derive(Debug)]
pub struct PClht<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    root_block: Resident<D, IndexRoot>,
    generation: LockGeneration,
    /// Has the bits of a bucket's number that choose the unit.
    units: u64,
    /// The root's.
    seed: u64,
    /// After a growth that failed for want of room: not before there are so many overflow buckets.
    not_before: AtomicU64,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> PClht<D, K> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        &self.root_block
    }

    #[inline(always)]
    fn table(&self) -> Table<Bucket> {
        Table::in_word(self.root().top.word(), self.domain())
    }

    /// The hash that decides about a key's chain.
    #[inline(always)]
    fn hash_of(&self, key: &K) -> u64 {
        place_hash_by(key, self.seed)
    }

    /// The number of the first bucket of a hash's chain.
    #[inline(always)]
    fn chain_of(&self, table: Table<Bucket>, hash: u64) -> u64 {
        table.index_of(hash) & self.units
    }

    /// How many buckets of the table a chain begins with.
    fn unit_buckets(&self) -> u64 {
        self.units.wrapping_neg()
    }

    /// The numbers of the buckets that chains of a table begin with.
    fn chains(&self, table: Table<Bucket>) -> impl Iterator<Item = u64> {
        (0..table.len()).step_by(self.unit_buckets() as usize)
    }

    /// Whether the bucket at `link`, which is not the first of its chain, is of the chain's unit and stays.
    fn is_in_unit(&self, link: Link<Bucket>) -> bool {
        self.unit_buckets() > 1 && self.table().contains(link)
    }

    /// The lock of whoever grows the table.
    #[inline(always)]
    fn growing(&self) -> &GenerationLock {
        GenerationLock::in_word(&self.root().words[0])
    }

    /// The bucket after `bucket`, or none at the end of the chain.
    #[inline(always)]
    fn after(&self, bucket: &Bucket) -> Result<Option<&Bucket>, IndexError> {
        let next = bucket.next.load(self.domain());
        if next.is_null() {
            return Ok(None);
        }
        self.pool.try_at(next).map(Some).ok_or_else(damaged_chain)
    }

    fn visit_entries(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        let _guard = self.pool.pin();
        // If the table is replaced meanwhile, it stays as it was at that moment.
        let table = self.table();
        let mut entries = Vec::new();
        for index in self.chains(table) {
            self.read_chain(table, index, &mut entries);
            for &(word, value) in &entries {
                if visit_word::<D, K, _>(&self.pool, word, value, visit).is_break() {
                    return;
                }
            }
        }
    }

    /// More buckets than the pool has room for: a chain that is followed so far has a cycle.
    fn hop_limit(&self) -> usize {
        self.pool.region().mapped_bytes() / BUCKET_BYTES
    }
}

/// How many buckets chains are to begin with.
fn unit_buckets(options: &IndexOptions) -> Result<u64, IndexError> {
    match options.node_bytes {
        0 | BUCKET_BYTES => Ok(1),
        XPLINE_BYTES => Ok(XPLINE_BUCKETS),
        bytes => Err(IndexError::BadOption {
            what: format!(
                "P-CLHT has buckets of {BUCKET_BYTES} or {XPLINE_BYTES} bytes, not {bytes}"
            ),
        }),
    }
}

fn damaged_chain() -> IndexError {
    IndexError::Damaged { what: "a chain of buckets leads out of the pool or has a cycle".into() }
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for PClht<D, K> {
    const KIND: IndexKind = IndexKind::PClht;
    const CAPABILITIES: Capabilities = Capabilities::HASHED;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let log2 = resize::initial_log2(options.expected_entries)?;
        let unit_buckets = unit_buckets(options)?;
        let mut root = pool.allocate::<IndexRoot>()?;
        let table = resize::empty(pool, log2, unit_buckets)?;
        root.init(pool.domain(), Self::KIND, K::KIND, FORMAT_VERSION);
        root.choose_seed(pool.domain(), options);
        if unit_buckets > 1 {
            root.words[UNIT_WORD].store(pool.domain(), unit_buckets);
        }
        // I1: nobody reaches the root before the fence that the caller still has to make.
        root.link_children(
            |root| root.top.word(),
            table,
            |table| Table::new(table.link(), log2).bits(),
        );
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let found = IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let table = Table::<Bucket>::in_word(found.top.word(), pool.domain());
        if !table.is_inside(&pool) {
            return Err(IndexError::Damaged { what: "its table is not inside the pool".into() });
        }
        let unit_buckets = match found.words[UNIT_WORD].load(pool.domain()) {
            0 => 1,
            XPLINE_BUCKETS => XPLINE_BUCKETS,
            other => {
                let what = format!("its chains begin with {other} buckets");
                return Err(IndexError::Damaged { what });
            }
        };
        let generation = locks::generation(&pool, mutants::PERSISTED_LOCK);
        let units = unit_buckets.wrapping_neg();
        let not_before = AtomicU64::new(0);
        let root_block = pool.resident(root);
        let seed = root_block.seed.load(pool.domain());
        let index = Self {
            pool,
            root,
            root_block,
            generation,
            units,
            seed,
            not_before,
            _keys: PhantomData,
        };
        index.begin_counting();
        Ok(index)
    }

    /// # Panics
    /// If the index is damaged in such a way that a chain leads out of the pool or has a cycle.
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

    fn put_off_growth(&self) {
        self.grow_later();
    }

    fn prefetch(&self, key: &K) {
        // If the table is replaced meanwhile, this was in vain and no more.
        let table = self.table();
        self.pool.prefetch(table.at(self.chain_of(table, self.hash_of(key))));
    }

    forward_to_parts!(D, K);
}

#[cfg(test)]
mod tests;

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "p-clht",
    title: "P-CLHT",
    paper: "Lee et al., SOSP 2019",
    insert_u64: InsertCost::of(1, 1),
    insert_bytes: InsertCost::of(2, 2),
    optimisations: Optimisations::of(&[
        Optimisation::FlushCoalescing,
        Optimisation::EarlyEviction,
        Optimisation::XplineUnits,
    ]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/p_clht", "index/src/hash_table"],
        // Four buckets, so that the table grows more than once.
        options: IndexOptions { expected_entries: 1, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("p-clht:u64").of(640),
            Run::byte_strings("p-clht:bytes").of(640),
            // Chains whose buckets become empty.
            Run::drained("p-clht:drained").of(160),
            // With chains of several buckets, which lose those between.
            Run::drained("p-clht:crowded").of(24).crowded(),
            Run::large("p-clht:in-use", 800).as_in_use(),
        ],
        histories: &[
            ("p-clht:growing", History::GrownTable(4)),
            ("p-clht:used-chain", History::UsedChain(9, 4)),
            // The table grows from sixteen buckets.
            ("p-clht:outgrown", History::UsedChain(9, 12)),
        ],
        persist_points: (300, 2),
        rate_operations: 60,
    },
};
