//! The mutants of the allocator.

use lapis_pmem::allocator::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 120,
    entries: &[
        MutantEntry {
            mutant: mutants::LEAK_ON_CRASH,
            what: "A large block that was allocated before a crash and never linked is not found \
                   free again.",
            published: "PMRace (Chen et al., ASPLOS 2022), of P-CLHT's new table",
            place: "pmem/src/allocator/mod.rs, reclaim",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::DOUBLE_ALLOCATION_AFTER_CRASH,
            what: "The high-water mark is not persisted when it moves: after a crash, chunks beyond \
                   it are handed out again.",
            published: "Witcher (Fu et al., SOSP 2021), bug 28, of P-BwTree",
            place: "pmem/src/allocator/chunks.rs, take_fresh",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::STALE_BITMAPS_BELIEVED,
            what: "The bitmaps of the last clean shutdown are believed after a crash that came \
                   later.",
            published: BUG_CLASS,
            place: "pmem/src/pool/open.rs, open",
            subjects: &[],
        },
    ],
};
