//! A sorted list: the toy by which a test shows what it takes to add an index.
//!
//! ```text
//!  IndexRoot.top ──▶ node ──▶ node ──▶ nothing
//!
//!  node: 24 bytes
//!  offset bytes  field
//!       0     8  key       its word
//!       8     8  value
//!      16     8  next
//! ```
//!
//! * I1. A reachable node, with its key, was durable before the link to it was stored.
//! * I2. Keys ascend along the list.
//! * I3. A node is retired when the store that unlinked it is durable.
//!
//! Every change is one store that is persisted before the lock, which readers take too, is let go.

pub mod mutants;

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{
    BlockVisitor, Committed, Domain, InFlight, Link, Optimisations, Owned, PCell, Pool, Slot,
    host_lock, persistent,
};
use parking_lot::Mutex;

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, InsertCost, Run};
use crate::index::{
    Capabilities, Change, Direction, Index, IndexError, IndexOptions, OnValue, OrderedIndex,
    Outcome, Statistics,
};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};
use crate::root::IndexRoot;

const FORMAT_VERSION: u32 = 1;
const NODE_BYTES: usize = size_of::<Node>();

persistent! {
    /// A node.
    pub struct Node: 24 {
        key: PCell<u64>,
        value: PCell<u64>,
        next: Slot<Node>,
    }
}

/// A sorted list.
#[derive(Debug)]
pub struct Toy<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    lock: Mutex<()>,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Toy<D, K> {
    fn top(&self) -> &PCell<u64> {
        self.pool.at(self.root).top.word()
    }

    /// The nodes with their links; fewer than the pool has room for.
    fn nodes(&self) -> impl Iterator<Item = (Link<Node>, &Node)> {
        let mut place = Some(self.top());
        let most = self.pool.region().mapped_bytes() / NODE_BYTES;
        std::iter::from_fn(move || {
            let link = Link::<Node>::from_bits(place?.load_acquire(self.pool.domain()));
            let node = if link.is_null() { None } else { self.pool.try_at(link) };
            place = node.map(|node| node.next.word());
            node.map(|node| (link, node))
        })
        .take(most)
    }

    /// The word that leads to the key's node, or to where it would be; and the node.
    fn find(&self, key: &K) -> (&PCell<u64>, Option<(Link<Node>, &Node)>) {
        let mut place = self.top();
        for (link, node) in self.nodes() {
            match key.cmp_word(&self.pool, node.key.load(self.pool.domain())) {
                Ordering::Greater => place = node.next.word(),
                Ordering::Equal => return (place, Some((link, node))),
                Ordering::Less => break,
            }
        }
        (place, None)
    }

    fn add(&self, place: &PCell<u64>, key: &K, value: u64) -> Result<Committed, IndexError> {
        let domain = self.pool.domain();
        let word = key.make_word(&self.pool)?;
        let mut node = self.pool.allocate::<Node>()?;
        node.key.store(domain, word.bits());
        node.value.store(domain, value);
        node.set_link(|node| &node.next, Link::from_bits(place.load(domain)));
        let flushed = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_NODE);
            node.flush()
        };
        // I1.
        let new = self.pool.fence((flushed, word));
        Ok(place.publish_word(domain, new, |(node, _)| node.link().bits()).persist())
    }

    fn remove(&self, place: &PCell<u64>, link: Link<Node>, node: &Node) -> Committed {
        let domain = self.pool.domain();
        let word = node.key.load(domain);
        let committed = place.publish(domain, node.next.load(domain).bits()).persist();
        // I3.
        let pinned = self.pool.pin();
        self.pool.retire(link, NODE_BYTES, committed, &pinned);
        K::retire_word(&self.pool, word, committed, &pinned);
        committed
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for Toy<D, K> {
    const KIND: IndexKind = IndexKind::Toy;
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        concurrent_writers: false,
        lock_free_reads: false,
        orders_prior_flushes: false,
    };

    fn create<'p>(
        pool: &'p Pool<D>,
        _options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let root = pool.allocate::<IndexRoot>()?;
        root.init(pool.domain(), Self::KIND, K::KIND, FORMAT_VERSION);
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        Ok(Self { pool, root, lock: Mutex::new(()), _keys: PhantomData })
    }

    fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    fn change(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let domain = self.pool.domain();
        let _held = host_lock::lock(domain, &self.lock);
        let (place, found) = self.find(key);
        let previous = found.map(|(_, node)| node.value.load(domain));
        let committed = match (found, change) {
            (Some((_, node)), Change::Update(value) | Change::Put(value)) => {
                node.value.publish(domain, value).persist()
            }
            (None, Change::Insert(value) | Change::Put(value)) => self.add(place, key, value)?,
            (Some((link, node)), Change::Remove) => self.remove(place, link, node),
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    fn get(&self, key: &K) -> Option<u64> {
        let domain = self.pool.domain();
        let _held = host_lock::lock(domain, &self.lock);
        self.find(key).1.map(|(_, node)| node.value.load(domain))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>) {
        self.scan(Bound::Unbounded, Direction::Forward, visit);
    }

    fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut last = None;
        for (link, node) in self.nodes() {
            let word = node.key.load(self.pool.domain());
            let key = K::with_word(&self.pool, word, |key| key.to_buf());
            if key.is_none() || key <= last {
                problems.push(format!("I2: the key of {link:?} does not follow the one before"));
                break;
            }
            last = key;
        }
        problems
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = Statistics { blocks: 1, ..Statistics::default() };
        statistics.bytes = size_of::<IndexRoot>() as u64;
        for (_, node) in self.nodes() {
            let word = node.key.load(self.pool.domain());
            let key_bytes = K::word_block_bytes(&self.pool, word) as u64;
            statistics.entries += 1;
            statistics.blocks += 1 + u64::from(key_bytes > 0);
            statistics.bytes += NODE_BYTES as u64 + key_bytes;
        }
        statistics.nodes = statistics.entries;
        statistics.max_depth = statistics.entries;
        statistics.mean_depth = statistics.entries as f64 / 2.0;
        statistics
    }

    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        if !visitor.visit(self.root, size_of::<IndexRoot>()) {
            return;
        }
        for (link, node) in self.nodes() {
            if !visitor.visit(link, NODE_BYTES) {
                return;
            }
            K::visit_blocks(visitor, node.key.load(self.pool.domain()));
            value(visitor, node.value.load(self.pool.domain()));
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for Toy<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let domain = self.pool.domain();
        let mut entries: Vec<(u64, u64)> = {
            let _held = host_lock::lock(domain, &self.lock);
            let entry = |node: &Node| (node.key.load(domain), node.value.load(domain));
            self.nodes().map(|(_, node)| entry(node)).collect()
        };
        if direction == Direction::Backward {
            entries.reverse();
        }
        let _: ControlFlow<()> =
            LeafEntries::new(&self.pool, &entries).show_from(from, direction, visit);
    }
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "toy",
    title: "Toy list",
    paper: "Nobody, nowhere",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/toy"],
        options: IndexOptions::DEFAULT,
        runs: &[Run::integers("toy:u64"), Run::byte_strings("toy:bytes")],
        histories: &[],
        persist_points: (60, 1),
        rate_operations: 60,
    },
};
