//! Cells that are updated in place, by each of the schemes.

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_blocks::in_place::{CellArray, CellArrayRoot, InPlace};
use lapis_blocks::log::Layout;
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const ROOT: &str = "cells";
/// Cells of an array.
pub(crate) const CELLS: usize = 5;

/// Replaces the value of a cell by one made from a number.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// The cell.
    pub cell: usize,
    /// Determines the value.
    pub number: u64,
}

/// An array of cells of one scheme and size, to check.
#[derive(Debug)]
pub struct InPlaceSubject<S> {
    name: &'static str,
    value_bytes: usize,
    log: Layout,
    scheme: PhantomData<fn() -> S>,
}

impl<S: InPlace<Modelled>> InPlaceSubject<S> {
    /// Cells of so many bytes, with a log that is laid out like that if they take one.
    pub fn new(name: &'static str, value_bytes: usize, log: Layout) -> Self {
        Self { name, value_bytes, log, scheme: PhantomData }
    }
}

fn value_of(number: u64, value_bytes: usize) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(number);
    (0..value_bytes).map(|_| random.random()).collect()
}

/// An open array.
#[derive(Debug)]
pub struct LiveCells<S> {
    array: CellArray<Modelled, S>,
    value_bytes: usize,
}

impl<S: InPlace<Modelled> + 'static> Subject for InPlaceSubject<S> {
    type Operation = Update;
    type State = Vec<Vec<u8>>;
    type Live = LiveCells<S>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        4 << 20
    }

    fn prior_contents(&self) -> u8 {
        0xC3
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<Update> {
        let mut random = SmallRng::seed_from_u64(seed);
        (0..count)
            .map(|_| Update { cell: random.random_range(0..CELLS), number: random.random() })
            .collect()
    }

    fn probes(&self, _: &Self::State, interrupted: Option<&Update>, seed: u64) -> Vec<Update> {
        // First the cell that an interrupted update has left behind, then another.
        let cell = interrupted.map_or(0, |update| update.cell);
        let another = Update { cell: (cell + 1) % CELLS, number: seed ^ 2 };
        vec![Update { cell, number: seed ^ 1 }, another, Update { cell, number: seed ^ 3 }]
    }

    fn create(&self, storage: Storage) -> Result<LiveCells<S>, String> {
        let pool = Arc::new(storage.into_pool());
        let scheme = S::make_in(&pool, self.log).map_err(text)?;
        let array = CellArray::create(&pool, &scheme, self.value_bytes, CELLS).map_err(text)?;
        let array = pool.fence(array);
        let root = array.link();
        let _committed = pool.publish_root(ROOT, 0, array).map_err(text)?.persist();
        let array = CellArray::open(&pool, scheme, root).map_err(text)?;
        Ok(LiveCells { array, value_bytes: self.value_bytes })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveCells<S>>, String> {
        let pool = Arc::new(storage.into_pool());
        let Some(root) = pool.root::<CellArrayRoot>(ROOT) else { return Ok(None) };
        let scheme = S::open_in(&pool).map_err(text)?;
        let array = CellArray::open(&pool, scheme, root).map_err(text)?;
        Ok(Some(LiveCells { array, value_bytes: self.value_bytes }))
    }

    fn initial(&self) -> Self::State {
        vec![vec![0; self.value_bytes]; CELLS]
    }

    fn apply(&self, state: &mut Self::State, update: &Update) {
        state[update.cell] = value_of(update.number, self.value_bytes);
    }

    fn owns_source(&self, file: &str) -> bool {
        S::KIND.declaration().sources.iter().any(|source| file.contains(source))
    }
}

impl<S: InPlace<Modelled>> LiveCells<S> {
    /// Whoever updates a cell is alone with it.
    pub(crate) fn update(&self, update: &Update) -> Result<(), String> {
        let value = value_of(update.number, self.value_bytes);
        self.array.update(update.cell, &value).map(|_| ()).map_err(text)
    }
}

impl<S: InPlace<Modelled>> Live<Update, Vec<Vec<u8>>> for LiveCells<S> {
    fn perform(&mut self, update: &Update) -> Result<(), String> {
        self.update(update)
    }

    fn observe(&self) -> Result<Vec<Vec<u8>>, String> {
        (0..self.array.len())
            .map(|index| {
                let mut value = vec![0; self.value_bytes];
                self.array.read(index, &mut value).map_err(text)?;
                Ok(value)
            })
            .collect()
    }

    fn find(&self, expected: &[&Vec<Vec<u8>>], _turn: u64) -> Result<Option<usize>, String> {
        let mut value = vec![0; self.value_bytes];
        let mut is_same: Vec<bool> =
            expected.iter().map(|state| state.len() == self.array.len()).collect();
        for index in 0..self.array.len() {
            self.array.read(index, &mut value).map_err(text)?;
            for (is_same, state) in is_same.iter_mut().zip(expected) {
                *is_same &= state.get(index) == Some(&value);
            }
        }
        Ok(is_same.iter().position(|is_same| *is_same))
    }

    fn check(&self) -> Vec<String> {
        self.array.scheme().check().iter().map(ToString::to_string).collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.array.pool();
        let reachable = pool.reachable(|visitor| self.array.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.array.pool())
    }
}
