//! Every index, compiled once for the modelled machine: for the checker and the laboratory.
//!
//! The indexes are generic, so each crate that names them with a machine and a kind of keys compiles all of them. This
//! one does, and others ask it for an [`IndexMaker`].
//!
//! In builds that are optimised little, as those of tests are, the compiler itself takes what a crate beneath has
//! compiled. Then `use lapis_compiled_indexes as _` is enough, and those of integers on this machine are here, too.

use lapis_device::Modelled;
use lapis_index::{IndexKey, IndexMaker};

/// Keys whose indexes are compiled here.
pub trait ModelledKey: IndexKey {
    /// What makes and opens them on the modelled machine.
    fn indexes() -> &'static IndexMaker<Modelled, Self>;
}

static OF_INTEGERS: IndexMaker<Modelled, u64> = IndexMaker::HERE;
static OF_BYTES: IndexMaker<Modelled, [u8]> = IndexMaker::HERE;

impl ModelledKey for u64 {
    fn indexes() -> &'static IndexMaker<Modelled, Self> {
        &OF_INTEGERS
    }
}

impl ModelledKey for [u8] {
    fn indexes() -> &'static IndexMaker<Modelled, Self> {
        &OF_BYTES
    }
}

/// Nobody asks for these: what they name is compiled.
#[cfg(debug_assertions)]
pub static INTEGERS_HERE: IndexMaker<lapis_pmem::Hardware, u64> = IndexMaker::HERE;
