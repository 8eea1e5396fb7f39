//! Two copies and a count of updates: the toy by which a test shows what it takes to add cells.
//!
//! * I1. The copy that the last bit of the count names holds the last acknowledged value, durably.

use std::sync::Arc;

use lapis_pmem::{Committed, Domain, PCell, Pool, mutants};

use super::{CellDamage, CellKind, InPlace, InPlaceError, load_value, store_value, value_words};
use crate::declaration::{CellRun, Declaration};
use crate::log::Layout;

mutants! {
    /// The mutants of the toy, and operations in which all show.
    CATALOGUE: 40 operations;

    /// The count is stored before the copy that it names is durable.
    COUNT_BEFORE_COPY = "toy-cell/count-before-copy" =>
        at("blocks/src/in_place/toy_cell.rs, update");
}

/// Cells of two copies.
#[derive(Clone, Copy, Debug)]
pub struct ToyCell;

impl<D: Domain> InPlace<D> for ToyCell {
    const KIND: CellKind = CellKind::Toy;
    const BARRIERS: u64 = 2;

    fn make_in(_: &Arc<Pool<D>>, _: Layout) -> Result<Self, InPlaceError> {
        Ok(Self)
    }

    fn open_in(_: &Arc<Pool<D>>) -> Result<Self, InPlaceError> {
        Ok(Self)
    }

    fn cell_words(&self, value_bytes: usize) -> usize {
        1 + 2 * value_words(value_bytes)
    }

    fn read(&self, domain: &D, cell: &[PCell<u64>], value: &mut [u8]) {
        let (words, count) = (value_words(value.len()), cell[0].load(domain));
        load_value(domain, &cell[1 + (count % 2) as usize * words..], value);
    }

    fn update(
        &self,
        domain: &D,
        cell: &[PCell<u64>],
        value: &[u8],
    ) -> Result<Committed, InPlaceError> {
        let (words, count) = (value_words(value.len()), cell[0].load(domain).wrapping_add(1));
        let copy = &cell[1 + (count % 2) as usize * words..][..words];
        store_value(domain, copy, value);
        {
            let _mutant = domain.omitting(COUNT_BEFORE_COPY);
            // I1.
            domain.flush(copy);
            domain.fence();
        }
        Ok(cell[0].publish(domain, count).persist())
    }

    fn recover(&self, _: &D, _: &[PCell<u64>]) -> Result<bool, CellDamage> {
        Ok(false)
    }
}

pub(crate) const DECLARATION: Declaration<CellRun> = Declaration {
    name: "toy-cell",
    sources: &["blocks/src/in_place/toy_cell"],
    mutants: CATALOGUE,
    runs: &[CellRun { name: "toy-cell:100", value_bytes: 100 }],
    operations: 40,
    persist_points: (40, 1),
};
