//! CowCell: two copies and a selector.
//!
//! After section 3.4.1 of van Renen et al. (VLDB Journal 2020).
//!
//! # Layout
//!
//! ```text
//!  word   0            w            2w
//!        +------------+------------+----------+      w = words of the value
//!        | copy 0     | copy 1     | selector |
//!        +------------+------------+----------+
//!                                   bit 0: which copy counts; the rest zero
//! ```
//!
//! The selector lies behind the copies, so that a copy of up to a line does not cross one.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. The copy that the selector names holds the last acknowledged value, or the one in flight.
//! * I2. A copy is written only while the selector, durably, names the other.
//!
//! # Order of stores, and cost
//!
//! The other copy stored, flushed, fenced (I1); the selector stored, flushed, fenced (I2 for the
//! update after this one). Two barriers; the lines of a copy and the selector's. Nothing to recover:
//! the selector is one word, and what it says was durable before it said so.

use crate::declaration::{CellRun, Declaration};
use crate::log::Layout;
use lapis_pmem::{Committed, Domain, PCell, Pool};
use std::sync::Arc;

use super::mutants::{OVERWRITE_ACTIVE, SELECT_BEFORE_COPY};
use super::{CellDamage, CellKind, InPlace, InPlaceError, load_value, store_value, value_words};

/// Copy-on-write cells. See the [module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CowCell;

impl CowCell {
    fn copy(cell: &[PCell<u64>], words: usize, number: u64) -> &[PCell<u64>] {
        &cell[number as usize * words..][..words]
    }
}

impl<D: Domain> InPlace<D> for CowCell {
    const KIND: CellKind = CellKind::Cow;
    const BARRIERS: u64 = 2;

    fn make_in(_: &Arc<Pool<D>>, _: Layout) -> Result<Self, InPlaceError> {
        Ok(Self)
    }

    fn open_in(_: &Arc<Pool<D>>) -> Result<Self, InPlaceError> {
        Ok(Self)
    }

    fn cell_words(&self, value_bytes: usize) -> usize {
        2 * value_words(value_bytes) + 1
    }

    #[inline]
    fn read(&self, domain: &D, cell: &[PCell<u64>], value: &mut [u8]) {
        let words = value_words(value.len());
        let active = cell[2 * words].load(domain) & 1;
        load_value(domain, Self::copy(cell, words, active), value);
    }

    #[inline]
    fn update(
        &self,
        domain: &D,
        cell: &[PCell<u64>],
        value: &[u8],
    ) -> Result<Committed, InPlaceError> {
        let words = value_words(value.len());
        let selector = &cell[2 * words];
        let active = selector.load(domain) & 1;
        let spare = if domain.commits(OVERWRITE_ACTIVE) { active } else { active ^ 1 };
        let copy = Self::copy(cell, words, spare);
        store_value(domain, copy, value);
        {
            let _mutant = domain.omitting(SELECT_BEFORE_COPY);
            // I1: the copy is durable before it counts.
            domain.flush(copy);
            domain.fence();
        }
        // I2: the next update may overwrite the other copy, so this has to be durable, too.
        Ok(selector.publish(domain, spare).persist())
    }

    fn recover(&self, domain: &D, cell: &[PCell<u64>]) -> Result<bool, CellDamage> {
        let Some(selector) = cell.last() else { return Err(CellDamage("it has no words")) };
        if selector.load(domain) > 1 {
            return Err(CellDamage("its selector names no copy"));
        }
        Ok(false)
    }
}

pub(crate) const DECLARATION: Declaration<CellRun> = Declaration {
    name: "cow-cell",
    sources: &["blocks/src/in_place/cow_cell", "blocks/src/in_place/array"],
    mutants: super::mutants::COW_CELL,
    runs: &[
        CellRun { name: "cow-cell:16", value_bytes: 16 },
        CellRun { name: "cow-cell:100", value_bytes: 100 },
    ],
    operations: 60,
    persist_points: (60, 2),
};
