//! Cursors: a place between two records, from which one goes either way.
//!
//! A cursor copies a leaf, validates the copy, and has what it gives from there. Between two leaves it has
//! nothing but the key at which the next one begins, so leaves may be split, merged or evicted meanwhile:
//! it goes on at that key, wherever that is now. What it gives of one leaf is of one moment.

use core::ops::Bound;

use lapis_buffer::PageNumber;
use lapis_pmem::Domain;

use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::node::Node;
use crate::tree::{Target, Tree};

/// A place between two records of a tree. See the [module documentation](self).
#[derive(Debug)]
pub struct Cursor<'t, D: Domain, L> {
    tree: &'t Tree<D, L>,
    /// A leaf as it was; nothing before the cursor is placed.
    leaf: Vec<u8>,
    number: PageNumber,
    /// Records of it before the cursor.
    at: usize,
    key: Vec<u8>,
}

/// A key and its value.
pub type Entry<'c> = (&'c [u8], &'c [u8]);

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// A cursor before the first record.
    pub fn cursor(&self) -> Cursor<'_, D, L> {
        Cursor { tree: self, leaf: Vec::new(), number: self.root, at: 0, key: Vec::new() }
    }
}

impl<D: Domain, L: StructureLog> Cursor<'_, D, L> {
    /// Places the cursor: before the first record at (`Included`) or behind (`Excluded`) a key, or before
    /// all of them.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek(&mut self, bound: Bound<&[u8]>) -> Result<(), TreeError> {
        let (key, is_behind) = match bound {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        self.load(Target::Key(key))?;
        let (at, found) = self.place_of(key)?;
        self.at = at + usize::from(found && is_behind);
        Ok(())
    }

    /// Places the cursor behind the last record.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek_end(&mut self) -> Result<(), TreeError> {
        self.load(Target::Last)?;
        self.at = Node::new(&self.leaf[..]).count();
        Ok(())
    }

    /// Goes over the next record and gives it; none at the end.
    ///
    /// # Errors
    /// [`TreeError`].
    #[expect(clippy::should_implement_trait, reason = "what it gives is the cursor's own")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.leaf.is_empty() {
            self.seek(Bound::Unbounded)?;
        }
        while self.at == Node::new(&self.leaf[..]).count() {
            let Some(upper) = Node::new(&self.leaf[..]).upper() else { return Ok(None) };
            let from = upper.to_vec();
            self.load(Target::Key(&from))?;
            self.at = self.place_of(&from)?.0;
            if !self.has_got_beyond(|node| node.upper().is_none_or(|upper| upper > &from[..])) {
                return Err(self.damaged("its fences do not ascend"));
            }
        }
        self.at += 1;
        self.entry(self.at - 1).map(Some)
    }

    /// Goes back over the record before and gives it; none at the beginning.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.leaf.is_empty() {
            self.seek(Bound::Unbounded)?;
        }
        while self.at == 0 {
            let lower = Node::new(&self.leaf[..]).lower();
            if lower.is_empty() {
                return Ok(None);
            }
            let until = lower.to_vec();
            self.load(Target::Before(&until))?;
            self.at = self.place_of(&until)?.0;
            if !self.has_got_beyond(|node| node.lower() < &until[..]) {
                return Err(self.damaged("its fences do not ascend"));
            }
        }
        self.at -= 1;
        self.entry(self.at).map(Some)
    }

    fn has_got_beyond(&self, is_beyond: impl Fn(Node<&[u8]>) -> bool) -> bool {
        is_beyond(Node::new(&self.leaf[..]))
    }

    fn place_of(&self, key: &[u8]) -> Result<(usize, bool), TreeError> {
        let node = Node::new(&self.leaf[..]);
        let suffix = node.suffix_of(key).ok_or(self.damaged("its keys belong elsewhere"))?;
        Ok(node.search(suffix))
    }

    fn entry(&mut self, at: usize) -> Result<Entry<'_>, TreeError> {
        let node = Node::new(&self.leaf[..]);
        match (node.key_into(at, &mut self.key), node.value(at)) {
            (Some(()), Some(value)) => Ok((&self.key, value)),
            _ => Err(self.damaged("a record lies outside of it")),
        }
    }

    fn damaged(&self, what: &'static str) -> TreeError {
        TreeError::Damaged { page: self.number, what }
    }

    /// Copies the leaf that a target is in.
    fn load(&mut self, target: Target<'_>) -> Result<(), TreeError> {
        let Self { tree, leaf, .. } = self;
        self.number = tree.retry(|| {
            let page = tree.leaf(target)?;
            leaf.resize(page.read().bytes(), 0);
            page.read().copy_to(0, leaf);
            page.validate()?;
            let number = PageNumber::new(page.read().number()).unwrap_or(tree.root);
            match Node::new(&leaf[..]).is_sound() {
                true => Ok(number),
                false => {
                    let what = "its header makes no sense";
                    Err(Stop::Failed(TreeError::Damaged { page: number, what }))
                }
            }
        })?;
        Ok(())
    }
}
