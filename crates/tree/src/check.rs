//! Whether a tree is one: a walk over all of its pages.

use std::collections::HashSet;

use lapis_buffer::{ExclusivePage, PageNumber};
use lapis_pmem::Domain;

use crate::log::StructureLog;
use crate::node::{
    Entries, INNER, LEAF, Node, WORD, check_table, common_bytes, mark_of, put_in_order, slot_of,
};
use crate::record::image_of;
use crate::tree::Tree;

/// What a walk over a tree found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeReport {
    /// Levels.
    pub height: u8,
    /// Leaves.
    pub leaves: u64,
    /// Those of them that are hashed.
    pub hashed_leaves: u64,
    /// Other nodes.
    pub inner_nodes: u64,
    /// Records.
    pub records: u64,
    /// Bytes of entries in the leaves.
    pub leaf_bytes: u64,
    /// Things that are wrong.
    pub problems: u64,
}

/// What a walk over a tree comes across.
#[derive(Debug)]
pub enum Finding {
    /// A page of the tree.
    Page(PageNumber),
    /// Something that is wrong.
    Problem {
        /// The page that it is wrong with.
        page: PageNumber,
        /// What is wrong, or why the page cannot be read.
        what: String,
    },
}

/// A page that is to be looked at, and what its parent says of it.
struct Expected {
    page: PageNumber,
    /// Not known of the root.
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Whether pages behind it may be free already, so that it ends before `upper`.
    may_end_early: bool,
}

impl Expected {
    fn is_bounded_by(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let ends_early = || match (&self.upper, upper) {
            (Some(expected), Some(upper)) => upper < &expected[..],
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let ends_there = self.upper.as_deref() == upper;
        self.lower == lower && (ends_there || self.may_end_early && ends_early())
    }
}

/// A walk under way.
struct Walk<'w> {
    report: TreeReport,
    /// The mark that all pages have.
    tree: u16,
    seen: HashSet<PageNumber>,
    ahead: Vec<Expected>,
    tell: &'w mut dyn FnMut(Finding),
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Walks over all pages, and tells each, and everything that is wrong with it. Nobody changes the tree
    /// meanwhile. Goes on behind what is damaged, and never fails itself.
    pub fn check(&self, tell: &mut dyn FnMut(Finding)) -> TreeReport {
        self.check_from_root(false, tell)
    }

    /// As [`check`](Self::check), of a tree whose pages are being freed ([`free_pages`](Self::free_pages)): its end may
    /// be missing.
    pub fn check_what_is_left(&self, tell: &mut dyn FnMut(Finding)) -> TreeReport {
        self.check_from_root(true, tell)
    }

    fn check_from_root(&self, may_end_early: bool, tell: &mut dyn FnMut(Finding)) -> TreeReport {
        let (page, lower, upper) = (self.root, Vec::new(), None);
        let root = Expected { page, level: None, lower, upper, may_end_early };
        let (report, tree) = (TreeReport::default(), mark_of(self.root));
        let mut walk = Walk { report, tree, seen: HashSet::new(), ahead: vec![root], tell };
        while let Some(expected) = walk.ahead.pop() {
            if !walk.seen.insert(expected.page) {
                walk.problem(expected.page, "several pages refer to it".to_owned());
                continue;
            }
            (walk.tell)(Finding::Page(expected.page));
            match self.manager.fix_exclusive(expected.page) {
                Ok(page) => walk.look_at(&page, &expected),
                Err(error) => walk.problem(expected.page, error.to_string()),
            }
        }
        walk.report
    }
}

impl Walk<'_> {
    fn problem(&mut self, page: PageNumber, what: String) {
        self.report.problems += 1;
        (self.tell)(Finding::Problem { page, what });
    }

    fn look_at<D: Domain>(&mut self, page: &ExclusivePage<'_, D>, expected: &Expected) {
        let number = expected.page;
        let mut image = image_of(page);
        let node = Node::new(&image[..]);
        let kind = if node.level() == 0 { LEAF } else { INNER };
        if page.read().kind() != kind {
            self.problem(number, format!("it is of kind {}", page.read().kind().0));
            return;
        }
        if expected.level.is_some_and(|level| level != node.level()) {
            self.problem(number, format!("it is of level {}, and hangs elsewhere", node.level()));
            return;
        }
        if !node.is_sound() {
            self.problem(number, "its header makes no sense".to_owned());
            return;
        }
        self.report.height = self.report.height.max(node.level().saturating_add(1));
        if node.tree() != self.tree {
            self.problem(number, "it says that it is another tree's".to_owned());
        }
        if !expected.is_bounded_by(node.lower(), node.upper()) {
            self.problem(number, "its fences are not what the node above says".to_owned());
        }
        if node.prefix_bytes() != common_bytes(node.lower(), node.upper().unwrap_or_default()) {
            self.problem(number, "its prefix is not what its fences have in common".to_owned());
        }
        let table = check_table(&node);
        put_in_order(&mut image);
        let node = Node::new(&image[..]);
        if let Err(what) = table.and_then(|()| check_entries(&node)) {
            self.problem(number, what.to_owned());
            return;
        }
        if node.level() == 0 {
            self.report.leaves += 1;
            self.report.hashed_leaves += u64::from(node.entries() == Entries::Hashed);
            self.report.records += node.count() as u64;
            self.report.leaf_bytes += node.entry_bytes() as u64;
        } else {
            self.report.inner_nodes += 1;
            self.look_at_children(page, &node, expected);
        }
    }

    fn look_at_children<D: Domain>(
        &mut self,
        page: &ExclusivePage<'_, D>,
        node: &Node<&[u8]>,
        of: &Expected,
    ) {
        let number = of.page;
        let references = (0..=node.count()).map(|child| node.child_offset(child));
        if !page.read().references().eq(references) {
            self.problem(number, "its page does not name its references".to_owned());
        }
        // The last first, so that the first is looked at next.
        for child in (0..=node.count()).rev() {
            let Some(below) = page.child_number(node.child_offset(child)) else {
                self.problem(number, format!("child {child} of it is no page"));
                continue;
            };
            let lower = child.checked_sub(1).map_or(Some(node.lower().to_vec()), |at| node.key(at));
            let upper = match child == node.count() {
                true => node.upper().map(<[u8]>::to_vec),
                false => node.key(child),
            };
            let (level, lower) = (Some(node.level() - 1), lower.unwrap_or_default());
            let may_end_early = of.may_end_early && child == node.count();
            self.ahead.push(Expected { page: below, level, lower, upper, may_end_early });
        }
    }
}

/// N1, N3, and the heads of slots, which are in order.
pub(crate) fn check_entries(node: &Node<&[u8]>) -> Result<(), &'static str> {
    let page_bytes = node.source().len();
    let (mut before, mut records): (Option<Vec<u8>>, usize) = (None, 0);
    for at in 0..node.count() {
        let suffix = node.suffix(at).ok_or("a key lies outside of it")?;
        let bytes = node.record_bytes(at).ok_or("a record lies outside of it")?;
        let offset = node.record_offset(at);
        if offset < page_bytes - node.heap_bytes() || offset + bytes > page_bytes {
            return Err("a record lies outside of the heap");
        }
        if node.slot(at) != slot_of(suffix, offset) {
            return Err("the head in a slot is not that of its key");
        }
        let key = node.key(at).ok_or("a key lies outside of it")?;
        if before.is_some_and(|before| before >= key) {
            return Err("its keys do not ascend");
        }
        if !node.is_within_fences(&key) {
            return Err("a key lies outside of its fences");
        }
        records += bytes;
        before = Some(key);
    }
    let filled = records + node.garbage() + node.lower_bytes() + node.upper_bytes();
    match filled == node.heap_bytes() && node.slots_end().is_multiple_of(WORD) {
        true => Ok(()),
        false => Err("its records do not fill the heap"),
    }
}
