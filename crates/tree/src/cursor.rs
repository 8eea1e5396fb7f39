//! Cursors: a place between two records, from which one goes either way.

use core::ops::Bound;

use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::leaf_copy::LeafCopy;
use crate::log::StructureLog;
use crate::tree::Tree;

/// A place between two records of a tree. What it gives of one leaf is of one moment, see [`LeafCopy`].
#[derive(Debug)]
pub struct Cursor<'t, D: Domain, L> {
    tree: &'t Tree<D, L>,
    leaf: LeafCopy,
    /// Records of the leaf before the cursor.
    at: usize,
    /// The last key that was given or looked for.
    key: Vec<u8>,
    /// By which the cursor finds back when there is no leaf: none was copied yet, or copying one has failed.
    place: Place,
}

/// Where a cursor is.
#[derive(Clone, Copy, Debug)]
enum Place {
    First,
    /// Before its key.
    Before,
    /// Behind its key.
    Behind,
    Last,
}

/// A key and its value.
pub type Entry<'c> = (&'c [u8], &'c [u8]);

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// A cursor before the first record.
    pub fn cursor(&self) -> Cursor<'_, D, L> {
        Cursor {
            tree: self,
            leaf: LeafCopy::default(),
            at: 0,
            key: Vec::new(),
            place: Place::First,
        }
    }
}

impl<D: Domain, L: StructureLog> Cursor<'_, D, L> {
    /// Places the cursor: before the first record at (`Included`) or behind (`Excluded`) a key, or before
    /// all of them.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek(&mut self, bound: Bound<&[u8]>) -> Result<(), TreeError> {
        let (place, key) = match bound {
            Bound::Included(key) => (Place::Before, key),
            Bound::Excluded(key) => (Place::Behind, key),
            Bound::Unbounded => (Place::First, &[][..]),
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.place = place;
        self.find_back()
    }

    /// Copies the leaf that the cursor is in by its place.
    fn find_back(&mut self) -> Result<(), TreeError> {
        let bound = match self.place {
            Place::First => Bound::Unbounded,
            Place::Before => Bound::Included(&self.key[..]),
            Place::Behind => Bound::Excluded(&self.key[..]),
            Place::Last => {
                self.tree.copy_last_leaf(&mut self.leaf)?;
                self.at = self.leaf.count();
                return Ok(());
            }
        };
        self.at = self.tree.copy_leaf(&mut self.leaf, bound)?;
        Ok(())
    }

    /// Places the cursor behind the last record.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek_end(&mut self) -> Result<(), TreeError> {
        self.place = Place::Last;
        self.find_back()
    }

    /// Goes over the next record and gives it; none at the end. After an error the cursor is where it was, and goes on from there.
    ///
    /// # Errors
    /// [`TreeError`].
    #[expect(clippy::should_implement_trait, reason = "what it gives is the cursor's own")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.leaf.is_empty() {
            self.find_back()?;
        }
        while self.at == self.leaf.count() {
            let Some(at) = self.tree.copy_next_leaf(&mut self.leaf)? else { return Ok(None) };
            self.at = at;
        }
        self.entry(self.at, Place::Behind).map(Some)
    }

    /// Goes back over the record before and gives it; none at the beginning. After an error as [`Cursor::next`].
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.leaf.is_empty() {
            self.find_back()?;
        }
        while self.at == 0 {
            let Some(at) = self.tree.copy_previous_leaf(&mut self.leaf)? else { return Ok(None) };
            self.at = at;
        }
        self.entry(self.at - 1, Place::Before).map(Some)
    }

    /// Goes to this side of the record `at`, and gives it. Of one that is damaged the cursor stays where it was: who tries again
    /// is not led past it.
    fn entry(&mut self, at: usize, place: Place) -> Result<Entry<'_>, TreeError> {
        let (suffix, value) = self.leaf.record(at)?;
        self.at = at + usize::from(matches!(place, Place::Behind));
        self.place = place;
        self.key.clear();
        self.key.extend_from_slice(self.leaf.prefix());
        self.key.extend_from_slice(suffix);
        Ok((&self.key, value))
    }
}
