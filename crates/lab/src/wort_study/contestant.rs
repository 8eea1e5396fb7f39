//! The structures of the study.

use std::sync::Arc;

use lapis_index::{AnyIndex, IndexKey, IndexKind, IndexMaker, IndexOptions, InnerNodes};
use lapis_pmem::{Domain, Pool};
use serde::{Serialize, Serializer};

use super::published;
use crate::experiment::ExperimentError;
use crate::index_experiment::ROOT_NAME;

/// A structure of the study, with its inner nodes in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contestant {
    /// A persistent index as it is.
    Index(IndexKind),
    /// One that keeps its inner nodes in DRAM, with these on PM.
    InnerOnPm(IndexKind),
    /// The ordered map of the standard library, a volatile B-tree: the reference for range queries.
    BTreeMap,
}

impl Contestant {
    /// The indexes of the study: those of the paper in the order of its Table 1, the other wB+-Tree,
    /// and FAST & FAIR.
    pub const KINDS: [IndexKind; 8] = [
        IndexKind::Wort,
        IndexKind::Woart,
        IndexKind::ArtCow,
        IndexKind::FpTree,
        IndexKind::NvTree,
        IndexKind::WbTree,
        IndexKind::WbTreeSlot,
        IndexKind::FastFair,
    ];

    /// All contestants but the reference.
    pub const ALL: [Self; 10] = [
        Self::Index(IndexKind::Wort),
        Self::Index(IndexKind::Woart),
        Self::Index(IndexKind::ArtCow),
        Self::Index(IndexKind::FpTree),
        Self::InnerOnPm(IndexKind::FpTree),
        Self::Index(IndexKind::NvTree),
        Self::InnerOnPm(IndexKind::NvTree),
        Self::Index(IndexKind::WbTree),
        Self::Index(IndexKind::WbTreeSlot),
        Self::Index(IndexKind::FastFair),
    ];

    /// The name in tables and in JSON.
    pub fn name(self) -> String {
        match self {
            Self::Index(kind) => kind.name().to_owned(),
            Self::InnerOnPm(kind) => format!("{kind}-inner-pm"),
            Self::BTreeMap => "btree-map".to_owned(),
        }
    }

    /// The persistent index, if it is one.
    pub fn index(self) -> Option<IndexKind> {
        match self {
            Self::Index(kind) | Self::InnerOnPm(kind) => Some(kind),
            Self::BTreeMap => None,
        }
    }

    /// Bits by which its nodes branch, if it is a radix tree.
    pub(crate) fn radix_bits(self) -> Option<u32> {
        match self.index()? {
            IndexKind::Wort => Some(published::WORT_BITS),
            IndexKind::Woart | IndexKind::ArtCow => Some(published::ART_BITS),
            _ => None,
        }
    }

    fn options(self) -> IndexOptions {
        let mut options = IndexOptions::default();
        match self {
            Self::InnerOnPm(_) => options.inner_nodes = InnerNodes::Pm,
            Self::Index(_) | Self::BTreeMap => {}
        }
        options
    }

    /// An empty one in a pool.
    pub(crate) fn create<D: Domain, K: IndexKey + ?Sized>(
        self,
        indexes: &IndexMaker<D, K>,
        pool: Pool<D>,
    ) -> Result<AnyIndex<D, K>, ExperimentError> {
        match self.index() {
            Some(kind) => {
                Ok(indexes.create_named(kind, &Arc::new(pool), ROOT_NAME, &self.options())?)
            }
            None => {
                let what = format!("{self} is not a persistent index of the study");
                Err(ExperimentError::BadOption { what })
            }
        }
    }

    /// Whether it is measured here. Where inner nodes lie makes no difference on memory of one kind.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::Index(_) | Self::BTreeMap)
    }

    /// Whether opening it rebuilds inner nodes that were volatile.
    pub(crate) fn rebuilds(self) -> bool {
        self.index().is_some_and(IndexKind::rebuilds)
    }
}

impl std::fmt::Display for Contestant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for Contestant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_every_kind_takes_part() {
        let all = Contestant::ALL.into_iter().chain([Contestant::BTreeMap]);
        let names: BTreeSet<String> = all.map(Contestant::name).collect();
        assert_eq!(names.len(), Contestant::ALL.len() + 1);
        for kind in Contestant::KINDS {
            assert!(Contestant::ALL.contains(&Contestant::Index(kind)), "{kind}");
        }
    }
}
