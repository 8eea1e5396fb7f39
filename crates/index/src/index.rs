//! The traits every index implements.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{
    BlockVisitor, Committed, Domain, Guard, InFlight, Link, Optimisation, Optimisations, Owned,
    Pool, XPLINE_BYTES,
};

use crate::IndexKind;
use crate::entries_by_part::EntriesByPart;
pub use crate::error::IndexError;
use crate::key::IndexKey;
use crate::leaf_entries::OnLeaf;
pub use crate::range::Direction;
use crate::range::{Range, Visit, first_of};
use crate::root::IndexRoot;

/// What can be chosen when an index is created. Structures ignore what does not concern them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Entries to make room for at once (hash tables). 0: start small and grow.
    pub expected_entries: usize,
    /// Bytes per node (B+-trees) or bucket (P-CLHT). 0: the structure's default.
    pub node_bytes: usize,
    /// Where volatile inner nodes lie (trees that rebuild them when opened).
    pub inner_nodes: InnerNodes,
    /// By what byte strings are hashed (hash tables): for keys that somebody may choose to have the same hash, a number
    /// that nobody can guess. 0 is one that everybody knows.
    pub hash_seed: u64,
}

impl IndexOptions {
    /// The structure's own choice of everything.
    pub const DEFAULT: Self =
        Self { expected_entries: 0, node_bytes: 0, inner_nodes: InnerNodes::Dram, hash_seed: 0 };

    /// The same with those of the amplification study's optimisations that are chosen with an index: nodes or
    /// buckets of 256 bytes.
    #[must_use]
    pub fn with(self, optimisations: Optimisations) -> Self {
        match optimisations.has(Optimisation::XplineUnits) {
            true => Self { node_bytes: XPLINE_BYTES, ..self },
            false => self,
        }
    }
}

/// Where a tree that rebuilds its inner nodes keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InnerNodes {
    /// In ordinary memory.
    #[default]
    Dram,
    /// In blocks of the pool that are never flushed: volatile all the same, at the latency of
    /// persistent memory, for machines that have nothing else.
    Pm,
}

impl InnerNodes {
    /// Where a root says that they lie.
    pub(crate) fn found(number: u64) -> Result<Self, IndexError> {
        [Self::Dram, Self::Pm]
            .into_iter()
            .find(|place| *place as u64 == number)
            .ok_or_else(|| IndexError::Damaged { what: format!("its inner nodes lie at {number}") })
    }
}

/// What a structure can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    /// Keys can be scanned in order ([`OrderedIndex`]).
    pub ordered: bool,
    /// Writers of different keys can run at the same time; otherwise they take turns.
    pub concurrent_writers: bool,
    /// Readers never wait for writers.
    pub lock_free_reads: bool,
    /// An insert or update of this structure fences between the calling thread's earlier flushes
    /// and the moment the new value can become reachable after a crash. A caller whose value refers
    /// to a block it has only flushed needs no fence of its own.
    pub orders_prior_flushes: bool,
}

impl Capabilities {
    /// Of most ordered structures: nobody waits for a turn, and flushes of the caller are the caller's.
    pub const ORDERED: Self = Self {
        ordered: true,
        concurrent_writers: true,
        lock_free_reads: true,
        orders_prior_flushes: false,
    };
    /// Of most hash tables: as [`ORDERED`](Self::ORDERED), and without an order.
    pub const HASHED: Self = Self { ordered: false, ..Self::ORDERED };
}

/// Bytes of a pool that changes may take. For those who must know beforehand that a change will not be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomNeeded {
    /// In blocks of any size.
    pub bytes: usize,
    /// Besides, in one piece: for blocks of many chunks, which chunks here and there do not make.
    pub piece_bytes: usize,
}

impl RoomNeeded {
    /// For so many changes of a structure whose nodes are small.
    pub(crate) fn for_small_nodes(changes: usize) -> Self {
        Self { bytes: changes.saturating_mul(NODES_PER_CHANGE), piece_bytes: 0 }
    }

    /// Of this and of other changes.
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            piece_bytes: self.piece_bytes.saturating_add(other.piece_bytes),
        }
    }

    /// Bytes of both kinds.
    pub fn in_all(self) -> usize {
        self.bytes.saturating_add(self.piece_bytes)
    }
}

/// The most that small nodes of an index take for a change, as far as that is to be kept free.
const NODES_PER_CHANGE: usize = 1536;

/// What is to happen to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add it with this value if it is absent; if it is present nothing changes.
    Insert(u64),
    /// Give it this value if it is present; if it is absent nothing changes.
    Update(u64),
    /// Add it with this value, or replace the value it has.
    Put(u64),
    /// Take it away if it is present.
    Remove,
}

/// The result of a change: what was there before, and the proof that the change is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The value the key had before.
    pub previous: Option<u64>,
    /// Durability of the state the call leaves.
    pub committed: Committed,
}

impl Outcome {
    /// Of a change that finds nothing to do.
    #[inline(always)]
    pub(crate) fn unchanged(previous: Option<u64>) -> Self {
        Self { previous, committed: Committed::nothing_to_do() }
    }
}

/// Sizes of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Statistics {
    /// Keys.
    pub entries: u64,
    /// Blocks, leaves and out-of-line keys included.
    pub blocks: u64,
    /// Inner nodes (trees) or buckets (hash tables).
    pub nodes: u64,
    /// Mean number of nodes visited on the way to an entry, the leaf excluded, as in the papers.
    pub mean_depth: f64,
    /// Greatest such number.
    pub max_depth: u64,
    /// Bytes of all blocks as asked of the allocator.
    pub bytes: u64,
}

/// [`Statistics`] of a hash table on their way: of its buckets and, one after the other, its entries.
#[derive(Default)]
pub(crate) struct Measuring {
    pub(crate) sizes: Statistics,
    depths: u64,
}

impl Measuring {
    /// Counts so many blocks of so many bytes in all.
    pub(crate) fn blocks(&mut self, blocks: u64, bytes: usize) {
        self.sizes.blocks += blocks;
        self.sizes.bytes += bytes as u64;
    }

    /// Counts the entry of a key word, for which so many nodes are visited.
    pub(crate) fn entry<D: Domain, K: IndexKey + ?Sized>(
        &mut self,
        pool: &Pool<D>,
        word: u64,
        depth: u64,
    ) {
        let key_bytes = K::word_block_bytes(pool, word);
        self.blocks(u64::from(key_bytes > 0), key_bytes);
        self.sizes.entries += 1;
        self.sizes.max_depth = self.sizes.max_depth.max(depth);
        self.depths += depth;
    }

    pub(crate) fn finish(self) -> Statistics {
        let mean_depth = self.depths as f64 / self.sizes.entries.max(1) as f64;
        Statistics { mean_depth, ..self.sizes }
    }
}

/// Is told of each value while blocks are visited: values may refer to blocks of their own.
pub type OnValue<'v, D> = &'v mut dyn FnMut(&mut BlockVisitor<'_, D>, u64);

/// Look-ups of [`Index::get_many`], and changes that [`Index::approach`] prepares, that are under way at the same time: about
/// what a core can have in cache misses.
pub const LOOK_UPS_AT_ONCE: usize = 16;

/// A map from keys to 8-byte values in persistent memory.
///
/// All methods may be called from many threads. A change is durable when the call returns, and no
/// read returns a value that a power cut could still take back.
pub trait Index<D: Domain, K: IndexKey + ?Sized>: Send + Sync + Sized {
    /// Which structure this is.
    const KIND: IndexKind;
    /// What it can do.
    const CAPABILITIES: Capabilities;
    /// Whether [`Index::visit_blocks`] tells its visitor of all that [`Index::check`] finds.
    const VISITS_CHECK: bool = false;
    /// Whether [`Index::for_each_by_part`] and [`Index::visit_blocks`] name parts.
    const WALKS_BY_PARTS: bool = false;

    /// Builds an empty index that nobody can reach yet: the caller fences and publishes the root.
    ///
    /// # Errors
    /// [`IndexError::Alloc`], [`IndexError::BadOption`].
    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError>;

    /// Opens the index whose root is at `root`. Takes time independent of its size, but for trees with
    /// volatile inner nodes (NV-Tree, FPTree), which read all their leaves.
    ///
    /// There is one handle of an index in an opening of its pool, which threads share, but for structures that say that
    /// they may have several: the locks of others are in the handle, and a second would lose acknowledged changes.
    ///
    /// # Errors
    /// [`IndexError::WrongKind`], [`IndexError::NewerFormat`], [`IndexError::Damaged`]; [`IndexError::InUse`] while there
    /// is a handle of a structure that has one.
    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError>;

    /// [`Index::open`] with so many threads at most. What does nothing in proportion to its size needs
    /// no more than the calling one.
    ///
    /// # Errors
    /// As for [`Index::open`].
    fn open_with_threads(
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        _threads: usize,
    ) -> Result<Self, IndexError> {
        Self::open(pool, root)
    }

    /// Creates an index, publishes its root under a name, durably, and opens it.
    ///
    /// # Errors
    /// As for [`Index::create`]; [`IndexError::Root`].
    fn create_named(
        pool: &Arc<Pool<D>>,
        name: &str,
        options: &IndexOptions,
    ) -> Result<Self, IndexError> {
        let root = Self::create(pool, options)?;
        let root = IndexRoot::publish(pool, name, Self::KIND, root)?;
        Self::open(Arc::clone(pool), root)
    }

    /// The pool the index lies in.
    fn pool(&self) -> &Arc<Pool<D>>;

    /// Makes `change` to `key`; [`Outcome::previous`] is the value it had before.
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError>;

    /// Adds `key` if it is absent: [`Change::Insert`].
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    #[inline]
    fn insert(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Insert(value))
    }

    /// Replaces the value of `key` if it is present: [`Change::Update`].
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    #[inline]
    fn update(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Update(value))
    }

    /// Adds `key` or replaces its value: [`Change::Put`].
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    #[inline]
    fn put(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.change(key, Change::Put(value))
    }

    /// Removes `key` if it is present: [`Change::Remove`].
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    #[inline]
    fn remove(&self, key: &K) -> Result<Outcome, IndexError> {
        self.change(key, Change::Remove)
    }

    /// What so many more changes may take, as the index is now, beside the blocks of their keys. Removals take nothing.
    fn room_for(&self, changes: usize) -> RoomNeeded {
        RoomNeeded::for_small_nodes(changes)
    }

    /// Puts off what [`Index::room_for`] counts though the changes could do without it, as if there had been no room.
    fn put_off_growth(&self) {}

    /// The value of `key`.
    fn get(&self, key: &K) -> Option<u64>;

    /// [`Index::get`] for whoever has pinned the index's pool already, for many look-ups.
    fn get_pinned(&self, key: &K, _pinned: &Guard<'_, D>) -> Option<u64> {
        self.get(key)
    }

    /// Asks the caches for what looking up `key` reads first, if that is known without reading it.
    fn prefetch(&self, _key: &K) {}

    /// [`Index::get`] of many keys: `answer` is called with the place of each in `keys` and its value,
    /// in any order. Pins once, and has the cache misses of several look-ups under way at the same time.
    fn get_many(&self, keys: &[&K], answer: &mut dyn FnMut(usize, Option<u64>)) {
        let pinned = self.pool().pin();
        let mut place = 0;
        for group in keys.chunks(LOOK_UPS_AT_ONCE) {
            group.iter().for_each(|key| self.prefetch(key));
            for key in group {
                answer(place, self.get_pinned(key, &pinned));
                place += 1;
            }
        }
    }

    /// Brings into the caches what changes of these few keys read, with the misses of several keys under way at the same
    /// time, as far as the structure knows early what that is.
    fn approach(&self, keys: &[&K]) {
        keys.iter().for_each(|key| self.prefetch(key));
    }

    /// [`Index::insert`] of many entries, in their order: `answer` is called with the place of each and its outcome, when
    /// it is durable. Each costs what it costs alone, but for cache misses ([`Index::approach`]).
    ///
    /// # Errors
    /// [`IndexError`], of the first that cannot be added; those before it are, those behind it are not tried.
    fn insert_many(
        &self,
        entries: &[(&K, u64)],
        answer: &mut dyn FnMut(usize, Outcome),
    ) -> Result<(), IndexError> {
        for (number, group) in entries.chunks(LOOK_UPS_AT_ONCE).enumerate() {
            let mut keys = [group[0].0; LOOK_UPS_AT_ONCE];
            keys.iter_mut().zip(group).for_each(|(place, (key, _))| *place = key);
            self.approach(&keys[..group.len()]);
            for (within, (key, value)) in group.iter().enumerate() {
                answer(number * LOOK_UPS_AT_ONCE + within, self.insert(key, *value)?);
            }
        }
        Ok(())
    }

    /// Calls `visit` for each entry, in key order if the structure is ordered, until it breaks.
    /// Entries that are added or removed meanwhile may or may not be visited; all others are,
    /// exactly once. `visit` must not change this index.
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>);

    /// [`Index::for_each`] for a visitor that may know some parts of the index; nobody may change it
    /// meanwhile. An index that has no parts gives all its entries.
    fn for_each_by_part(&self, visitor: &mut dyn EntriesByPart<K>) {
        self.for_each(&mut |key, value| visitor.entry(key, value));
    }

    /// Everything that is wrong with the structure's invariants, one sentence each. Changes
    /// nothing; never panics, whatever the bytes. Nobody may change the index meanwhile.
    fn check(&self) -> Vec<String>;

    /// Sizes. Visits everything. Nobody may change the index meanwhile.
    fn statistics(&self) -> Statistics;

    /// Tells the visitor of every block of the index, the root included, but not of what the values
    /// refer to: `value` is called with each value for that. Nobody may change the index meanwhile.
    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>);
}

/// What of [`Index`] is the same for every B+-tree: the methods of the same meaning are in the files of
/// the structure. So is `open_by` of those that rebuild inner nodes, on so many threads. And what is the same for P-HOT
/// and P-Masstree, which have a radix tree's handle.
macro_rules! forward_to_files {
    ($domain:ident, $key:ident, rebuilt) => {
        /// Builds the inner nodes: takes time in proportion to the number of leaves.
        fn open(
            pool: std::sync::Arc<lapis_pmem::Pool<$domain>>,
            root: lapis_pmem::Link<$crate::IndexRoot>,
        ) -> Result<Self, $crate::IndexError> {
            Self::open_by(pool, root, None)
        }

        fn open_with_threads(
            pool: std::sync::Arc<lapis_pmem::Pool<$domain>>,
            root: lapis_pmem::Link<$crate::IndexRoot>,
            threads: usize,
        ) -> Result<Self, $crate::IndexError> {
            Self::open_by(pool, root, Some(threads))
        }

        $crate::index::forward_to_files!($domain, $key);
    };
    ($domain:ident, $key:ident, trie) => {
        const CAPABILITIES: $crate::Capabilities = $crate::Capabilities {
            orders_prior_flushes: !$key::INLINE,
            ..$crate::Capabilities::ORDERED
        };
        const VISITS_CHECK: bool = true;

        fn pool(&self) -> &std::sync::Arc<lapis_pmem::Pool<$domain>> {
            &self.handle.pool
        }

        #[inline]
        fn change(
            &self,
            key: &$key,
            change: $crate::Change,
        ) -> Result<$crate::Outcome, $crate::IndexError> {
            let domain = self.handle.pool.domain();
            $crate::radix::change_by_attempts(domain, key, |key| self.try_change(key, change))
        }

        #[inline]
        fn get(&self, key: &$key) -> Option<u64> {
            self.get_pinned(key, &self.handle.pool.pin())
        }

        #[inline]
        fn get_pinned(&self, key: &$key, _pinned: &lapis_pmem::Guard<'_, $domain>) -> Option<u64> {
            let mut space = [0; 8];
            let value = self.find(&$crate::radix::Digits::of(key, &mut space));
            self.handle.persist_before_return();
            value
        }

        $crate::in_turns::look_up_in_turns!($domain, $key, handle.pool);

        fn for_each(&self, visit: &mut dyn FnMut(&$key, u64) -> std::ops::ControlFlow<()>) {
            let (from, direction) = (std::ops::Bound::Unbounded, $crate::Direction::Forward);
            $crate::OrderedIndex::scan(self, from, direction, visit);
        }

        fn check(&self) -> Vec<String> {
            let pool = &self.handle.pool;
            $crate::radix::problems_of(pool, |visitor| self.visit_blocks(visitor, &mut |_, _| ()))
        }

        fn statistics(&self) -> $crate::Statistics {
            $crate::radix::measure(|measuring| self.walk(measuring))
        }

        fn visit_blocks(
            &self,
            visitor: &mut lapis_pmem::BlockVisitor<'_, $domain>,
            value: $crate::OnValue<'_, $domain>,
        ) {
            let handle = &self.handle;
            $crate::radix::visit_everything(handle, visitor, value, |visiting| self.walk(visiting));
        }
    };
    ($domain:ident, $key:ident) => {
        $crate::index::forward_to_files!($domain, $key, pool);
    };
    ($domain:ident, $key:ident, $($pool:ident).+) => {
        fn pool(&self) -> &std::sync::Arc<lapis_pmem::Pool<$domain>> {
            &self.$($pool).+
        }

        #[inline]
        fn change(
            &self,
            key: &$key,
            change: $crate::Change,
        ) -> Result<$crate::Outcome, $crate::IndexError> {
            self.change_key(key, change)
        }

        #[inline]
        fn get(&self, key: &$key) -> Option<u64> {
            self.lookup(key)
        }

        $crate::in_turns::look_up_in_turns!($domain, $key, $($pool).+);

        fn for_each(&self, visit: &mut dyn FnMut(&$key, u64) -> std::ops::ControlFlow<()>) {
            let (from, direction) = (std::ops::Bound::Unbounded, $crate::Direction::Forward);
            $crate::OrderedIndex::scan(self, from, direction, visit);
        }

        fn check(&self) -> Vec<String> {
            self.problems()
        }

        fn statistics(&self) -> $crate::Statistics {
            self.measure()
        }

        fn visit_blocks(
            &self,
            visitor: &mut lapis_pmem::BlockVisitor<'_, $domain>,
            value: $crate::OnValue<'_, $domain>,
        ) {
            self.visit_blocks(visitor, value);
        }
    };
}
pub(crate) use forward_to_files;

/// An index whose keys can be scanned in order.
pub trait OrderedIndex<D: Domain, K: IndexKey + ?Sized>: Index<D, K> {
    /// Calls `visit` for the entries from `from` on, a leaf at a time, in strictly ascending (or
    /// descending) order, until it breaks. Entries that are added or removed meanwhile may or may not
    /// be visited; all others are, exactly once. `visit` must not change this index.
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>);

    /// [`OrderedIndex::scan_leaves`], entry by entry.
    #[inline]
    fn scan<V>(&self, from: Bound<&K>, direction: Direction, visit: &mut V)
    where
        V: FnMut(&K, u64) -> ControlFlow<()> + ?Sized,
    {
        self.scan_leaves(from, direction, &mut |leaf| leaf.for_each(visit));
    }

    /// The entries between two bounds, in either direction, fetched lazily in batches. Each batch
    /// is a scan of its own: see [`OrderedIndex::scan`] for what it sees of concurrent changes.
    fn range(&self, lower: Bound<&K>, upper: Bound<&K>, direction: Direction) -> Range<'_, K> {
        let scan = move |from: Bound<&K>, visit: &mut Visit<'_, K>| {
            self.scan(from, direction, visit);
        };
        Range::new(Box::new(scan), lower, upper, direction)
    }

    /// The entry with the smallest key.
    fn first(&self) -> Option<(K::Buf, u64)> {
        first_of(|visit| self.scan(Bound::Unbounded, Direction::Forward, visit))
    }

    /// The entry with the greatest key.
    fn last(&self) -> Option<(K::Buf, u64)> {
        first_of(|visit| self.scan(Bound::Unbounded, Direction::Backward, visit))
    }
}
