//! A node as its chain of records says that it is: read as a whole, and written as a base node.

use lapis_pmem::{AllocError, Committed, Dirty, Domain, Guard, InFlight, Link, Owned, PCell};

use super::record::{Base, Body, Delta, Entry, Kind, Meta, Record};
use super::{NODE_SIZES, PBwTree, mutants};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::damaged;

/// What a node holds.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The newest record, and what it says.
    pub head: Link<Delta>,
    pub meta: Meta,
    pub kind: Kind,
    /// The least key of its range; none if there is nothing to the left.
    pub low: Option<u64>,
    /// The first key beyond its range; none if there is nothing to the right.
    pub high: Option<u64>,
    /// The node there, or 0.
    pub right: u64,
    /// Keys and values in order, or separators and children; the first separator is the least key.
    pub entries: Vec<(u64, u64)>,
    /// The separator and the id of a child that is being merged into the one before it.
    pub merging: Option<(u64, u64)>,
    /// Its records, and their bytes.
    pub blocks: Vec<(Link<Delta>, usize)>,
    /// The words of keys that were deleted by these records.
    pub dead: Vec<u64>,
}

impl Contents {
    /// A node that is alone on its level, and not written yet.
    pub fn alone(level: u8, entries: Vec<(u64, u64)>) -> Self {
        Self {
            head: Link::NULL,
            meta: Meta::base(level, false, entries.len()),
            kind: Kind::Base,
            low: None,
            high: None,
            right: 0,
            entries,
            merging: None,
            blocks: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// How many of the first entries have no separator to be compared.
    fn first(&self) -> usize {
        usize::from(!self.meta.is_leaf()).min(self.entries.len())
    }

    /// Where the entry of a key is, or belongs.
    pub fn position<D: Domain, K: IndexKey + ?Sized>(
        &self,
        tree: &PBwTree<D, K>,
        word: u64,
    ) -> Result<usize, usize> {
        let first = self.first();
        self.entries[first..]
            .binary_search_by(|&(other, _)| K::cmp_words(&tree.handle.pool, other, word))
            .map(|at| at + first)
            .map_err(|at| at + first)
    }

    /// Where the entry of a child is.
    pub fn position_of_child(&self, id: u64) -> Option<usize> {
        self.entries.iter().position(|&(_, child)| child == id)
    }

    /// Writes and flushes a base node; it is durable after the next fence.
    pub fn write<'p, D: Domain>(
        &self,
        mut block: Owned<'p, D, Base, Dirty>,
    ) -> Owned<'p, D, Base, InFlight> {
        let (domain, entries) = (block.domain(), &self.entries);
        let meta = Meta::base(self.meta.level(), self.low.is_some(), entries.len());
        block.meta.store(domain, meta.bits());
        block.low.store(domain, self.low.unwrap_or(0));
        block.high.store(domain, self.high.unwrap_or(0));
        block.right.store(domain, self.right);
        let word = |&(key, value): &(u64, u64)| [key.to_ne_bytes(), value.to_ne_bytes()];
        let bytes: Vec<[[u8; 8]; 2]> = entries.iter().map(word).collect();
        let bytes = bytes.as_flattened().as_flattened();
        block.write_tail(0, bytes);
        let _mutant = domain.omitting(mutants::MISSING_BASE_FLUSH);
        block.flush_front(bytes.len())
    }

    /// Whether others may put deltas in front of it.
    pub fn is_open(&self) -> bool {
        !matches!(self.kind, Kind::Merging | Kind::Removed)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// Reads the node whose newest record is at `head`. Survives any bytes.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub(super) fn read(&self, head: Link<Delta>) -> Result<Contents, IndexError> {
        let (pool, domain) = (&*self.handle.pool, self.handle.pool.domain());
        let missing = || damaged("a record is not in its place");
        let mut record = Record::at(pool, head).ok_or_else(missing)?;
        let Record { meta, kind, .. } = record;
        let (mut blocks, mut dead) = (Vec::with_capacity(meta.depth() + 1), Vec::new());
        let mut deltas = Vec::with_capacity(meta.depth());
        let (base, entries) = loop {
            match record.body {
                Body::Delta(delta) => {
                    blocks.push((record.link, size_of::<Delta>()));
                    let changes = record.changes_of(delta).iter().rev();
                    deltas.extend(
                        changes.map(|it| (record.kind, it.key.load(domain), it.value.load(domain))),
                    );
                    record = record.next(pool, delta).ok_or_else(missing)?;
                }
                Body::Base(base, entries) => {
                    blocks.push((record.link, self.geometry.base_bytes(record.meta.count())));
                    break (base, entries);
                }
            }
        };
        let right = base.right.load(domain);
        let mut node = Contents {
            head,
            meta,
            kind,
            low: meta.has_low().then(|| base.low.load(domain)),
            high: (right != 0).then(|| base.high.load(domain)),
            right,
            entries: entries
                .iter()
                .map(|it| (it.key.load(domain), it.value.load(domain)))
                .collect(),
            merging: None,
            blocks,
            dead: Vec::new(),
        };
        for (kind, word, value) in deltas.into_iter().rev() {
            match (kind, node.position(self, word)) {
                (Kind::Put, Ok(at)) => node.entries[at] = (word, value),
                (Kind::Put, Err(at)) => node.entries.insert(at, (word, value)),
                (Kind::Delete, found) => {
                    if let Ok(at) = found {
                        node.entries.remove(at);
                    }
                    dead.push(word);
                }
                (Kind::Merging, _) => node.merging = Some((word, value)),
                (Kind::Removed | Kind::Base, _) => {}
            }
        }
        node.dead = dead;
        if node.entries.len() != meta.count() {
            return Err(damaged("a node has another number of entries than it says"));
        }
        Ok(node)
    }

    /// A block for a base node of so many entries; that which is kept for it, if there is no room.
    pub(super) fn base_block(&self, count: usize) -> Result<Owned<'_, D, Base, Dirty>, AllocError> {
        let pool = &self.handle.pool;
        let tail_bytes = self.geometry.base_bytes(count) - size_of::<Base>();
        pool.allocate_with_tail(tail_bytes).or_else(|why| {
            if count > self.geometry.capacity || !self.give_up_reserve() {
                return Err(why);
            }
            pool.allocate_with_tail(tail_bytes)
        })
    }

    /// Retires the records of a node, and the keys that they have deleted, which a store has unlinked
    /// that is durable.
    pub(super) fn retire_chain(
        &self,
        node: &Contents,
        committed: Committed,
        pinned: &Guard<'_, D>,
    ) {
        let pool = &self.handle.pool;
        for &word in &node.dead {
            K::retire_word(pool, word, committed, pinned);
        }
        for &(link, bytes) in &node.blocks {
            pool.retire(link, bytes, committed, pinned);
        }
    }
}

/// What follows from the size of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    node_bytes: usize,
    /// Entries of a node.
    pub capacity: usize,
    /// Changes after which a node is consolidated.
    pub chain: usize,
}

/// Changes after which a node is consolidated (the papers').
const CHAIN: usize = 8;
/// How many times as many there may be before who adds one has to consolidate first.
const PATIENCE: usize = 4;
impl Geometry {
    pub fn of(node_bytes: usize) -> Self {
        let capacity = (node_bytes - size_of::<Base>()) / size_of::<Entry>();
        Self { node_bytes, capacity, chain: CHAIN.min(capacity / 3) }
    }

    /// Bytes of a base node of so many entries: all are as long, lest pools fill with blocks of sizes that
    /// nobody asks for, unless more were merged than fit.
    #[inline(always)]
    pub fn base_bytes(&self, count: usize) -> usize {
        self.node_bytes.max(size_of::<Base>() + count * size_of::<Entry>())
    }

    /// Whether a block is as long as that of a base node of so many entries, from whose number everybody else knows it.
    pub fn is_for<D: Domain>(&self, block: &Owned<'_, D, Base, Dirty>, count: usize) -> bool {
        block.block_bytes() == self.base_bytes(count)
    }

    /// Whether a node is to be divided when its chain is long.
    pub fn divides(&self, count: usize) -> bool {
        count > self.capacity - self.chain
    }

    /// Whether a node with so many entries takes none, or no delta, before it is divided or consolidated.
    pub fn is_full(&self, meta: Meta, adds: bool) -> bool {
        (adds && meta.count() >= self.capacity) || meta.depth() >= PATIENCE * self.chain
    }

    /// Whether two neighbours with so many entries, of which `bare` are none, are to be one node.
    pub fn joins(&self, left: usize, right: usize, bare: usize) -> bool {
        let both = left + right;
        both <= self.capacity / 2 || (left.min(right) <= bare && both <= self.capacity)
    }
}

const _: () =
    assert!(size_of::<Delta>() <= NODE_SIZES.smallest_bytes && align_of::<PCell<u64>>() == 8);
