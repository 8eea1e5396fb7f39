//! Cells that are updated in place, by each of the schemes.

use std::sync::Arc;

use lapis_blocks::in_place::{CellArray, CellArrayRoot, CowCell, FamCell, InPlace, LogCell};
use lapis_blocks::log::Log;
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Link, Pool, Tracer};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const CELLS: &str = "cells";
const LOG: &str = "log";
const COUNT: usize = 5;

/// Replaces the value of a cell by one made from a number.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// The cell.
    pub cell: usize,
    /// Determines the value.
    pub number: u64,
}

/// How the cells of a subject come by their scheme.
pub trait Scheme: InPlace<Modelled> + Send + Sync + Sized + 'static {
    /// The folder or file of its code.
    const SOURCE: &'static str;
    /// How to make what it needs beside the cells.
    type Options: Clone + Sync + std::fmt::Debug;

    /// Makes what the scheme needs beside the cells.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn make(pool: &Arc<Pool<Modelled>>, options: &Self::Options) -> Result<Self, String>;

    /// Opens it.
    ///
    /// # Errors
    /// What went wrong, for a person.
    fn open(pool: &Arc<Pool<Modelled>>) -> Result<Self, String>;

    /// What is wrong with what it has beside the cells.
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    /// Visits the blocks that it has beside the cells.
    fn trace(&self, _: &mut Tracer<'_, Modelled>) {}
}

impl Scheme for CowCell {
    const SOURCE: &'static str = "blocks/src/in_place/cow_cell";

    type Options = ();

    fn make(_: &Arc<Pool<Modelled>>, (): &()) -> Result<Self, String> {
        Ok(Self)
    }

    fn open(_: &Arc<Pool<Modelled>>) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Scheme for FamCell {
    const SOURCE: &'static str = "blocks/src/in_place/fam_cell";

    type Options = ();

    fn make(_: &Arc<Pool<Modelled>>, (): &()) -> Result<Self, String> {
        Ok(Self::default())
    }

    fn open(_: &Arc<Pool<Modelled>>) -> Result<Self, String> {
        Ok(Self::default())
    }
}

impl<L: Log<Modelled, Options: Sync + std::fmt::Debug> + 'static> Scheme for LogCell<Modelled, L> {
    const SOURCE: &'static str = "blocks/src/in_place/log_cell";
    type Options = L::Options;

    fn make(pool: &Arc<Pool<Modelled>>, options: &L::Options) -> Result<Self, String> {
        let root = pool.fence(L::create(pool, options.clone()).map_err(text)?);
        let link = root.link();
        let _committed = pool.publish_root(LOG, 0, root).map_err(text)?.persist();
        let log = L::open(Arc::clone(pool), link).map_err(text)?;
        Self::open(pool, log).map_err(text)
    }

    fn open(pool: &Arc<Pool<Modelled>>) -> Result<Self, String> {
        let root: Link<L::Root> = pool.root(LOG).ok_or("the log of the cells is gone")?;
        let log = L::open(Arc::clone(pool), root).map_err(text)?;
        Self::open(pool, log).map_err(text)
    }

    fn check(&self) -> Vec<String> {
        self.log().check().iter().map(ToString::to_string).collect()
    }

    fn trace(&self, tracer: &mut Tracer<'_, Modelled>) {
        self.log().trace(tracer);
    }
}

/// An array of cells of one scheme and size, to check.
#[derive(Debug)]
pub struct InPlaceSubject<S: Scheme> {
    name: &'static str,
    value_bytes: usize,
    options: S::Options,
}

impl<S: Scheme> InPlaceSubject<S> {
    /// Cells of so many bytes.
    pub fn new(name: &'static str, value_bytes: usize, options: S::Options) -> Self {
        Self { name, value_bytes, options }
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

impl<S: Scheme> Subject for InPlaceSubject<S> {
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
            .map(|_| Update { cell: random.random_range(0..COUNT), number: random.random() })
            .collect()
    }

    fn probes(&self, _: &Self::State, interrupted: Option<&Update>, seed: u64) -> Vec<Update> {
        // First the cell that an interrupted update has left behind, then another.
        let cell = interrupted.map_or(0, |update| update.cell);
        let another = Update { cell: (cell + 1) % COUNT, number: seed ^ 2 };
        vec![Update { cell, number: seed ^ 1 }, another, Update { cell, number: seed ^ 3 }]
    }

    fn create(&self, storage: Storage) -> Result<LiveCells<S>, String> {
        let pool = storage.into_pool();
        let pool = Arc::new(pool);
        let scheme = S::make(&pool, &self.options)?;
        let array = CellArray::create(&pool, &scheme, self.value_bytes, COUNT).map_err(text)?;
        let array = pool.fence(array);
        let root = array.link();
        let _committed = pool.publish_root(CELLS, 0, array).map_err(text)?.persist();
        let array = CellArray::open(&pool, scheme, root).map_err(text)?;
        Ok(LiveCells { array, value_bytes: self.value_bytes })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveCells<S>>, String> {
        self.open_on(&Arc::new(storage.into_pool()))
    }

    fn initial(&self) -> Self::State {
        vec![vec![0; self.value_bytes]; COUNT]
    }

    fn apply(&self, state: &mut Self::State, update: &Update) {
        state[update.cell] = value_of(update.number, self.value_bytes);
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains(S::SOURCE) || file.contains("blocks/src/in_place/array")
    }
}

impl<S: Scheme> InPlaceSubject<S> {
    fn open_on(&self, pool: &Arc<Pool<Modelled>>) -> Result<Option<LiveCells<S>>, String> {
        let Some(root) = pool.root::<CellArrayRoot>(CELLS) else { return Ok(None) };
        let array = CellArray::open(pool, S::open(pool)?, root).map_err(text)?;
        Ok(Some(LiveCells { array, value_bytes: self.value_bytes }))
    }
}

impl<S: Scheme> Live<Update, Vec<Vec<u8>>> for LiveCells<S> {
    fn perform(&mut self, update: &Update) -> Result<(), String> {
        let value = value_of(update.number, self.value_bytes);
        self.array.update(update.cell, &value).map(|_| ()).map_err(text)
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

    fn check(&self) -> Vec<String> {
        self.array.scheme().check()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.array.pool();
        let traced = pool.trace(|tracer| {
            self.array.trace(tracer);
            self.array.scheme().trace(tracer);
        });
        if pool.needs_reclaim() {
            pool.reclaim(&traced);
        }
        pool.audit(&traced)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.array.pool())
    }
}
