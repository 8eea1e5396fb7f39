//! What a transaction of one put costs, counted.

use lapis::{IndexKind, Store, StoreOptions, Table, TableOptions};
use lapis_pmem::{PersistCounts, Pool, Region};

use crate::harness::*;

struct Counted {
    table: Table<Counting>,
    counts: PersistCounts,
}

impl Counted {
    /// A store whose table has 1000 keys of 8 bytes.
    fn new(kind: IndexKind) -> Self {
        let counts = PersistCounts::default();
        let region = Region::anonymous(64 << 20, 1 << 30).unwrap();
        let pool = Pool::create(region, Counting::new(counts.clone())).unwrap();
        let store = Store::create_on(pool, &StoreOptions::default()).unwrap();
        let table = store.create_table("t", &TableOptions::with_index(kind)).unwrap();
        for number in 0..1000 {
            table.put(&key(number), &number.to_le_bytes()).unwrap();
        }
        Self { table, counts }
    }

    /// The flushed lines and fences that most of 200 runs of `operation` have.
    fn usual(&self, mut operation: impl FnMut(&Table<Counting>, u64)) -> (u64, u64) {
        let mut costs: Vec<_> = (0..200)
            .map(|number| {
                self.counts.take();
                operation(&self.table, number);
                self.counts.take()
            })
            .collect();
        costs.sort();
        costs[100]
    }
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn costs(kind: IndexKind) -> [(u64, u64); 4] {
    let counted = Counted::new(kind);
    [
        counted.usual(|table, number| table.put(&key(number), b"8 bytes!").unwrap()),
        counted.usual(|table, number| table.put(&key(1000 + number), b"8 bytes!").unwrap()),
        counted.usual(|table, number| assert!(table.delete(&key(1000 + number)).unwrap())),
        counted.usual(|table, number| assert!(table.get(&key(number)).unwrap().is_some())),
    ]
}

#[test]
fn a_put_into_a_wort_table_takes_no_more_than_three_fences() {
    let counted = Counted::new(IndexKind::Wort);
    let (_, replacing) =
        counted.usual(|table, number| table.put(&key(number), b"8 bytes!").unwrap());
    let (_, adding) =
        counted.usual(|table, number| table.put(&key(1000 + number), b"8 bytes!").unwrap());
    assert!(replacing <= 3 && adding <= 3, "{replacing}, {adding}");
}

#[test]
fn flushes_and_fences_of_replacing_adding_deleting_and_getting() {
    for kind in KINDS {
        let [replacing, adding, deleting] = kind.declaration().in_a_store;
        assert_eq!(costs(kind), [replacing, adding, deleting, (0, 0)], "{kind}");
    }
}
