//! FamCell: failure-atomic memory, which needs one barrier.
//!
//! After section 3.4.3 and appendix A of van Renen et al. (VLDB Journal 2020). Each word carries 31
//! bits of the value, the same 31 bits of the value before, and a version of two bits; a crash in
//! the middle of an update leaves words of two versions, and those that are ahead are rolled back.
//!
//! # Layout
//!
//! ```text
//!  word   0                h                            h = ⌈pieces / 31⌉
//!        +----------------+---------------------+
//!        | highest bits   | low 31 bits of each |       a piece is 32 bits of the value;
//!        | of the pieces  | piece               |       the word is in module `famb`
//!        +----------------+---------------------+
//! ```
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. Each word is as it was, or as it will be: the word is what persists whole.
//! * I2. Between updates all words have one version, durably. So while an update is in flight, and
//!   after a crash in it, there are at most two, one after the other (modulo four).
//! * I3. A word's old state is the state that its cell had at the version before its own.
//! * I4. Before an update begins, what recovery has rolled back is durable. (Else a word of the
//!   update that was cut short could persist as one of the next, whose version is the same.)
//!
//! # Order of stores, and cost
//!
//! Words stored in any order; their lines flushed; one fence (I2). One barrier; ⌈8n/31⌉ words.
//! Recovery: words ahead rolled back and flushed; the caller fences (I4). It may be repeated: a
//! word that was rolled back has the version of those that were not ahead. An update whose words
//! had all persisted stays, which is right for one in flight.

use crate::declaration::{CellRun, Declaration};
use crate::log::Layout;
use lapis_pmem::{Committed, Domain, PCell, Pool};
use std::sync::Arc;

use super::famb::{Arithmetic, MOST_BLOCKS, UnavailableArithmetic, blocks, rolled_back, version};
use super::mutants::{NO_OLD_STATE, ROLLBACK_KEEPS_VERSION};
use super::{CellDamage, CellKind, InPlace, InPlaceError};

/// Cells of failure-atomic memory. See the [module](super). The default computes in the fastest
/// way that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamCell {
    arithmetic: Arithmetic,
}

impl Default for FamCell {
    fn default() -> Self {
        Self { arithmetic: Arithmetic::detect() }
    }
}

impl FamCell {
    /// Cells whose blocks are computed in a given way; what lies in memory is the same.
    ///
    /// # Errors
    /// [`UnavailableArithmetic`] if this processor has none of it.
    pub fn with(arithmetic: Arithmetic) -> Result<Self, UnavailableArithmetic> {
        Ok(Self { arithmetic: arithmetic.checked()? })
    }

    #[inline(always)]
    fn load<'b, D: Domain>(
        domain: &D,
        cell: &[PCell<u64>],
        buffer: &'b mut [u64; MOST_BLOCKS],
    ) -> &'b mut [u64] {
        let blocks = &mut buffer[..cell.len()];
        for (block, word) in blocks.iter_mut().zip(cell) {
            *block = word.load(domain);
        }
        blocks
    }
}

impl<D: Domain> InPlace<D> for FamCell {
    const KIND: CellKind = CellKind::Fam;
    const BARRIERS: u64 = 1;

    fn make_in(_: &Arc<Pool<D>>, _: Layout) -> Result<Self, InPlaceError> {
        Ok(Self::default())
    }

    fn open_in(_: &Arc<Pool<D>>) -> Result<Self, InPlaceError> {
        Ok(Self::default())
    }

    fn cell_words(&self, value_bytes: usize) -> usize {
        blocks(value_bytes)
    }

    #[inline]
    fn read(&self, domain: &D, cell: &[PCell<u64>], value: &mut [u8]) {
        let mut buffer = [0; MOST_BLOCKS];
        let blocks = Self::load(domain, cell, &mut buffer);
        self.arithmetic.assemble(blocks, value);
    }

    #[inline]
    fn update(
        &self,
        domain: &D,
        cell: &[PCell<u64>],
        value: &[u8],
    ) -> Result<Committed, InPlaceError> {
        let mut buffer = [0; MOST_BLOCKS];
        let blocks = Self::load(domain, cell, &mut buffer);
        self.arithmetic.advance(blocks, value);
        for (word, &block) in cell.iter().zip(blocks.iter()) {
            let mut block = block;
            if domain.commits(NO_OLD_STATE) {
                block &= !(((1 << 31) - 1) << 31);
            }
            // I1: one store per word, never a part of one.
            word.store(domain, block);
        }
        domain.flush(cell);
        // I2: one version, durably, before this is acknowledged and the next update begins.
        Ok(Committed::after_fence(domain))
    }

    fn recover(&self, domain: &D, cell: &[PCell<u64>]) -> Result<bool, CellDamage> {
        let mut buffer = [0; MOST_BLOCKS];
        let blocks = Self::load(domain, cell, &mut buffer);
        let Some(&first) = blocks.first() else { return Err(CellDamage("it has no words")) };
        let first = version(first);
        let Some(other) = blocks.iter().map(|block| version(*block)).find(|it| *it != first) else {
            return Ok(false);
        };
        let follows = |later: u64, earlier: u64| later == (earlier + 1) & 3;
        let ahead = match (follows(other, first), follows(first, other)) {
            (true, _) => other,
            (_, true) => first,
            _ => return Err(CellDamage("its words are of versions that do not follow each other")),
        };
        if blocks.iter().any(|block| ![first, other].contains(&version(*block))) {
            return Err(CellDamage("its words are of more than two versions")); // I2
        }
        for (word, &block) in cell.iter().zip(blocks.iter()) {
            if version(block) == ahead {
                let mut before = rolled_back(block); // I3
                if domain.commits(ROLLBACK_KEEPS_VERSION) {
                    before = before & (u64::MAX >> 2) | ahead << 62;
                }
                word.store(domain, before);
            }
        }
        domain.flush(cell); // I4, with the caller's fence
        Ok(true)
    }
}

pub(crate) const DECLARATION: Declaration<CellRun> = Declaration {
    name: "fam-cell",
    sources: &["blocks/src/in_place/fam_cell", "blocks/src/in_place/array"],
    mutants: super::mutants::FAM_CELL,
    runs: &[
        CellRun { name: "fam-cell:16", value_bytes: 16 },
        CellRun { name: "fam-cell:100", value_bytes: 100 },
    ],
    operations: 60,
    persist_points: (60, 2),
};
