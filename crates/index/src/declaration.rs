//! What a structure says of itself, for the tables, the checker and the laboratory.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, MutantList, Optimisations};

use crate::IndexKind;
use crate::index::{Direction, Index, IndexOptions};
use crate::key::IndexKey;
use crate::leaf_entries::OnLeaf;

/// What most inserts cost: those that find room where they are and reorganise nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct InsertCost {
    /// Lines flushed, those of a byte-string key included.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
}

impl InsertCost {
    /// For declarations.
    pub(crate) const fn of(flushed_lines: u64, fences: u64) -> Option<Self> {
        Some(Self { flushed_lines, fences })
    }
}

/// What a structure says of itself.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The name used on the command line, in JSON and in file names.
    pub name: &'static str,
    /// Its name as the field writes it.
    pub title: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// Cost of inserting an 8-byte integer key; none if it depends on where the key falls.
    pub insert_u64: Option<InsertCost>,
    /// Cost of inserting a byte-string key whose block fits a line; none if it depends on where
    /// the key falls.
    pub insert_bytes: Option<InsertCost>,
    /// Those of the amplification study's optimisations that concern it: that do something with it, or that it
    /// can be without.
    pub optimisations: Optimisations,
    /// Errors that it can be told to commit.
    pub mutants: MutantList,
    /// How the crash checker explores it.
    pub exploration: Exploration,
}

/// How the crash checker explores a structure.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// Parts of the paths of its source files, whose flushes and fences are to be shown necessary; behind a `!`, of
    /// files among them that only others use.
    pub sources: &'static [&'static str],
    /// Such that nodes are split and tables grow within few operations.
    pub options: IndexOptions,
    /// The runs that exploring it consists of.
    pub runs: &'static [Run],
    /// Histories of two workers, each made for one error.
    pub histories: &'static [(&'static str, History)],
    /// Operations of a run in which every flush and fence is passed and missed, and of how many such
    /// runs.
    pub persist_points: (usize, u64),
    /// Operations on 1,000 keys that give a rate of images.
    pub rate_operations: usize,
}

impl Exploration {
    /// Whether a source file is one of those that `sources` say, see [`Self::sources`].
    pub fn owns(sources: &[&str], file: &str) -> bool {
        let mut owns = false;
        for part in sources {
            match part.strip_prefix('!') {
                Some(part) if file.contains(part) => return false,
                _ => owns |= file.contains(part),
            }
        }
        owns
    }
}

/// A run of the crash checker.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its name: the structure's, a colon, and a word.
    pub name: &'static str,
    /// Whether keys are byte strings.
    pub byte_strings: bool,
    /// Keys that operations draw from: enough for several levels, few enough to meet again.
    pub keys: u64,
    /// Keys that are inserted first.
    pub filled: u64,
    /// Whether removals go through the keys in order, so that nodes become empty.
    pub drains: bool,
    /// Whether the power is cut only when the first keys are there.
    pub is_large: bool,
    /// Whether nodes have the size that they have in use.
    pub as_in_use: bool,
    /// Bytes of a node, if they are neither those of the declaration nor those in use; 0: they are.
    pub node_bytes: usize,
    /// Bytes of a pool of which nothing is free after the first keys, so that what needs room is refused; 0: of one that has
    /// room.
    pub cramped_bytes: usize,
    /// Whether removals may be refused there, too.
    pub refuses_removals: bool,
    /// Whether all keys belong to one place of a hash table.
    pub is_crowded: bool,
    /// Whether the greatest key comes first: whoever comes after the split of a node comes to the half that was there before.
    pub descends: bool,
    /// A seed, and the operation in which the power is cut first, that show a flush or fence of recoveries which others hardly
    /// do.
    pub rare: Option<(u64, usize)>,
}

impl Run {
    /// A run with integer keys.
    pub const fn integers(name: &'static str) -> Self {
        Self {
            name,
            byte_strings: false,
            keys: 160,
            filled: 0,
            drains: false,
            is_large: false,
            as_in_use: false,
            node_bytes: 0,
            cramped_bytes: 0,
            refuses_removals: false,
            is_crowded: false,
            descends: false,
            rare: None,
        }
    }

    /// A run with byte strings.
    pub const fn byte_strings(name: &'static str) -> Self {
        Self { byte_strings: true, ..Self::integers(name) }
    }

    /// A run with so many integers, of which half are there beforehand; removals go through them in order. The power
    /// is cut in what comes then. It is long, and not among those of every test.
    pub const fn large(name: &'static str, keys: u64) -> Self {
        Self { filled: keys / 2, drains: true, is_large: true, ..Self::integers(name).of(keys) }
    }

    /// The same with nodes of the size that they have in use.
    pub const fn as_in_use(self) -> Self {
        Self { as_in_use: true, ..self }
    }

    /// The same with nodes of so many bytes.
    pub const fn in_nodes_of(self, node_bytes: usize) -> Self {
        Self { node_bytes, ..self }
    }

    /// A run with integers that are removed in order.
    pub const fn drained(name: &'static str) -> Self {
        Self { drains: true, ..Self::integers(name).of(80) }
    }

    /// The same with keys whose hashes begin alike, so that chains and directories become long.
    pub const fn crowded(self) -> Self {
        Self { is_crowded: true, ..self }
    }

    /// The same with the greatest key first.
    pub const fn descending(self) -> Self {
        Self { descends: true, ..self }
    }

    /// The same in a pool of so many bytes, which are all taken before the power is cut.
    pub const fn cramped(self, pool_bytes: usize) -> Self {
        Self { cramped_bytes: pool_bytes, ..self }
    }

    /// The same with so many keys.
    pub const fn of(self, keys: u64) -> Self {
        Self { keys, ..self }
    }

    /// The same. After a first power cut in this operation from this seed, it shows a flush or fence to be necessary that
    /// other runs hardly do.
    pub const fn rare_after(self, seed: u64, cut_in: usize) -> Self {
        Self { rare: Some((seed, cut_in)), ..self }
    }

    /// The same, after all keys were inserted.
    pub const fn filled(self) -> Self {
        Self { filled: self.keys, ..self }
    }
}

/// A history of two workers in which a scheduler need deviate only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// One splits a node that the other changes.
    SplitNode,
    /// One takes out a node that the other changes.
    UnlinkedNode,
    /// One takes out a node above the one that the other replaces, which has so many entries at most.
    UnlinkedAbove(u64),
    /// One replaces a full node of so many entries by a larger one; the other puts a node between it and the one above.
    PutBetween(u64),
    /// One divides a full node of so many entries, below a trie two nodes higher; the other puts a node between it and that.
    PutAboveFull(u64),
    /// One takes a leaf out of a node that the other thins out first; then the other takes out the node above.
    ThinnedNode,
    /// One merges nodes of so many entries that the other reads.
    MergedNode(u64),
    /// The same, and the other has locked the one that goes.
    LockedNodeMerged(u64),
    /// One empties a leaf of two, so that the root gives way to the other, of so many entries, and splits that; the other
    /// has read the root.
    RootGivenWay(u64),
    /// One divides a node of so many entries, and the other changes the new one.
    DividedNode(u64),
    /// The same, and the other reads a key that goes to the new one.
    ReadDivided(u64),
    /// Each divides one of two nodes beside each other, in which keys that come in order leave so many entries of so many.
    BothDivided(u64, u64),
    /// One divides a node of so many entries below a full one of so many children, and the other changes what is in it.
    DividedWithoutRoom(u64, u64),
    /// One takes keys out of nodes of so many entries until the second goes to the first; the other reads a key of it.
    ReadJoined(u64),
    /// One adds a key to so many, so that a node is divided; the other takes out so many of the greatest, until the new node
    /// goes again.
    TakenBack(u64, u64),
    /// One takes out an empty node behind a full one, of so many entries, that the other divides.
    NodeBehind(u64),
    /// One adds some keys to so many, until the table has grown, and the other changes what is in it.
    GrownTable(u64),
    /// One reads some keys of so many; the other takes some of these out, and adds so many, which get their slots.
    UsedSlot(usize, usize),
    /// The same with keys whose hashes begin alike: they are in one chain.
    UsedChain(usize, usize),
    /// As [`History::UsedSlot`], and the reader scans all keys.
    ScannedSlot(usize, usize),
    /// Both add a key to so many: one the next key, the other this one.
    TwoInserts(u64, u64),
    /// One joins nodes of so many entries, and the other changes the one that goes.
    JoinedNode(u64),
    /// The same, and the other changes the one that stays.
    JoinedInto(u64),
}

/// A structure before the machine that it runs on and the kind of its keys are chosen.
pub trait IndexFamily: 'static {
    /// Which one.
    const KIND: IndexKind;
    /// The structure.
    type Of<D: Domain, K: IndexKey + ?Sized>: Index<D, K> + 'static;

    /// [`OrderedIndex::scan_leaves`](crate::OrderedIndex::scan_leaves); false, and nothing visited, if
    /// the structure has no order.
    fn scan_leaves<D: Domain, K: IndexKey + ?Sized>(
        _index: &Self::Of<D, K>,
        _from: Bound<&K>,
        _direction: Direction,
        _visit: OnLeaf<'_, D, K>,
    ) -> bool {
        false
    }

    /// The same, entry by entry.
    #[inline]
    fn scan<D: Domain, K: IndexKey + ?Sized, V>(
        index: &Self::Of<D, K>,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut V,
    ) -> bool
    where
        V: FnMut(&K, u64) -> ControlFlow<()> + ?Sized,
    {
        Self::scan_leaves(index, from, direction, &mut |leaf| leaf.for_each(visit))
    }
}

/// The structure of a family on a machine, with keys of a kind.
pub type IndexOf<F, D, K> = <F as IndexFamily>::Of<D, K>;

impl IndexKind {
    /// The name used on the command line, in JSON and in file names.
    pub fn name(self) -> &'static str {
        self.declaration().name
    }

    /// Whether its keys can be scanned in order.
    pub fn is_ordered(self) -> bool {
        self.traits().contains(&"ordered")
    }

    /// Whether its inner nodes are volatile, and rebuilt when it is opened.
    pub fn rebuilds(self) -> bool {
        self.traits().contains(&"rebuilt")
    }

    /// The kind called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind with this number on the medium.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

impl std::fmt::Display for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl serde::Serialize for IndexKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_same_name_in_json_as_on_the_command_line() {
        for kind in IndexKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(IndexKind::from_name(kind.name()), Some(kind));
            assert_eq!(IndexKind::from_number(kind as u32), Some(kind));
        }
    }

    #[test]
    fn runs_and_histories_are_named_after_their_structure() {
        for kind in IndexKind::ALL {
            let Exploration { runs, histories, .. } = kind.declaration().exploration;
            let names = runs.iter().map(|run| run.name).chain(histories.iter().map(|it| it.0));
            assert!(names.into_iter().all(|name| name.split(':').next() == Some(kind.name())));
        }
    }
}
