//! Compaction: pages move to lower numbers, so that the end of the device becomes free.
//!
//! A page that moves is made anew where it goes, its parent refers to that, and its old place is free: one record, as a
//! split writes, with all that is left on the new page. So readers, who look for keys and not for pages, find it by the
//! parent, or see that their page has changed. Roots stay (C4).

use lapis_buffer::{ExclusivePage, PageNumber};
use lapis_pmem::Domain;

use super::{Target, Tree, contents_of, count, damaged, sound};
use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::mutants::MOVE_WITHOUT_PARENT;
use crate::node::{LEAF, Node, WORD};
use crate::record::{Change, apply, copy_of};

/// A place in a tree up to which pages have been moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionPlace {
    /// The level of the pages that are moved next.
    level: u8,
    /// Pages of keys before this one have been.
    from: Vec<u8>,
}

/// What moving a page came to.
enum Move {
    /// It is somewhere else; the next one is looked for.
    Moved,
    /// It takes a new page, which is allocated while nothing is latched.
    NeedsPage,
    /// No lower page is free.
    NoneIsFree,
    /// The children of a node are where they should be; the node behind it begins here, if there is one.
    Next(Option<Vec<u8>>),
    /// The tree has no such level.
    End,
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Moves the next page whose number is higher than `highest` to the lowest place that is free. True if one was moved;
    /// false at the end of the tree, and when no lower place is free. Others use the tree meanwhile.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn move_one_page(
        &self,
        highest: PageNumber,
        place: &mut CompactionPlace,
    ) -> Result<bool, TreeError> {
        self.manager.relieve()?;
        let mut spare = None;
        let outcome = loop {
            match self.retry(|| self.try_move(highest, place, &mut spare)) {
                Ok(Move::Moved) => break Ok(true),
                Ok(Move::NeedsPage) => spare = Some(self.manager.reserve_page(LEAF)?),
                Ok(Move::NoneIsFree | Move::End) => break Ok(false),
                Ok(Move::Next(Some(from))) => place.from = from,
                Ok(Move::Next(None)) => {
                    *place = CompactionPlace { level: place.level + 1, from: Vec::new() };
                }
                Err(error) => break Err(error),
            }
        };
        self.give_back(spare)?;
        outcome
    }

    fn try_move<'m>(
        &'m self,
        highest: PageNumber,
        place: &CompactionPlace,
        spare: &mut Option<ExclusivePage<'m, D>>,
    ) -> Result<Move, Stop> {
        let CompactionPlace { level, from } = place;
        let Some(above) = self.descend(Target::Key(from), level + 1)? else { return Ok(Move::End) };
        let mut parent = above.page.exclusive()?;
        let node = sound(&parent)?;
        let numbers: Vec<_> =
            (0..=node.count()).map(|at| parent.child_number(node.child_offset(at))).collect();
        let high = numbers.iter().position(|number| number.is_none_or(|number| number > highest));
        let Some(at) = high else {
            let copy = copy_of(&parent);
            return Ok(Move::Next(Node::new(&copy[..]).upper().map(<[u8]>::to_vec)));
        };
        let number = numbers[at].ok_or_else(|| damaged(&parent, "it refers to no page"))?;
        match spare {
            None => return Ok(Move::NeedsPage),
            Some(spare) if spare.number() > number => return Ok(Move::NoneIsFree),
            Some(_) => {}
        }
        // The child is loaded while nothing is latched, and latched when nobody refers to its frame.
        let mut optimistic = parent.into_optimistic();
        let offset = Node::new(optimistic.read()).child_offset(at);
        let child = self.child(&mut optimistic, offset)?;
        parent = optimistic.exclusive()?;
        parent.unswizzle_all();
        let mut child = child.exclusive()?;
        if sound(&child)?.level() != *level || child.number() != number {
            return Err(damaged(&child, "it is not of the level where it hangs").into());
        }
        child.unswizzle_all();
        let Some(moved) = spare else { return Err(Stop::Restart) };
        let (contents, mut refers) = (copy_of(&child), copy_of(&parent));
        refers[offset..offset + WORD].copy_from_slice(&moved.number().get().to_le_bytes());
        let of_moved = Change::Make(contents_of(&contents, child.number())?);
        let of_parent = Change::Replace(contents_of(&refers, parent.number())?);
        let (freed, domain) = ([child.number()], self.manager.domain());
        let lsn = if domain.commits(MOVE_WITHOUT_PARENT) {
            let lsn = self.modify(&mut [(&mut *moved, of_moved)], &freed)?;
            apply(&mut parent, of_parent, lsn)?;
            lsn
        } else {
            self.modify(&mut [(&mut *moved, of_moved), (&mut parent, of_parent)], &freed)?
        };
        // It is the tree's now, whatever comes of the other.
        *spare = None;
        self.manager.free_page(child, lsn)?;
        count(&self.counters.moves);
        Ok(Move::Moved)
    }
}
