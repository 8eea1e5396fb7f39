//! Errors of published implementations that the indexes can be told to commit
//! ([`lapis_pmem::Observed::commits`]), for showing that the crash checker finds them.

pub use crate::art_cow::mutants as art_cow;
pub use crate::fast_fair::mutants as fast_fair;
pub use crate::fptree::mutants as fptree;
pub use crate::nv_tree::mutants as nv_tree;
pub use crate::p_clht::mutants as p_clht;
pub use crate::wb_tree::mutants as wb_tree;
pub use crate::wb_tree::mutants::slots_only as wb_tree_slot;
pub use crate::woart::mutants as woart;
pub use crate::wort::mutants as wort;
