//! What a fixture holds is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::fp_leaves::{FpLeaves, Overlap};
use lapis_blocks::in_place::{CellArray, InPlace};
use lapis_blocks::interleave::Interleaver;
use lapis_blocks::log::{Layout, Log};
use lapis_blocks::page::{PageScheme, PageStore};
use lapis_blocks::pop_log::PopLog;
use lapis_blocks::{CellKind, with_cell};
use lapis_device::Modelled;
use lapis_pmem::{Link, PCell, Pool};

use super::contents::*;
use super::{fixture, root};

struct Read(Arc<Pool<Modelled>>);

impl EachLog for Read {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, _: Layout) {
        let log = L::open(Arc::clone(&self.0), root(&self.0, name)).unwrap();
        assert_eq!(log.entries().map(Result::unwrap).collect::<Vec<_>>(), entries(), "{name}");
        assert_eq!(log.check(), [], "{name}");
        log.append(b"and on it goes").unwrap();
        assert_eq!(log.entries().count(), entries().len() + 1, "{name}");
    }
}

#[test]
fn logs_have_their_entries_and_take_more() {
    each_log(&mut Read(fixture()));
}

/// A new log has the fixture's version: what is written has not changed.
struct SameVersion(Arc<Pool<Modelled>>);

impl EachLog for SameVersion {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, layout: Layout) {
        const VERSION: u64 = 8;
        let made = self.0.fence(L::create(&self.0, L::options(layout)).unwrap());
        let version = |root: u64| {
            let word: Link<PCell<u64>> = Link::from_bits(root + VERSION);
            self.0.at(word).load(self.0.domain())
        };
        let of_fixture = version(root::<PCell<u64>>(&self.0, name).offset());
        assert_eq!(version(made.link().offset()), of_fixture, "{name}");
    }
}

#[test]
fn new_logs_have_the_version_of_the_fixture() {
    each_log(&mut SameVersion(fixture()));
}

fn cells_are_there<S: InPlace<Modelled>>(pool: &Arc<Pool<Modelled>>) {
    let scheme = S::open_in(pool).unwrap();
    let cells = CellArray::open(pool, scheme, root(pool, S::KIND.name())).unwrap();
    assert_eq!((cells.len(), cells.value_bytes()), (CELLS, VALUE_BYTES));
    let mut found = vec![0; VALUE_BYTES];
    for cell in 0..CELLS {
        cells.read(cell, &mut found).unwrap();
        assert_eq!(found, value(cell), "{} {cell}", S::KIND);
    }
    cells.update(1, &value(4)).unwrap();
    cells.read(1, &mut found).unwrap();
    assert_eq!(found, value(4), "{}", S::KIND);
}

#[test]
fn cells_have_their_values() {
    let pool = fixture();
    for kind in CellKind::ALL {
        with_cell!(kind, Modelled, PopLog<Modelled>, |S| cells_are_there::<S>(&pool));
    }
}

#[test]
fn pages_are_there() {
    let pool = fixture();
    for scheme in PageScheme::all() {
        let name = scheme.name;
        let store = PageStore::open(Arc::clone(&pool), root(&pool, name)).unwrap();
        assert_eq!((store.scheme(), store.page_bytes()), (scheme, PAGE_BYTES));
        for (id, page) in pages() {
            let mut found = vec![0; PAGE_BYTES];
            store.read_page(id, &mut found).unwrap();
            assert!(found == page, "{name}, page {id}");
        }
        assert!(!store.contains(5).unwrap(), "{name}");
        assert_eq!(store.check(), [], "{name}");
    }
}

#[test]
fn leaves_have_their_pairs() {
    let pool = fixture();
    let leaves = &FpLeaves::open(&pool, root(&pool, "fp-leaves")).unwrap();
    let mut found = BTreeMap::new();
    leaves.for_each(|key, value| assert!(found.insert(key, value).is_none()));
    assert_eq!(found, (0..KEYS).map(pair).collect());
    assert_eq!(leaves.check(), Vec::<String>::new());
    let mut right = 0;
    Interleaver::new(pool.domain(), 4).run(
        0..KEYS,
        |turn, number| async move {
            let (key, value) = pair(number);
            leaves.get(turn, key, Overlap::BOTH).await == Some(value)
        },
        |is_right| right += u64::from(is_right),
    );
    assert_eq!(right, KEYS);
}
