//! FAST & FAIR

mod check;
mod node;
mod scan;
mod search;
mod shift;
mod unlink;
mod write;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{Domain, InFlight, Link, LockGeneration, Owned, Pool, Tracer};

use crate::index::{
    Capabilities, Direction, Index, IndexError, IndexOptions, OrderedIndex, Outcome, Statistics,
};
use crate::key::IndexKey;
use crate::root::{IndexKind, IndexRoot};

use node::{
    DEFAULT_NODE_BYTES, Entry, HEADER_BYTES, LARGEST_NODE_BYTES, Node, NodeHeader, RIGHTWARD,
    SMALLEST_NODE_BYTES, SiblingWord, capacity_of,
};
use write::Change;

const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per node.
const NODE_BYTES_WORD: usize = 0;

/// A B+-tree with sorted nodes that are changed in place. See the [module documentation](self).
pub struct FastFair<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    node_bytes: usize,
    capacity: usize,
    generation: LockGeneration,
    _key: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> std::fmt::Debug for FastFair<D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FastFair({:?}, {} bytes per node)", self.root, self.node_bytes)
    }
}

/// Makes durable what this thread has seen or done and another thread's next step rests on.
///
/// The one persist that a single thread never misses: it is needed under concurrency only. Readers
/// call it for what they saw in a node that was locked; if the lock was free when they looked again,
/// the writer had fenced, because every writer fences before it gives a lock back (I11).
fn persist_for_others<D: Domain>(domain: &D, what: &[Entry]) {
    domain.persist(what);
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        self.pool.at(self.root)
    }

    #[inline(always)]
    fn node(&self, link: Link<NodeHeader>) -> Node<'_> {
        let header = self.pool.at(link);
        let slots = Link::from_bits(link.offset() + HEADER_BYTES as u64);
        match self.pool.try_slice(slots, self.capacity) {
            Some(slots) => Node { link, header, slots },
            None => beyond_the_end(link),
        }
    }

    /// The leftmost node of the highest level.
    #[inline(always)]
    fn top(&self) -> Node<'_> {
        self.node(self.root().top.load(self.domain()).cast())
    }

    /// Accepts the words of keys up to `key`.
    #[inline(always)]
    fn up_to<'a>(&'a self, key: &'a K) -> impl Fn(u64) -> bool + Copy + 'a {
        move |word| key.cmp_word(&self.pool, word).is_ge()
    }

    /// Accepts the words of keys below `key`.
    #[inline(always)]
    fn below<'a>(&'a self, key: &'a K) -> impl Fn(u64) -> bool + Copy + 'a {
        move |word| key.cmp_word(&self.pool, word).is_gt()
    }

    fn node_bytes_of(options: &IndexOptions) -> Result<usize, IndexError> {
        match options.node_bytes {
            0 => Ok(DEFAULT_NODE_BYTES),
            bytes if is_node_size(bytes) => Ok(bytes),
            bytes => Err(IndexError::BadOption {
                what: format!(
                    "a node has {SMALLEST_NODE_BYTES} to {LARGEST_NODE_BYTES} bytes, a multiple \
                     of 64, not {bytes}"
                ),
            }),
        }
    }
}

fn is_node_size(bytes: usize) -> bool {
    (SMALLEST_NODE_BYTES..=LARGEST_NODE_BYTES).contains(&bytes)
        && bytes.is_multiple_of(lapis_pmem::LINE_BYTES)
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Link<NodeHeader>) -> ! {
    panic!("the pool is damaged: the node {link:?} does not end within it")
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for FastFair<D, K> {
    const KIND: IndexKind = IndexKind::FastFair;
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        concurrent_writers: true,
        lock_free_reads: true,
        // An append stores its key, flushes and fences once: after the store.
        orders_prior_flushes: false,
    };

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let node_bytes = Self::node_bytes_of(options)?;
        let domain = pool.domain();
        let root = pool.allocate::<IndexRoot>()?;
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.words[NODE_BYTES_WORD].store(domain, node_bytes as u64);
        let word = SiblingWord::new(Link::NULL, 0, true);
        let generation = LockGeneration::of(pool.generation());
        let leaf = write::build(pool, node_bytes, Link::NULL, word, 0, &[], |node| {
            node.lock.init(domain, generation, RIGHTWARD);
        })?;
        // I1: both are flushed, and one fence of the caller's comes before the root is published.
        root.top.word().store(domain, leaf.release().bits());
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let found = IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let node_bytes = found.words[NODE_BYTES_WORD].load(pool.domain()) as usize;
        if !is_node_size(node_bytes) {
            return Err(IndexError::Damaged { what: format!("nodes of {node_bytes} bytes") });
        }
        let top: Link<NodeHeader> = found.top.load(pool.domain()).cast();
        let slots = Link::from_bits(top.offset() + HEADER_BYTES as u64);
        let capacity = capacity_of(node_bytes);
        if pool.try_at(top).is_none() || pool.try_slice::<Entry>(slots, capacity).is_none() {
            return Err(IndexError::Damaged { what: "its top node is outside the pool".into() });
        }
        let generation = LockGeneration::of(pool.generation());
        Ok(Self { pool, root, node_bytes, capacity, generation, _key: PhantomData })
    }

    fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    fn insert(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.write(key, value, Change::Insert)
    }

    fn update(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.write(key, value, Change::Update)
    }

    fn put(&self, key: &K, value: u64) -> Result<Outcome, IndexError> {
        self.write(key, value, Change::Put)
    }

    fn remove(&self, key: &K) -> Result<Outcome, IndexError> {
        self.remove_key(key)
    }

    fn get(&self, key: &K) -> Option<u64> {
        self.lookup(key)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        self.scan_from(Bound::Unbounded, Direction::Forward, visit);
    }

    fn check(&self) -> Vec<String> {
        self.problems()
    }

    fn statistics(&self) -> Statistics {
        self.count_all()
    }

    fn trace(&self, tracer: &mut Tracer<'_, D>, value: &mut dyn FnMut(&mut Tracer<'_, D>, u64)) {
        self.trace_all(tracer, value);
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for FastFair<D, K> {
    fn scan(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) {
        self.scan_from(from, direction, visit);
    }
}
