//! Copies of leaves, by which trees are read in order.
//!
//! A leaf is copied and the copy validated, so what it gives is of one moment. Between two leaves there is nothing but
//! the key at which the next one begins, so leaves may be split, merged or evicted meanwhile: one goes on at that key,
//! wherever that is now.

use core::cell::Cell;
use core::ops::{Bound, Range};

use lapis_buffer::PageNumber;
use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::log::StructureLog;
use crate::node::{Node, WORD, put_in_order};
use crate::tree::{Target, Tree};

thread_local! {
    /// The memory of a copy that nobody has any more.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A leaf as it was at one moment. A place in it is a number of records before it.
#[derive(Clone, Debug, Default)]
pub struct LeafCopy {
    /// Empty before one was copied, and when that failed: what was read then may be of no moment.
    bytes: Vec<u8>,
    number: Option<PageNumber>,
}

impl LeafCopy {
    #[inline]
    fn node(&self) -> Node<&[u8]> {
        Node::new(&self.bytes[..])
    }

    /// Whether no leaf was copied yet, or the last attempt failed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Records that it has.
    pub fn count(&self) -> usize {
        self.node().count()
    }

    /// No key before this one belongs to it.
    pub fn lower(&self) -> &[u8] {
        self.node().lower()
    }

    /// No key from this one on belongs to it. None of the last leaf.
    pub fn upper(&self) -> Option<&[u8]> {
        self.node().upper()
    }

    /// What all keys that belong to it begin with.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        self.node().prefix()
    }

    /// A record: its key behind the [prefix](Self::prefix), and its value.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    #[inline]
    pub fn record(&self, at: usize) -> Result<(&[u8], &[u8]), TreeError> {
        self.node().record(at).ok_or_else(|| self.damaged("a record lies outside of it"))
    }

    /// Where in the copy a value is that [`LeafCopy::record`] gave, for [`LeafCopy::part`].
    #[inline]
    pub fn offset_of(&self, value: &[u8]) -> usize {
        value.as_ptr().addr().wrapping_sub(self.bytes.as_ptr().addr())
    }

    /// A part of the copy; nothing if it lies outside.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// The place before the first record at (`Included`) or behind (`Excluded`) a key that belongs to the leaf, or
    /// before all.
    ///
    /// # Errors
    /// [`TreeError::Damaged`].
    pub fn place_of(&self, bound: Bound<&[u8]>) -> Result<usize, TreeError> {
        let (key, is_behind) = match bound {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => return Ok(0),
        };
        let node = self.node();
        let suffix =
            node.suffix_of(key).ok_or_else(|| self.damaged("its keys belong elsewhere"))?;
        let (at, found) = node.search(suffix);
        Ok(at + usize::from(found && is_behind))
    }

    fn damaged(&self, what: &'static str) -> TreeError {
        TreeError::Damaged { page: self.number.unwrap_or(PageNumber::FIRST), what }
    }

    /// The outcome of an attempt to copy a leaf. Nothing is left of one that failed.
    fn kept_if<T>(&mut self, outcome: Result<T, TreeError>) -> Result<T, TreeError> {
        if outcome.is_err() {
            self.bytes.clear();
        }
        outcome
    }
}

impl Drop for LeafCopy {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            // A thread that ends copies no more.
            _ = SPARE.try_with(|spare| spare.set(core::mem::take(&mut self.bytes)));
        }
    }
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Copies the leaf that has, or would have, the first record at (`Included`) or behind (`Excluded`) a key, or of
    /// all; returns the place before that record.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn copy_leaf(&self, leaf: &mut LeafCopy, from: Bound<&[u8]>) -> Result<usize, TreeError> {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else {
            return self.copy(leaf, Target::Key(&[])).map(|()| 0);
        };
        self.copy(leaf, Target::Key(key))?;
        let place = leaf.place_of(from);
        leaf.kept_if(place)
    }

    /// Copies the last leaf.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn copy_last_leaf(&self, leaf: &mut LeafCopy) -> Result<(), TreeError> {
        self.copy(leaf, Target::Last)
    }

    /// Goes on to the leaf behind, and returns the place of the first record that was not in the one before; none
    /// if there is no further leaf.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn copy_next_leaf(&self, leaf: &mut LeafCopy) -> Result<Option<usize>, TreeError> {
        let Some(from) = leaf.upper().map(<[u8]>::to_vec) else { return Ok(None) };
        let at = self.copy_leaf(leaf, Bound::Included(&from))?;
        if leaf.upper().is_some_and(|upper| upper <= &from[..]) {
            let descends = Err(leaf.damaged("its fences do not ascend"));
            return leaf.kept_if(descends);
        }
        Ok(Some(at))
    }

    /// Goes back to the leaf before, and returns the place behind the last record that was not in the other one; none
    /// if there is no leaf before.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn copy_previous_leaf(&self, leaf: &mut LeafCopy) -> Result<Option<usize>, TreeError> {
        if leaf.lower().is_empty() {
            return Ok(None);
        }
        let until = leaf.lower().to_vec();
        self.copy(leaf, Target::Before(&until))?;
        let place = match leaf.lower() < &until[..] {
            true => leaf.place_of(Bound::Included(&until)).map(Some),
            false => Err(leaf.damaged("its fences do not ascend")),
        };
        leaf.kept_if(place)
    }

    /// Copies the leaf that a target is in, but for what is free in it. Its slots are in order then.
    fn copy(&self, leaf: &mut LeafCopy, target: Target<'_>) -> Result<(), TreeError> {
        let LeafCopy { bytes, .. } = leaf;
        let copied = self.retry(|| {
            let page = self.leaf(target)?;
            let (read, node) = (page.read(), Node::new(page.read()));
            if bytes.is_empty() {
                *bytes = SPARE.try_with(Cell::take).unwrap_or_default();
            }
            bytes.resize(read.bytes(), 0);
            let (slots, rest) = bytes.split_at_mut(node.slots_end().min(read.bytes()));
            let heap = rest.len().min(node.heap_bytes().next_multiple_of(WORD));
            let records = rest.len() - heap;
            read.copy_to(0, slots);
            read.copy_to(slots.len() + records, &mut rest[records..]);
            page.validate()?;
            Ok(PageNumber::new(read.number()))
        });
        leaf.number = leaf.kept_if(copied)?;
        if !leaf.node().is_sound() {
            let unsound = Err(leaf.damaged("its header makes no sense"));
            return leaf.kept_if(unsound);
        }
        put_in_order(&mut leaf.bytes);
        Ok(())
    }
}
