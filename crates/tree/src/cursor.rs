//! Cursors: a place between two records, from which one goes either way.
//!
//! A cursor copies a leaf, validates the copy, and has what it gives from there. Between two leaves it has
//! nothing but the key at which the next one begins, so leaves may be split, merged or evicted meanwhile:
//! it goes on at that key, wherever that is now. What it gives of one leaf is of one moment.

use core::ops::Bound;

use lapis_buffer::PageNumber;
use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::log::StructureLog;
use crate::node::{Node, WORD};
use crate::tree::{Target, Tree};

/// A place between two records of a tree. See the [module documentation](self).
#[derive(Debug)]
pub struct Cursor<'t, D: Domain, L> {
    tree: &'t Tree<D, L>,
    position: Position,
}

/// What a cursor has of its own, for who goes on later with another one.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// A leaf as it was; nothing before the cursor is placed.
    leaf: Vec<u8>,
    number: Option<PageNumber>,
    /// Records of it before the cursor.
    at: usize,
    /// The prefix of the leaf's keys, and what was last behind it.
    key: Vec<u8>,
}

/// A key and its value.
pub type Entry<'c> = (&'c [u8], &'c [u8]);

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// A cursor before the first record.
    pub fn cursor(&self) -> Cursor<'_, D, L> {
        self.cursor_at(Position::default())
    }

    /// A cursor where another one was.
    pub fn cursor_at(&self, position: Position) -> Cursor<'_, D, L> {
        Cursor { tree: self, position }
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
        self.position.at = at + usize::from(found && is_behind);
        Ok(())
    }

    /// Places the cursor behind the last record.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek_end(&mut self) -> Result<(), TreeError> {
        self.load(Target::Last)?;
        self.position.at = Node::new(&self.position.leaf[..]).count();
        Ok(())
    }

    /// Goes over the next record and gives it; none at the end.
    ///
    /// # Errors
    /// [`TreeError`].
    #[expect(clippy::should_implement_trait, reason = "what it gives is the cursor's own")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.position.leaf.is_empty() {
            self.seek(Bound::Unbounded)?;
        }
        while self.position.at == Node::new(&self.position.leaf[..]).count() {
            let Some(upper) = Node::new(&self.position.leaf[..]).upper() else { return Ok(None) };
            let from = upper.to_vec();
            self.load(Target::Key(&from))?;
            self.position.at = self.place_of(&from)?.0;
            if !self.has_got_beyond(|node| node.upper().is_none_or(|upper| upper > &from[..])) {
                return Err(self.damaged("its fences do not ascend"));
            }
        }
        self.position.at += 1;
        self.entry(self.position.at - 1).map(Some)
    }

    /// Goes back over the record before and gives it; none at the beginning.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>, TreeError> {
        if self.position.leaf.is_empty() {
            self.seek(Bound::Unbounded)?;
        }
        while self.position.at == 0 {
            let lower = Node::new(&self.position.leaf[..]).lower();
            if lower.is_empty() {
                return Ok(None);
            }
            let until = lower.to_vec();
            self.load(Target::Before(&until))?;
            self.position.at = self.place_of(&until)?.0;
            if !self.has_got_beyond(|node| node.lower() < &until[..]) {
                return Err(self.damaged("its fences do not ascend"));
            }
        }
        self.position.at -= 1;
        self.entry(self.position.at).map(Some)
    }

    fn has_got_beyond(&self, is_beyond: impl Fn(Node<&[u8]>) -> bool) -> bool {
        is_beyond(Node::new(&self.position.leaf[..]))
    }

    fn place_of(&self, key: &[u8]) -> Result<(usize, bool), TreeError> {
        let node = Node::new(&self.position.leaf[..]);
        let suffix = node.suffix_of(key).ok_or(self.damaged("its keys belong elsewhere"))?;
        Ok(node.search(suffix))
    }

    fn entry(&mut self, at: usize) -> Result<Entry<'_>, TreeError> {
        let Position { leaf, number, key, .. } = &mut self.position;
        let node = Node::new(&leaf[..]);
        let Some((suffix, value)) = node.record(at) else {
            return Err(self.tree.damaged_leaf(*number, "a record lies outside of it"));
        };
        key.truncate(node.prefix_bytes());
        key.extend_from_slice(suffix);
        Ok((key, value))
    }

    fn damaged(&self, what: &'static str) -> TreeError {
        self.tree.damaged_leaf(self.position.number, what)
    }

    /// Where it is, for [`Tree::cursor_at`].
    pub fn into_position(self) -> Position {
        self.position
    }

    /// Copies the leaf that a target is in, but for what is free in it.
    fn load(&mut self, target: Target<'_>) -> Result<(), TreeError> {
        let Self { tree, position: Position { leaf, number, key, .. } } = self;
        *number = tree.retry(|| {
            let page = tree.leaf(target)?;
            let (read, node) = (page.read(), Node::new(page.read()));
            leaf.resize(read.bytes(), 0);
            let (slots, rest) = leaf.split_at_mut(node.slots_end().min(read.bytes()));
            let heap = rest.len().min(node.heap_bytes().next_multiple_of(WORD));
            let records = rest.len() - heap;
            read.copy_to(0, slots);
            read.copy_to(slots.len() + records, &mut rest[records..]);
            page.validate()?;
            Ok(PageNumber::new(read.number()))
        })?;
        let node = Node::new(&leaf[..]);
        if !node.is_sound() {
            return Err(tree.damaged_leaf(*number, "its header makes no sense"));
        }
        key.clear();
        key.extend_from_slice(node.prefix());
        Ok(())
    }
}

impl<D: Domain, L> Tree<D, L> {
    fn damaged_leaf(&self, number: Option<PageNumber>, what: &'static str) -> TreeError {
        TreeError::Damaged { page: number.unwrap_or(self.root), what }
    }
}
