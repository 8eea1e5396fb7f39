//! What the radix trees have in common, whatever their nodes look like: keys as digits, leaves,
//! headers, the way down, the locks of writers and the words they have in flight, ordered scans, and
//! walks over everything. P-ART has locks of its own, in its nodes
//! (`node_locks.rs`), and P-HOT, whose nodes are no radix nodes, shares leaves, words in flight and these locks. P-BwTree
//! shares the words in flight.
//!
//! A tree says what its nodes are ([`RadixTree`]) and how it adds, splits and removes; the rest is
//! here. The invariants I1 to I8 that the code cites are those of every tree, word for word in the
//! header comment of [`Wort`](crate::Wort)'s module.

mod change;
mod check;
mod descent;
mod digits;
mod handle;
mod header;
mod in_flight;
mod index;
mod leaf;
mod node_locks;
mod scan;
mod stretches;
mod stripes;
#[cfg(test)]
pub mod tests;
mod thread_number;
mod tree;
mod visitor;
mod word;

pub use change::{Changing, adds};
pub use descent::{Descending, Located};
pub use digits::{Byte, Digits, Nibble, Span};
pub use handle::Handle;
pub use header::Header;
pub use leaf::{Leaf, leaf_bytes, leaf_key};
pub use node_locks::{HeldNodes, LockMutants, attempt_again, change_by_attempts, lock_at};
pub use stripes::{Claims, Holding, Obstacle};
pub(crate) use tree::mutants_of;
pub use tree::{Descent, KeyOf, Mutants, Parent, RadixTree, Split};
pub use visitor::{Visitor, measure, problems_of, visit_everything};
pub use word::{LEAF_BIT, LOW_BITS, Place, SlotWord};

use crate::index::IndexError;

pub fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}

#[cold]
#[inline(never)]
pub fn damaged_word(word: u64) -> ! {
    panic!("the index is damaged: the word {word:#x} is not in its place")
}
