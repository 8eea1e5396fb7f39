//! What the fixture holds, and how it was written.

use std::sync::Arc;

use lapis_blocks::fp_leaves::{FpLeaves, Overlap};
use lapis_blocks::in_place::{CellArray, InPlace};
use lapis_blocks::interleave::Interleaver;
use lapis_blocks::log::{Layout, Log, Position};
use lapis_blocks::page::{DirtyLines, PageScheme, PageStore, PageStoreOptions};
use lapis_blocks::pop_log::PopLog;
use lapis_blocks::{CellKind, LogKind, with_cell, with_log};
use lapis_device::Modelled;
use lapis_pmem::{Committed, Link, Pool};

pub const VALUE_BYTES: usize = 40;
pub const CELLS: usize = 3;
pub const PAGE_BYTES: usize = 4096;
pub const KEYS: u64 = 40;
const RETAINED: u64 = 5;
const APPENDED: u64 = 60;
const LOG_BYTES: usize = 4096;

/// Something to do with every log of the fixture, whatever its kind.
pub trait EachLog {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, layout: Layout);
}

pub fn each_log(to: &mut impl EachLog) {
    for kind in LogKind::ALL {
        for run in kind.declaration().runs {
            with_log!(kind, Modelled, |L| to.visit::<L>(run.name, run.layout(LOG_BYTES)));
        }
    }
}

fn entry(number: u64) -> Vec<u8> {
    (0..1 + number * 37 % 230).map(|at| (at * 5 + number) as u8).collect()
}

/// What every log retains: the ring has been gone round more than once by then.
pub fn entries() -> Vec<(Position, Vec<u8>)> {
    let retained = APPENDED - RETAINED + 1..=APPENDED;
    retained.map(|number| (Position::from_number(number), entry(number))).collect()
}

pub fn value(cell: usize) -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| (at * 11 + cell * 3 + 1) as u8).collect()
}

/// Pages of every store, by id; page 5 has been deleted.
pub fn pages() -> [(u64, Vec<u8>); 2] {
    let mut first = vec![0; PAGE_BYTES];
    first[..100].fill(0x11);
    first[640..700].fill(0x22);
    first[PAGE_BYTES - 1] = 0x33;
    let mut other = vec![0; PAGE_BYTES];
    other[128..192].fill(0x44);
    [(0, first), (7, other)]
}

pub fn pair(number: u64) -> (u64, u64) {
    (number * 0x0101_0101_0101 + 1, !number)
}

fn publish<T: lapis_pmem::Persistent>(
    pool: &Pool<Modelled>,
    name: &str,
    made: lapis_pmem::Owned<'_, Modelled, T, lapis_pmem::InFlight>,
) -> Link<T> {
    let made = pool.fence(made);
    let link = made.link();
    let _: Committed = pool.publish_root(name, 0, made).unwrap().persist();
    link
}

struct Write<'p>(&'p Arc<Pool<Modelled>>);

impl EachLog for Write<'_> {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, layout: Layout) {
        let root = publish(self.0, name, L::create(self.0, L::options(layout)).unwrap());
        let log = L::open(Arc::clone(self.0), root).unwrap();
        for number in 1..=APPENDED {
            log.append(&entry(number)).unwrap();
            if number > RETAINED {
                let _ = log.truncate(Position::from_number(number - RETAINED + 1)).unwrap();
            }
        }
    }
}

fn write_cells<S: InPlace<Modelled>>(pool: &Arc<Pool<Modelled>>) {
    let layout = Layout { bytes: LOG_BYTES, ..Layout::default() };
    let scheme = S::make_in(pool, layout).unwrap();
    let made = CellArray::create(pool, &scheme, VALUE_BYTES, CELLS).unwrap();
    let root = publish(pool, S::KIND.name(), made);
    let cells = CellArray::open(pool, scheme, root).unwrap();
    for cell in 0..CELLS {
        cells.update(cell, &value(cell + 9)).unwrap();
        cells.update(cell, &value(cell)).unwrap();
    }
}

fn write_pages(pool: &Arc<Pool<Modelled>>, scheme: PageScheme) {
    let options = PageStoreOptions {
        scheme,
        page_bytes: PAGE_BYTES,
        page_ids: 8,
        capacity_pages: 3,
        lanes: 2,
    };
    let root = publish(pool, scheme.name, PageStore::create(pool, &options).unwrap());
    let store = PageStore::open(Arc::clone(pool), root).unwrap();
    let mut dirty = DirtyLines::none();
    dirty.mark(640, 60);
    for (id, page) in pages() {
        let mut before = page.clone();
        before[640..700].fill(0x55);
        store.write_page(id, &before, &DirtyLines::all(PAGE_BYTES)).unwrap();
        store.write_page(5, &before, &DirtyLines::all(PAGE_BYTES)).unwrap();
        store.write_page(id, &page, &dirty).unwrap();
        let _ = store.delete_page(5).unwrap();
    }
}

fn write_leaves(pool: &Arc<Pool<Modelled>>) {
    let root = publish(pool, "fp-leaves", FpLeaves::create(pool, 4).unwrap());
    let leaves = &FpLeaves::open(pool, root).unwrap();
    Interleaver::new(pool.domain(), 4).run(
        0..KEYS,
        |turn, number| async move {
            let (key, value) = pair(number);
            leaves.insert(turn, key, value, Overlap::BOTH).await
        },
        |inserted| assert!(inserted.is_ok()),
    );
}

/// Puts one of everything into a new pool.
pub fn write(pool: &Arc<Pool<Modelled>>) {
    each_log(&mut Write(pool));
    for kind in CellKind::ALL {
        with_cell!(kind, Modelled, PopLog<Modelled>, |S| write_cells::<S>(pool));
    }
    PageScheme::all().into_iter().for_each(|scheme| write_pages(pool, scheme));
    write_leaves(pool);
}
