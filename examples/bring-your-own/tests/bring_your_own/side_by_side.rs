//! The flat map beside an index of Lapis, in the experiment of `lapis lab index`: measured here, counted on the
//! modelled machine, every answer checked.

use std::sync::Arc;

use lapis_example_ring::flat_map::FlatMap;
use lapis_index::{Change, IndexError, IndexKind, IndexOptions, Statistics};
use lapis_lab::experiment::{Findings, Sides};
use lapis_lab::index_experiment::{Contender, Operation, Options, OwnIndex, run};
use lapis_lab::ycsb::Workload;
use lapis_pmem::{Domain, Hardware, Pool};

/// The map with twice the room that its keys need, so that searches are short.
struct Entered<D: Domain>(FlatMap<D>);

impl<D: Domain> OwnIndex<D> for Entered<D> {
    fn create(pool: Arc<Pool<D>>, options: &IndexOptions) -> Result<Self, IndexError> {
        FlatMap::create(pool, 2 * options.expected_entries).map(Self)
    }

    fn change(&self, key: u64, change: Change) -> Result<Option<u64>, IndexError> {
        self.0.change(key, change)
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(key)
    }

    fn statistics(&self) -> Statistics {
        let (entries, bytes) = (self.0.entries().len() as u64, self.0.bytes() as u64);
        Statistics { entries, blocks: 2, bytes, ..Statistics::default() }
    }
}

/// What is run: presized, since a flat map does not grow.
fn options() -> Options {
    Options {
        indexes: vec![IndexKind::PClht],
        own: vec![Contender::own::<Entered<Hardware>, Entered<lapis_crash::Modelled>>("flat-map")],
        operations: vec![
            Operation::Load,
            Operation::Get,
            Operation::Ycsb(Workload::A),
            Operation::Delete,
            Operation::GetMany,
        ],
        keys: 4000,
        presized: true,
        ..Options::default()
    }
}

#[test]
fn the_flat_map_stands_beside_p_clht() {
    let results = run(&options(), &|_| ()).unwrap();
    let names: Vec<_> = results.rows.iter().map(|row| row.case.index).collect();
    assert_eq!(names, ["p-clht"; 5].into_iter().chain(["flat-map"; 5]).collect::<Vec<_>>());
    for row in &results.rows {
        assert!(row.measured.unwrap().mops > 0.0, "{row:?}");
    }
    let of = |operation| {
        let row = results
            .rows
            .iter()
            .find(|row| (row.case.index, row.case.operation) == ("flat-map", operation));
        row.and_then(|row| row.modelled.as_ref()).unwrap().counts
    };
    // I2: a change is one line.
    for operation in [Operation::Load, Operation::Delete] {
        let counts = of(operation);
        assert_eq!((counts.flushes, counts.fences, counts.wpq_inserts), (1.0, 1.0, 1.0));
    }
    for operation in [Operation::Get, Operation::GetMany] {
        assert_eq!(of(operation).flushes, 0.0);
    }
    // The same table and figure as `lapis lab index` prints and draws.
    assert!(results.tables()[0].markdown().contains("| flat-map | ycsb-a | "));
    assert!(results.figure().is_some());
}

#[test]
fn a_map_without_an_order_is_asked_for_no_ranges() {
    let only = Options {
        indexes: Vec::new(),
        operations: vec![Operation::Range],
        sides: Sides::modelled_only(),
        ..options()
    };
    let refused = run(&only, &|_| ()).unwrap_err().to_string();
    assert_eq!(refused, "flat-map keeps no order, so it has no range; name an ordered index");
}

/// A map that does not answer many look-ups at once.
struct Silent<D: Domain>(Entered<D>);

impl<D: Domain> OwnIndex<D> for Silent<D> {
    fn create(pool: Arc<Pool<D>>, options: &IndexOptions) -> Result<Self, IndexError> {
        Entered::create(pool, options).map(Self)
    }

    fn change(&self, key: u64, change: Change) -> Result<Option<u64>, IndexError> {
        self.0.change(key, change)
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(key)
    }

    fn get_many(&self, _keys: &[&u64], _answer: &mut dyn FnMut(usize, Option<u64>)) {}

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

#[test]
fn look_ups_that_are_not_answered_are_wrong() {
    let silent = Contender::own::<Silent<Hardware>, Silent<lapis_crash::Modelled>>("silent");
    for sides in [Sides::modelled_only(), Sides { model: false, ..Sides::default() }] {
        let only = Options {
            indexes: Vec::new(),
            own: vec![silent],
            operations: vec![Operation::GetMany],
            sides,
            ..options()
        };
        let told = run(&only, &|_| ()).unwrap_err().to_string();
        assert_eq!(told, "silent gave 4000 wrong answers in get-many");
    }
}
