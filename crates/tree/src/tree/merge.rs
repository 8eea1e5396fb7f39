//! Merges of sparse neighbours, and the end of a root with one child.

use lapis_buffer::OptimisticPage;
use lapis_pmem::Domain;

use super::{Place, Target, Tree, contents_of, count, damaged, sound};
use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::node::{Builder, Entries, Node, fence_reserve};
use crate::record::{Change, copy_of};

/// Whether a node should be merged that had `before` bytes of entries and has `after`. Asked for every
/// removal, it says so a few times while a node becomes empty: its neighbour may be full, and on the SSD.
pub(super) fn is_due(before: usize, after: usize, page_bytes: usize) -> bool {
    let step = page_bytes / 16;
    after < page_bytes / 4 && (before / step != after / step || after == 0)
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Merges the node of a level that a key is in with a neighbour, if both fit into one, and so on upwards.
    pub(crate) fn merge(&self, level: u8, key: &[u8]) -> Result<(), TreeError> {
        match self.retry(|| self.try_merge(level, key))? {
            true => self.merge(level + 1, key),
            false => Ok(()),
        }
    }

    /// Whether the node above should be merged now.
    fn try_merge(&self, level: u8, key: &[u8]) -> Result<bool, Stop> {
        let Some(Place { parent, page }) = self.descend(Target::Key(key), level)? else {
            return Ok(false);
        };
        let Some((mut parent, child)) = parent else {
            return self.shrink(page).map(|()| false);
        };
        let above = Node::new(parent.read());
        let (keys, first) =
            (above.count(), child.saturating_sub(usize::from(child == above.count())));
        parent.validate()?;
        if keys == 0 {
            return Ok(true);
        }
        let (left, right) = match first == child {
            true => (page, self.child(&mut parent, above.child_offset(first + 1))?),
            false => (self.child(&mut parent, above.child_offset(first))?, page),
        };
        let is_sibling = Node::new(left.read()).level() == Node::new(right.read()).level()
            && left.read().number() != right.read().number();
        if !is_sibling {
            right.validate()?;
            return Err(self.suspect(&left, "what is beside it is no neighbour"));
        }
        let most = 3 * (self.manager.page_bytes() / 4);
        let bytes = [&left, &right].map(|page| Node::new(page.read()).entry_bytes());
        let is_one_empty = bytes.contains(&0);
        if bytes[0] + bytes[1] > most && !is_one_empty {
            left.validate()?;
            right.validate()?;
            return Ok(false);
        }

        // From the parent down; the child that goes is latched when nobody refers to its frame any more.
        let mut parent = parent.exclusive()?;
        parent.unswizzle(above.child_offset(first + 1));
        let (mut left, mut right) = (left.exclusive()?, right.exclusive()?);
        sound(&left)?;
        sound(&right)?;
        left.unswizzle_all();
        right.unswizzle_all();
        let (kept, gone) = (copy_of(&left), copy_of(&right));
        let Some(made) = merged(&Node::new(&kept[..]), &Node::new(&gone[..])) else {
            return Ok(false);
        };
        let above = sound(&parent)?;
        let separator = Node::new(&gone[..]).lower();
        if above.suffix_of(separator).map(|suffix| above.search(suffix)) != Some((first, true)) {
            return Err(damaged(&right, "it does not begin where the node above says").into());
        }
        let before = above.entry_bytes();
        let contents = contents_of(&made, left.number())?;
        let changes =
            &mut [(&mut left, Change::Replace(contents)), (&mut parent, Change::Unhang(separator))];
        let lsn = self.modify(changes, &[right.number()])?;
        self.manager.free_page(right, lsn)?;
        count(&self.counters.merges);
        if Node::new(&made[..]).entries() == Entries::Hashed {
            count(&self.counters.hashed_merges);
        }
        let above = Node::new(parent.read());
        let is_above_due = is_due(before, above.entry_bytes(), self.manager.page_bytes());
        Ok(above.count() == 0 || is_above_due)
    }

    /// A root with one child becomes what that is.
    fn shrink<'m>(&'m self, mut root: OptimisticPage<'m, D>) -> Result<(), Stop> {
        let node = Node::new(root.read());
        if node.level() == 0 || node.count() > 0 {
            return Ok(root.validate()?);
        }
        let child = self.child(&mut root, node.child_offset(0))?;
        if Node::new(child.read()).level() != node.level() - 1 {
            return Err(self.suspect(&child, "it is not of the level where it hangs"));
        }
        let mut root = root.exclusive()?;
        root.unswizzle_all();
        let mut child = child.exclusive()?;
        sound(&child)?;
        child.unswizzle_all();
        let copy = copy_of(&child);
        let contents = contents_of(&copy, child.number())?;
        let changes = &mut [(&mut root, Change::Replace(contents))];
        let lsn = self.modify(changes, &[child.number()])?;
        count(&self.counters.shrinkages);
        Ok(self.manager.free_page(child, lsn)?)
    }
}

/// Two neighbours as one; none if that would be too full.
fn merged(left: &Node<&[u8]>, right: &Node<&[u8]>) -> Option<Vec<u8>> {
    let page_bytes = left.source().len();
    let is_one_empty = left.count() == 0 || right.count() == 0;
    let mut made = Builder::like(left, right.upper());
    let fill = |made: &mut Builder| {
        made.push_all(left, 0..left.count())?;
        if right.level() > 0 {
            made.push_child(right.lower(), right.child(0))?;
        }
        made.push_all(right, 0..right.count())
    };
    let Ok(()) = fill(&mut made) else { return None };
    let fences = left.lower_bytes() + right.upper_bytes();
    let room = left.entries().room(page_bytes) - fence_reserve(page_bytes);
    let most = if is_one_empty { room } else { 3 * (room / 4) };
    (made.entry_bytes() + fences <= most).then(|| made.finish())
}
