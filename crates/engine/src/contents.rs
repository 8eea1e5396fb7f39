//! What the records of a table are in: a tree on pages, or an index in persistent memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_buffer::PageNumber;
use lapis_index::IndexKind;
use lapis_pmem::{Domain, Guard};
use lapis_tree::{Put, ShowOld, Tree};

use crate::error::EngineError;
use crate::index_table::IndexTable;
use crate::key_range::KeyRange;
use crate::log::EngineLog;
use crate::scan::Direction;

/// A tree of the engine.
pub(crate) type EngineTree<D> = Tree<D, Arc<EngineLog<D>>>;

/// Where the contents of a table begin, as the catalog says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A page.
    Tree(PageNumber),
    /// An offset in the pool.
    Index(IndexKind, u64),
}

/// What the records of a table are in.
#[derive(Debug)]
pub(crate) enum Contents<D: Domain> {
    Tree(EngineTree<D>),
    Index(IndexTable<D>),
}

impl<D: Domain> From<EngineTree<D>> for Contents<D> {
    fn from(tree: EngineTree<D>) -> Self {
        Self::Tree(tree)
    }
}

impl<D: Domain> Contents<D> {
    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Tree(tree) => Place::Tree(tree.root()),
            Self::Index(index) => Place::Index(index.kind(), index.root()),
        }
    }

    pub(crate) fn as_tree(&self) -> Option<&EngineTree<D>> {
        match self {
            Self::Tree(tree) => Some(tree),
            Self::Index(_) => None,
        }
    }

    pub(crate) fn as_index(&self) -> Option<&IndexTable<D>> {
        match self {
            Self::Tree(_) => None,
            Self::Index(index) => Some(index),
        }
    }

    /// Keeps what is read of an index where it is. To be had before it is seen that the table is not dropped, by whoever
    /// is not registered as a reader.
    pub(crate) fn pin(&self) -> Option<Guard<'_, D>> {
        self.as_index().map(IndexTable::pin)
    }

    /// The longest record, key included.
    pub(crate) fn largest_record(&self) -> usize {
        match self {
            Self::Tree(tree) => tree.largest_record(),
            Self::Index(index) => index.largest_record(),
        }
    }

    /// The record of a key, into `into`; whether there is one.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, EngineError> {
        match self {
            Self::Tree(tree) => Ok(tree.get(key, into)?),
            Self::Index(index) => index.get(key, into),
        }
    }

    /// Gives a key a record, or none, by the transaction `lsn`. Its stripe is held.
    pub(crate) fn write(
        &self,
        key: &[u8],
        record: Option<&[u8]>,
        lsn: u64,
        old: Option<ShowOld<'_>>,
    ) -> Result<(), EngineError> {
        match (self, record) {
            (Self::Tree(tree), Some(record)) => tree.put(key, record, lsn, old)?,
            (Self::Tree(tree), None) => _ = tree.remove(key, lsn, old)?,
            (Self::Index(index), Some(record)) => index.put(key, record, old)?,
            (Self::Index(index), None) => index.remove(key, old)?,
        }
        Ok(())
    }

    /// Gives keys records, each by its transaction. Their stripes are held.
    pub(crate) fn put_all<'r>(
        &self,
        mut records: impl Iterator<Item = Put<'r>>,
        mut old: Option<ShowOld<'_>>,
    ) -> Result<(), EngineError> {
        match self {
            Self::Tree(tree) => Ok(tree.put_all(records, old)?),
            Self::Index(index) => records.try_for_each(|(key, record, _)| {
                let old: Option<ShowOld<'_>> = match &mut old {
                    Some(old) => Some(&mut **old),
                    None => None,
                };
                index.put(key, record, old)
            }),
        }
    }

    /// Calls `visit` for the records of a range, in ascending order, until it breaks. In an index without order there are
    /// none.
    pub(crate) fn visit(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let tree = match self {
            Self::Tree(tree) => tree,
            Self::Index(index) => {
                index.visit(range, Direction::Forward, visit);
                return Ok(());
            }
        };
        let mut cursor = tree.cursor();
        cursor.seek(range.lower())?;
        while let Some((key, record)) = cursor.next()? {
            if !range.is_before_end(key) || visit(key, record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with each key and its record, or what is wrong with it, in any order.
    pub(crate) fn visit_all(
        &self,
        mut visit: impl FnMut(&[u8], Result<&[u8], EngineError>),
    ) -> Result<(), EngineError> {
        match self {
            Self::Tree(_) => self.visit(&KeyRange::all(), |key, record| {
                visit(key, Ok(record));
                ControlFlow::Continue(())
            }),
            Self::Index(index) => {
                index.visit_all(visit);
                Ok(())
            }
        }
    }
}
