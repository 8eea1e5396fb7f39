//! Which leaf has which keys of which tree, found out from the leaves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::Bound;

use lapis_buffer::{BufferError, BufferManager, PageDamage, PageNumber, SpaceError};
use lapis_pmem::Domain;
use lapis_tree::LonePage;

use super::{Lost, mark};
use crate::key_range::KeyRange;

/// No tree is as high.
const MOST_LEVELS: usize = 64;

/// A leaf that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) number: PageNumber,
    pub(super) lsn: u64,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Nothing says that it is in use: it may have been freed, and other leaves may have its keys.
    pub(super) is_doubtful: bool,
}

impl Leaf {
    fn ends_by(&self, key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| upper <= key)
    }

    fn has_all_keys(&self) -> bool {
        self.lower.is_empty() && self.upper.is_none()
    }
}

/// Keys that follow each other, and the leaf that has them, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
    pub(super) leaf: Option<Leaf>,
}

/// All keys, and no leaf.
static ALL: Segment = Segment { from: Vec::new(), to: None, leaf: None };

impl Segment {
    pub(super) fn range(&self) -> KeyRange {
        let upper = self.to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange::new::<Vec<u8>>(&(Bound::Included(&self.from), upper))
    }

    fn intersects(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        self.to.as_deref().is_none_or(|to| lower < to)
            && upper.is_none_or(|upper| &self.from[..] < upper)
    }
}

/// The keys of a tree, from the first to the last.
#[derive(Debug)]
pub(super) struct Tree {
    name: Option<Name>,
    pub(super) segments: Vec<Segment>,
}

impl Tree {
    /// One of which there is nothing.
    pub(super) fn none() -> Self {
        Self { name: None, segments: Vec::new() }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.segments.iter().all(|segment| segment.leaf.as_ref().is_some_and(|it| !it.is_doubtful))
    }

    /// Whether it has no leaf for some of the keys of this one.
    fn lacks_some_of(&self, leaf: &Leaf) -> bool {
        let ends_before = |it: &Segment| it.to.as_ref().is_some_and(|to| *to <= leaf.lower);
        let first = self.segments.partition_point(ends_before);
        let among = self.segments[first..].iter();
        let mut among = among.take_while(|it| it.intersects(&leaf.lower, leaf.upper.as_deref()));
        among.any(|it| it.leaf.is_none())
    }

    /// Its segments; one without a leaf if there are none.
    pub(super) fn segments_or_all(&self) -> &[Segment] {
        match self.segments.is_empty() {
            true => std::slice::from_ref(&ALL),
            false => &self.segments,
        }
    }
}

/// What a tree can be told by: its root, or the mark of its pages, if there is no way up to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Root(PageNumber),
    Mark(u16),
}

/// A page that cannot be read, and the keys that are below it, where that is known.
#[derive(Clone, Debug)]
pub(super) struct DamagedPage {
    pub(super) page: PageNumber,
    pub(super) why: String,
}

/// What a page says of one below it.
#[derive(Clone, Debug)]
struct Above {
    page: PageNumber,
    lsn: u64,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// All pages of a store.
pub(super) struct Pages<D: Domain> {
    manager: Option<BufferManager<D>>,
    buffer: RefCell<Vec<u8>>,
    above: HashMap<PageNumber, Above>,
    leaves: BTreeMap<Name, Vec<Leaf>>,
    damaged: Vec<DamagedPage>,
}

impl<D: Domain> Pages<D> {
    pub(super) fn none() -> Self {
        Self {
            manager: None,
            buffer: RefCell::default(),
            above: HashMap::new(),
            leaves: BTreeMap::new(),
            damaged: Vec::new(),
        }
    }

    /// Reads every page.
    pub(super) fn read(manager: BufferManager<D>, lost: &mut Vec<Lost>) -> Self {
        if let Err(error) = manager.write_all() {
            lost.push(Lost::of_store(format!("some pages could not be completed: {error}")));
        }
        let numbers = manager.space().map_or_else(Vec::new, |space| space.numbers());
        let is_known = |page| manager.space().is_some_and(|space| space.is_known(page));
        let (mut found, mut unknown_maps) = (Vec::new(), false);
        let mut pages = Self::none();
        let mut buffer = vec![0; manager.page_bytes()];
        // Of inner pages, which have all keys: they are roots.
        let mut roots = Vec::new();
        for number in numbers {
            unknown_maps |= !is_known(number);
            if let Err(error) = read_page(&manager, number, &mut buffer) {
                // Where the map is lost, not every place has a page.
                if is_known(number) || !is_no_page(&error) {
                    pages.damaged.push(DamagedPage { page: number, why: error.to_string() });
                }
                continue;
            }
            let Some(page) = LonePage::of(&mut buffer) else {
                let why = format!("page {number} is no tree's, or makes no sense");
                pages.damaged.push(DamagedPage { page: number, why });
                continue;
            };
            if page.is_leaf() {
                let (lower, upper) = (page.lower().to_vec(), page.upper().map(<[u8]>::to_vec));
                let is_doubtful = !is_known(number);
                let leaf = Leaf { number, lsn: page.lsn(), lower, upper, is_doubtful };
                found.push((page.tree(), leaf));
                continue;
            }
            if page.lower().is_empty() && page.upper().is_none() {
                roots.push(number);
            }
            for (child, lower, upper) in page.children() {
                let above = Above { page: number, lsn: page.lsn(), lower, upper };
                let newest = pages.above.get(&child).is_none_or(|other| other.lsn < above.lsn);
                if newest {
                    pages.above.insert(child, above);
                }
            }
        }
        if unknown_maps {
            lost.push(Lost::of_store(
                "a map of the pages is damaged: of some it is not known whether they are in use",
            ));
        }
        for (tree, mut leaf) in found {
            let top = pages.top(leaf.number);
            let is_root = roots.contains(&top) || (top == leaf.number && leaf.has_all_keys());
            leaf.is_doubtful &= top == leaf.number && !is_root;
            let name = if is_root { Name::Root(top) } else { Name::Mark(tree) };
            pages.leaves.entry(name).or_default().push(leaf);
        }
        pages.buffer = RefCell::new(buffer);
        pages.manager = Some(manager);
        pages
    }

    /// The page from which the others are reached, as far as pages can be read.
    fn top(&self, page: PageNumber) -> PageNumber {
        let mut top = page;
        for _ in 0..MOST_LEVELS {
            match self.above.get(&top) {
                Some(above) => top = above.page,
                None => break,
            }
        }
        top
    }

    /// The tree with this root. Its leaves are nobody else's from here on. Other trees may have the same mark, so leaves that
    /// have nothing else are only looked at where it has none.
    pub(super) fn take_tree(&mut self, root: PageNumber) -> Tree {
        let name = Name::Root(root);
        let own = self.leaves.remove(&name).unwrap_or_default();
        let mut tree = Tree { name: Some(name), segments: segments(&own, &[]) };
        if tree.is_whole() {
            return tree;
        }
        let marked = Name::Mark(mark(root));
        let orphans = self.leaves.remove(&marked).unwrap_or_default();
        let (within, others): (Vec<_>, Vec<_>) =
            orphans.into_iter().partition(|leaf| tree.lacks_some_of(leaf));
        tree.segments = segments(&own, &within);
        if !others.is_empty() {
            self.leaves.insert(marked, others);
        }
        tree
    }

    /// The trees that nobody has taken, and a number for each.
    pub(super) fn take_rest(&mut self) -> Vec<(u64, Tree)> {
        let rest = std::mem::take(&mut self.leaves).into_iter();
        let trees = rest.map(|(name, leaves)| {
            let number = match name {
                Name::Root(root) => root.get(),
                Name::Mark(mark) => mark.into(),
            };
            (number, Tree { name: Some(name), segments: segments(&leaves, &[]) })
        });
        trees.collect()
    }

    /// The damaged pages that a gap in a tree may come from. They are nobody else's from here on.
    pub(super) fn damaged_among(&mut self, tree: &Tree, gap: &Segment) -> Vec<DamagedPage> {
        if gap.leaf.is_some() {
            return Vec::new();
        }
        let (mut among, mut others) = (Vec::new(), Vec::new());
        for damaged in std::mem::take(&mut self.damaged) {
            let is_below = self.above.get(&damaged.page).is_some_and(|above| {
                tree.name == Some(Name::Root(self.top(damaged.page)))
                    && gap.intersects(&above.lower, above.upper.as_deref())
            });
            let is_root = tree.name == Some(Name::Root(damaged.page));
            if is_below || is_root { &mut among } else { &mut others }.push(damaged);
        }
        self.damaged = others;
        among
    }

    /// The damaged pages that nobody has taken.
    pub(super) fn take_damaged(&mut self) -> Vec<DamagedPage> {
        std::mem::take(&mut self.damaged)
    }

    /// The records of a leaf in a range.
    pub(super) fn records(&self, leaf: PageNumber, range: &KeyRange) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let (Some(manager), mut buffer) = (&self.manager, self.buffer.borrow_mut()) else {
            return BTreeMap::new();
        };
        let page =
            read_page(manager, leaf, &mut buffer).ok().and_then(|()| LonePage::of(&mut buffer));
        let records = page.iter().flat_map(LonePage::entries);
        let within = records.filter(|(key, _)| range.contains(key));
        within.map(|(key, value)| (key, value.to_vec())).collect()
    }
}

fn read_page<D: Domain>(
    manager: &BufferManager<D>,
    number: PageNumber,
    into: &mut [u8],
) -> Result<(), BufferError> {
    manager.retry(|| {
        let page = manager.fix(number)?;
        page.read().copy_to(0, into);
        Ok(page.validate()?)
    })
}

fn is_no_page(error: &BufferError) -> bool {
    matches!(
        error,
        BufferError::Space(
            SpaceError::Page { damage: PageDamage::NeverWritten, .. } | SpaceError::Device(_)
        )
    )
}

/// Which of these leaves has which keys: where there are several, one of the tree's own, one that is in use for certain, and
/// then the newest.
fn segments(own: &[Leaf], others: &[Leaf]) -> Vec<Segment> {
    let own = own.iter().map(|leaf| (true, leaf));
    let mut leaves: Vec<_> = own.chain(others.iter().map(|leaf| (false, leaf))).collect();
    leaves.sort_by(|(_, one), (_, other)| one.lower.cmp(&other.lower));
    let (mut segments, mut here) = (Vec::<Segment>::new(), BinaryHeap::new());
    let (mut at, mut next) = (Some(Vec::new()), 0);
    while let Some(from) = at {
        while let Some((is_own, leaf)) = leaves.get(next).filter(|(_, leaf)| leaf.lower <= from) {
            here.push((*is_own, !leaf.is_doubtful, leaf.lsn, next));
            next += 1;
        }
        while here.peek().is_some_and(|&(.., best)| leaves[best].1.ends_by(&from)) {
            here.pop();
        }
        let best = here.peek().map(|&(.., best)| leaves[best].1);
        let ends =
            [best.and_then(|leaf| leaf.upper.as_ref()), leaves.get(next).map(|(_, it)| &it.lower)];
        let to = ends.into_iter().flatten().min().cloned();
        match segments.last_mut().filter(|last| last.leaf.as_ref() == best && best.is_some()) {
            Some(last) => last.to.clone_from(&to),
            None => segments.push(Segment { from, to: to.clone(), leaf: best.cloned() }),
        }
        at = to;
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(number: u64, lsn: u64, lower: &str, upper: Option<&str>) -> Leaf {
        Leaf {
            number: PageNumber::new(number).unwrap(),
            lsn,
            lower: lower.into(),
            upper: upper.map(Into::into),
            is_doubtful: false,
        }
    }

    fn found(leaves: Vec<Leaf>) -> Vec<(String, Option<String>, Option<u64>)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let found = segments(&leaves, &[]).into_iter();
        found
            .map(|it| (text(it.from), it.to.map(text), it.leaf.map(|leaf| leaf.number.get())))
            .collect()
    }

    fn segment(from: &str, to: &str, leaf: Option<u64>) -> (String, Option<String>, Option<u64>) {
        (from.to_owned(), (!to.is_empty()).then(|| to.to_owned()), leaf)
    }

    #[test]
    fn leaves_that_follow_each_other_have_all_keys() {
        let leaves = vec![leaf(2, 1, "g", None), leaf(1, 9, "", Some("g"))];
        assert_eq!(found(leaves), [segment("", "g", Some(1)), segment("g", "", Some(2))]);
    }

    #[test]
    fn what_no_leaf_has_is_a_gap() {
        let leaves = vec![leaf(1, 1, "c", Some("g")), leaf(2, 1, "k", Some("m"))];
        let expected = [
            segment("", "c", None),
            segment("c", "g", Some(1)),
            segment("g", "k", None),
            segment("k", "m", Some(2)),
            segment("m", "", None),
        ];
        assert_eq!(found(leaves), expected);
        assert_eq!(found(vec![]), [segment("", "", None)]);
    }

    #[test]
    fn where_several_leaves_have_a_key_the_newest_counts() {
        // Before a split, and after it.
        let leaves = vec![leaf(1, 5, "", None), leaf(2, 7, "m", None)];
        assert_eq!(found(leaves), [segment("", "m", Some(1)), segment("m", "", Some(2))]);
        // Before a merge, and after it.
        let leaves = vec![leaf(1, 7, "", None), leaf(2, 5, "m", Some("p"))];
        assert_eq!(found(leaves), [segment("", "", Some(1))]);
    }

    #[test]
    fn a_leaf_that_may_be_free_counts_where_there_is_no_other() {
        let doubtful = Leaf { is_doubtful: true, ..leaf(1, 9, "", None) };
        let leaves = vec![doubtful, leaf(2, 1, "c", Some("g"))];
        let expected =
            [segment("", "c", Some(1)), segment("c", "g", Some(2)), segment("g", "", Some(1))];
        assert_eq!(found(leaves), expected);
    }

    #[test]
    fn a_leaf_without_room_for_a_key_has_none() {
        let leaves = vec![leaf(1, 9, "m", Some("c")), leaf(2, 1, "", None)];
        assert_eq!(found(leaves), [segment("", "", Some(2))]);
    }

    type Read = Pages<lapis_pmem::Hardware>;

    const ROOT: PageNumber = PageNumber::FIRST;

    /// Pages of a tree, and leaves of which only the mark is known.
    fn pages(own: Vec<Leaf>, marked: Vec<Leaf>) -> Read {
        let leaves = [(Name::Root(ROOT), own), (Name::Mark(mark(ROOT)), marked)];
        Pages { leaves: leaves.into(), ..Pages::none() }
    }

    fn numbers(tree: &Tree) -> Vec<Option<u64>> {
        tree.segments.iter().map(|it| it.leaf.as_ref().map(|leaf| leaf.number.get())).collect()
    }

    #[test]
    fn leaves_with_the_mark_of_a_whole_tree_are_not_taken_for_its_own() {
        let own = vec![leaf(10, 1, "", Some("m")), leaf(11, 1, "m", None)];
        let mut pages = pages(own, vec![leaf(20, 9, "", None)]);
        assert_eq!(numbers(&pages.take_tree(ROOT)), [Some(10), Some(11)]);
        let rest = pages.take_rest();
        assert_eq!(rest.iter().map(|(_, tree)| numbers(tree)).collect::<Vec<_>>(), [[Some(20)]]);
    }

    #[test]
    fn leaves_with_the_mark_of_a_tree_have_the_keys_that_it_lacks_and_no_others() {
        let own = vec![leaf(10, 1, "", Some("g")), leaf(11, 1, "m", None)];
        let mut pages = pages(own, vec![leaf(20, 9, "c", Some("p"))]);
        let tree = pages.take_tree(ROOT);
        assert_eq!(numbers(&tree), [Some(10), Some(20), Some(11)]);
        assert_eq!(tree.segments[1].range(), KeyRange::new::<&[u8]>(&(&b"g"[..]..&b"m"[..])));
        assert!(pages.take_rest().is_empty());
    }

    #[test]
    fn leaves_with_the_mark_of_a_tree_that_has_all_their_keys_are_left() {
        let own = vec![leaf(10, 1, "", Some("g"))];
        let mut pages = pages(own, vec![leaf(20, 9, "a", Some("c")), leaf(21, 1, "k", None)]);
        assert_eq!(numbers(&pages.take_tree(ROOT)), [Some(10), None, Some(21)]);
        assert_eq!(numbers(&pages.take_rest()[0].1), [None, Some(20), None]);
    }
}
