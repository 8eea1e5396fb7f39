//! Copies of nodes that move up or down in the tree: what only a tree does that changes no header in place
//! ([`Policy::COPIES`]).

use lapis_pmem::{Committed, Dirty, Domain, Durable, InFlight, Link, Owned};

use super::Art;
use super::node::{Child, Head, Kind};
use super::policy::Policy;
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::{
    Byte, Changing, Descending, Digits, Header, Holding, Leaf, Obstacle, Parent, Place,
};

/// A kind, and a node of it.
pub(super) type NodeOfKind<'t, D, S> = (Kind, Owned<'t, D, Head, S>);

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> Art<D, K, P> {
    /// Replaces a node that loses the last leaf but one child, `remaining`, by a copy of that with the header that
    /// is right there. None if there is no room for it, and nothing has happened.
    pub(super) fn move_up_by_copy(
        &self,
        gone: (&Digits<'_, K, Byte>, Link<Leaf>),
        parent: &Parent<Child>,
        remaining: Child,
        held: &impl Holding,
    ) -> Result<Option<Committed>, Obstacle> {
        held.require(self.claims_of(remaining)?)?;
        let header = self.true_header(remaining, parent.depth)?;
        let Ok((kind, copy)) = self.copy_with(remaining, header) else { return Ok(None) };
        // I1.
        let copy = self.handle.pool.fence(copy.flush());
        let nodes = [parent.node, remaining];
        let word = Self::word_of(kind, remaining)(&copy).0;
        Ok(Some(self.replace_nodes(&nodes, Some(gone), parent.place, copy, |_| word, held)))
    }

    /// A copy of `child`, flushed, with the header that is right at `depth`: `header`, if that is known.
    pub(super) fn lowered_copy(
        &self,
        child: Child,
        header: Option<Header<Byte>>,
        depth: usize,
    ) -> Result<NodeOfKind<'_, D, InFlight>, IndexError> {
        let header = match header {
            Some(header) => header,
            None => self.true_header(child, depth)?,
        };
        let (kind, copy) = self.copy_with(child, header)?;
        Ok((kind, copy.flush()))
    }

    /// Puts `node`, which is above a copy of `child`, in the place of that.
    pub(super) fn put_above_copy<B: lapis_pmem::Blocks<Durable>>(
        &self,
        child: Child,
        place: Place,
        new: B,
        node: Child,
        held: &impl Holding,
    ) -> Committed {
        self.replace_nodes(&[child], None, place, new, |_| node.0, held)
    }

    /// A copy of `node` with another header, not flushed, and its kind.
    fn copy_with(
        &self,
        node: Child,
        header: Header<Byte>,
    ) -> Result<NodeOfKind<'_, D, Dirty>, IndexError> {
        let contents = self.contents(node);
        let kind = node.kind().for_count(contents.children.len());
        Ok((kind, self.make_node(kind, header.bits(), &contents)?))
    }
}
