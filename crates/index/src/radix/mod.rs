//! What the radix trees have in common, whatever their nodes look like: keys as digits, leaves,
//! headers, the way down, ordered scans, and walks over everything.
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
mod leaf;
mod scan;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub(crate) use change::{Change, Changing};
pub(crate) use check::Walking;
pub(crate) use descent::{Descending, Descent, Parent, Split};
pub(crate) use digits::{Byte, Digits, Nibble, Span};
pub(crate) use handle::Handle;
pub(crate) use header::Header;
pub(crate) use leaf::{Leaf, make_leaf};
pub(crate) use scan::Scanning;
pub(crate) use tree::{LEAF_BIT, LOW_BITS, Place, RadixTree, SlotWord};

use crate::index::IndexError;

pub(crate) fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}

#[cold]
#[inline(never)]
pub(crate) fn damaged_word(word: u64) -> ! {
    panic!("the index is damaged: the word {word:#x} is not in its place")
}
