//! The end of a tree: its pages are given back, so many at a time.

use lapis_buffer::{ExclusivePage, OptimisticPage, PageNumber};
use lapis_pmem::Domain;

use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::node::{Builder, Contents, Node};
use crate::record::{Change, copy_of};
use crate::tree::Tree;

/// Pages that one record frees at most.
const MOST_IN_RECORD: usize = 256;

/// What to free next.
struct Step<'m, D: Domain> {
    /// A node that loses its last children. It is latched until they are free, so that the record which says
    /// so is not cut off before.
    above: ExclusivePage<'m, D>,
    /// How many keys stay in it; none if it is the root, and goes itself.
    kept: Option<usize>,
    /// The pages, each before those that it refers to.
    freed: Vec<PageNumber>,
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Frees about `most` pages, and says whether only those are left that go with the root
    /// ([`Tree::free_rest`]). Called again and again, also after a crash, it comes to that. Leaves are not read.
    /// From the first call on the tree is no map any more: nobody else uses it, and recovery replays no
    /// logical record of it.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn free_pages(&self, most: usize) -> Result<bool, TreeError> {
        let mut freed = 0;
        loop {
            self.manager.relieve()?;
            let at_once = most.saturating_sub(freed).clamp(1, MOST_IN_RECORD);
            let Step { mut above, kept, freed: pages } = self.retry(|| self.next_step(at_once))?;
            let Some(kept) = kept else { return Ok(true) };
            // The log gets what refers to the children that stay.
            above.unswizzle_all();
            let copy = copy_of(&above);
            let page = above.number();
            let damaged = || TreeError::Damaged { page, what: "it cannot lose its children" };
            let node = Node::new(&copy[..]);
            let mut made = Builder::like(&node, node.upper());
            made.push_all(&node, 0..kept).map_err(|_| damaged())?;
            let made = made.finish();
            let contents = Contents::of(&made).ok_or_else(damaged)?;
            let lsn = self.modify(&mut [(&mut above, Change::Replace(contents))], &pages)?;
            pages.iter().try_for_each(|&page| self.manager.free_unread(page, lsn))?;
            freed += pages.len();
            if freed >= most {
                return Ok(false);
            }
        }
    }

    /// Frees the root, and the few pages that are left below it: by one record.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn free_rest(&self) -> Result<(), TreeError> {
        self.manager.relieve()?;
        let Step { above, kept, freed: mut pages } = self.retry(|| self.next_step(1))?;
        if kept.is_some() {
            let page = above.number();
            return Err(TreeError::Damaged { page, what: "it has more than goes with the root" });
        }
        pages.push(self.root);
        let lsn = self.modify(&mut [], &pages)?;
        pages.pop();
        pages.iter().try_for_each(|&page| self.manager.free_unread(page, lsn))?;
        Ok(self.manager.free_page(above, lsn)?)
    }

    /// Frees a root that is damaged, when only what [`Tree::free_rest`] frees is left. The few pages below it stay in use,
    /// for nothing else says which they are.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn free_damaged_root(&self) -> Result<(), TreeError> {
        let lsn = self.modify(&mut [], &[self.root])?;
        Ok(self.manager.free_unread(self.root, lsn)?)
    }

    /// The last leaves, and what has no others below it.
    fn next_step(&self, most: usize) -> Result<Step<'_, D>, Stop> {
        let mut path: Vec<OptimisticPage<'_, D>> = Vec::new();
        let mut page = self.manager.fix(self.root)?;
        let mut level = Node::new(page.read()).level();
        while level > 0 {
            let node = Node::new(page.read());
            if node.level() != level {
                return Err(self.suspect(&page, "it is not of the level where it hangs"));
            }
            level -= 1;
            let below = match level {
                0 => page,
                _ => self.child(&mut page, node.child_offset(node.count()))?,
            };
            path.push(page);
            page = below;
        }
        page.validate()?;
        let Some(lowest) = path.last() else {
            return Ok(Step { above: page.exclusive()?, kept: None, freed: Vec::new() });
        };
        let keys = |page: &OptimisticPage<'_, D>| Node::new(page.read()).count();
        let several = path.iter().rposition(|page| keys(page) > 0);
        let mut lowest_alone = lowest.exclusive()?;
        // Of the lowest node the leaves go; of one above it the last child, with all that is below.
        let count = Node::new(lowest_alone.read()).count();
        let leaves = if several == Some(path.len() - 1) { most.min(count) } else { 1 };
        let mut freed = Vec::new();
        for child in count + 1 - leaves..=count {
            let offset = Node::new(lowest_alone.read()).child_offset(child);
            lowest_alone.unswizzle(offset);
            let page = lowest_alone.number();
            let what = "it refers to no page";
            freed.push(lowest_alone.child_number(offset).ok_or(TreeError::Damaged { page, what })?);
        }
        if several == Some(path.len() - 1) {
            return Ok(Step { above: lowest_alone, kept: Some(count - leaves), freed });
        }
        drop(lowest_alone);
        let above = several.unwrap_or(0);
        let nodes = path[above + 1..].iter().map(|page| PageNumber::new(page.read().number()));
        let nodes: Option<Vec<_>> = nodes.collect();
        freed.splice(0..0, nodes.ok_or(Stop::Restart)?);
        let kept = several.map(|at| keys(&path[at]) - 1);
        let mut above = path[above].exclusive()?;
        let node = Node::new(above.read());
        above.unswizzle(node.child_offset(node.count()));
        Ok(Step { above, kept, freed })
    }
}
