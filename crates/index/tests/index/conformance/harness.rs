//! Pools, indexes and keys for the tests, and the assertion that everything is in order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use lapis_index::{
    AnyIndex, Capabilities, Index, IndexError, IndexKey, IndexKind, IndexMaker, IndexOf,
    IndexOptions, InnerNodes, with_index,
};
use lapis_pmem::{Domain, Link, Pool, PoolError, Region, RegionOptions};
use proptest::prelude::*;

use crate::hold_ups::{Here, pool_in_memory};

/// How often threads are held up in a test that has them so.
const HOLD_UPS: u64 = 1000;

/// A structure on this machine.
pub type On<K> = AnyIndex<Here, K>;

/// Kinds of keys from which tests can make as many as they like.
pub trait Keys: IndexKey {
    /// The key number `number`: different numbers give different keys, in the order of numbers.
    fn number(number: u64) -> Self::Buf;
    /// Few enough that operations meet, and of the shapes that hurt.
    fn any() -> BoxedStrategy<Self::Buf>;
    /// The other kind.
    type Other: IndexKey + ?Sized;
}

impl Keys for u64 {
    fn number(number: u64) -> u64 {
        number
    }
    /// Near and far apart.
    fn any() -> BoxedStrategy<u64> {
        prop_oneof![
            4 => 0..48u64,
            4 => 0..400u64,
            2 => (0..32u64).prop_map(|number| u64::MAX - number),
            2 => (0..64u64).prop_map(|number| number << 56 | number),
            1 => (0..64u64).prop_map(|number| number << 20),
        ]
        .boxed()
    }
    type Other = [u8];
}

impl Keys for [u8] {
    fn number(number: u64) -> Vec<u8> {
        // Of different lengths, none a prefix of another, so that their order is the numbers'.
        let mut key = number.to_be_bytes().to_vec();
        key.extend((0..number % 23).map(|index| (index * 37) as u8));
        key
    }
    /// Over few letters, so that many share prefixes and are prefixes; and long ones.
    fn any() -> BoxedStrategy<Vec<u8>> {
        let letter = prop::sample::select(vec![0u8, 1, 0x10, 0x11, 0x80, 0xFF]);
        prop_oneof![
            6 => prop::collection::vec(letter, 1..9),
            4 => u64::any().prop_map(Self::number),
            1 => prop::collection::vec(any::<u8>(), 1..300),
            1 => (1..300usize).prop_map(|length| vec![0; length]),
        ]
        .boxed()
    }
    type Other = u64;
}

/// So many steps, or keys; a fiftieth of them under Miri, which takes a thousand times as long.
pub const fn so_many(steps: u64) -> u64 {
    if cfg!(miri) { steps / 50 } else { steps }
}

/// A file in which pools are created and opened. Miri, which has no mappings, is given memory of each pool's own.
pub struct Place {
    _directory: tempfile::TempDir,
    pub path: PathBuf,
    pub options: RegionOptions,
}

impl Place {
    pub fn new() -> Self {
        Self::of(1 << 30)
    }

    /// A place where pools grow to `reserve_bytes` at most.
    pub fn of(reserve_bytes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let options = RegionOptions { reserve_bytes, ..RegionOptions::default() };
        Self { _directory: directory, path, options }
    }

    pub fn create(&self) -> Arc<Pool<Here>> {
        let bytes = self.options.reserve_bytes.min(1 << 20);
        if cfg!(miri) {
            return pool_in_memory();
        }
        let region = Region::create_file(&self.path, bytes, &self.options).unwrap();
        Arc::new(Pool::create(region, Here::new(Default::default())).unwrap())
    }

    pub fn open(&self) -> Arc<Pool<Here>> {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<Arc<Pool<Here>>, PoolError> {
        let region = Region::open_file(&self.path, &self.options)?;
        Pool::open(region, Here::new(Default::default())).map(Arc::new)
    }
}

/// A structure under test, of which the tests themselves are not compiled again.
#[derive(Clone, Copy, Debug)]
pub struct Tested {
    pub kind: IndexKind,
    /// Where its inner nodes lie, if they are volatile.
    pub inner_nodes: InnerNodes,
}

impl Tested {
    /// As it is by default.
    pub fn default_options(self) -> IndexOptions {
        IndexOptions { inner_nodes: self.inner_nodes, ..IndexOptions::default() }
    }

    /// As the checker explores it: nodes are small and are split and merged often.
    pub fn explored_options(self) -> IndexOptions {
        let explored = self.kind.declaration().exploration.options.clone();
        IndexOptions { inner_nodes: self.inner_nodes, ..explored }
    }

    pub fn capabilities(self) -> Capabilities {
        with_index!(self.kind, |F| IndexOf::<F, Here, u64>::CAPABILITIES)
    }

    /// Creates an index under a name and opens it.
    pub fn create<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Arc<Pool<D>>,
        name: &str,
    ) -> AnyIndex<D, K> {
        self.create_with(pool, name, &self.default_options())
    }

    /// [`Tested::create`] with options.
    pub fn create_with<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Arc<Pool<D>>,
        name: &str,
        options: &IndexOptions,
    ) -> AnyIndex<D, K> {
        IndexMaker::HERE.create_named(self.kind, pool, name, options).unwrap()
    }

    /// Opens the index under a name.
    pub fn open<K: IndexKey + ?Sized>(self, pool: &Arc<Pool<Here>>, name: &str) -> On<K> {
        self.try_open(pool, name).unwrap()
    }

    pub fn try_open<K: IndexKey + ?Sized>(
        self,
        pool: &Arc<Pool<Here>>,
        name: &str,
    ) -> Result<On<K>, IndexError> {
        IndexMaker::HERE.open(self.kind, Arc::clone(pool), pool.root(name).unwrap())
    }

    /// An index in a pool in memory.
    pub fn in_memory<K: IndexKey + ?Sized>(self) -> On<K> {
        self.create(&pool_in_memory(), "index")
    }

    /// An index with explored options, whose threads are held up.
    pub fn with_hold_ups<K: IndexKey + ?Sized>(self) -> On<K> {
        let pool = pool_in_memory();
        let index = self.create_with(&pool, "index", &self.explored_options());
        pool.domain().watcher().0.hold_up(HOLD_UPS);
        index
    }

    /// An index with default and one with explored options.
    pub fn geometries<K: IndexKey + ?Sized>(self) -> [On<K>; 2] {
        [self.default_options(), self.explored_options()]
            .map(|options| self.create_with(&pool_in_memory(), "index", &options))
    }
}

/// The 32-bit field at `offset` in the root of an index, for tests that falsify it.
pub fn root_field(pool: &Pool<Here>, name: &str, offset: u64) -> u32 {
    let root = pool.root::<lapis_pmem::PCell<u32>>(name).unwrap();
    pool.at(Link::<lapis_pmem::PCell<u32>>::from_bits(root.offset() + offset)).load(pool.domain())
}

/// Overwrites what [`root_field`] reads.
pub fn set_root_field(pool: &Pool<Here>, name: &str, offset: u64, value: u32) {
    let root = pool.root::<lapis_pmem::PCell<u32>>(name).unwrap();
    let field = Link::<lapis_pmem::PCell<u32>>::from_bits(root.offset() + offset);
    pool.at(field).store(pool.domain(), value);
}

/// All entries, in the order of iteration.
pub fn entries<D: Domain, K: IndexKey + ?Sized>(index: &AnyIndex<D, K>) -> Vec<(K::Buf, u64)> {
    let mut entries = Vec::new();
    index.for_each(&mut |key, value| {
        entries.push((key.to_buf(), value));
        ControlFlow::Continue(())
    });
    entries
}

/// Asserts that the blocks which are allocated are those which are reachable, and are counted.
pub fn assert_nothing_leaked<D: Domain, K: IndexKey + ?Sized>(index: &AnyIndex<D, K>) {
    let reachable = index.pool().reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
    let audit = index.pool().audit(&reachable);
    assert!(audit.is_clean(), "{audit:?}");
    assert_eq!(reachable.block_count(), index.statistics().blocks);
}

/// The values of these keys, looked up at the same time.
pub fn many<D: Domain, K: IndexKey + ?Sized>(
    index: &AnyIndex<D, K>,
    keys: &[K::Buf],
) -> Vec<Option<u64>> {
    let keys: Vec<&K> = keys.iter().map(K::borrow).collect();
    let mut values = vec![None; keys.len()];
    index.get_many(&keys, &mut |place, value| values[place] = value);
    values
}

/// Asserts that the index holds exactly `expected`, that its own check finds nothing, and that no
/// block is lost.
pub fn assert_sound<D: Domain, K: IndexKey + ?Sized>(
    index: &AnyIndex<D, K>,
    expected: &BTreeMap<K::Buf, u64>,
) {
    assert_eq!(index.check(), Vec::<String>::new());
    for (key, value) in expected {
        assert_eq!(index.get(K::borrow(key)), Some(*value), "{key:?}");
    }
    let keys: Vec<_> = expected.keys().cloned().collect();
    assert!(many::<_, K>(index, &keys).into_iter().eq(expected.values().copied().map(Some)));
    let mut found = entries(index);
    if !index.kind().1.ordered {
        found.sort();
    }
    let expected: Vec<_> = expected.iter().map(|(key, value)| (key.clone(), *value)).collect();
    assert!(found == expected, "iteration found {} entries of {}", found.len(), expected.len());
    assert_eq!(index.statistics().entries, expected.len() as u64);
    assert_nothing_leaked(index);
}
