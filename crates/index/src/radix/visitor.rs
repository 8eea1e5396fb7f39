//! Whom a walk over everything tells of what it meets.

use lapis_pmem::parts::{PartEnds, PartName};
use lapis_pmem::{BlockVisitor, Domain, Link, Pool};

use super::handle::Handle;
use super::leaf::Leaf;
use super::word::Place;
use crate::index::{OnValue, Statistics};
use crate::root::IndexRoot;

/// What a walk meets. The blocks it refuses are not looked into.
pub trait Visitor {
    /// A node; whether to go on below it.
    fn node(&mut self, link: Place, block_bytes: usize) -> bool;
    /// A leaf under `depth` nodes; whether to take it for one.
    fn leaf(&mut self, link: Link<Leaf>, block_bytes: usize, depth: usize) -> bool;
    /// An entry that takes no leaf, under `depth` nodes.
    fn inline_entry(&mut self, _depth: usize) {}
    /// The value of a leaf that was taken, or of such an entry.
    fn value(&mut self, value: u64);
    /// Something that cannot be.
    fn problem(&mut self, what: String);
    /// A part: its ends if it is known and taken for visited; else [`Visitor::end_part`] follows.
    fn begin_part(&mut self, _name: PartName) -> Option<PartEnds> {
        None
    }
    /// Whether parts mean anything.
    fn goes_by_parts(&self) -> bool {
        false
    }
    /// The part begun last ends; without ends, nothing is known of it.
    fn end_part(&mut self, _ends: Option<PartEnds>) {}
}

/// See [`crate::Index::check`], of a tree that visits its blocks so.
pub fn problems_of<D: Domain>(
    pool: &Pool<D>,
    visit: impl FnMut(&mut BlockVisitor<'_, D>),
) -> Vec<String> {
    pool.reachable(visit).problems().iter().map(ToString::to_string).collect()
}

/// See [`crate::Index::visit_blocks`], of a tree that is walked over so.
pub fn visit_everything<'t, 'p, D: Domain>(
    handle: &Handle<D>,
    blocks: &'t mut BlockVisitor<'p, D>,
    value: OnValue<'t, D>,
    walk: impl FnOnce(&mut VisitingBlocks<'t, 'p, D>),
) {
    if blocks.visit(handle.root, size_of::<IndexRoot>()) {
        walk(&mut VisitingBlocks { blocks, value });
    }
}

/// See [`crate::Index::statistics`], of a tree that is walked over so.
pub fn measure(walk: impl FnOnce(&mut Measuring)) -> Statistics {
    let mut measuring = Measuring::default();
    walk(&mut measuring);
    let mut sizes = measuring.sizes;
    sizes.blocks += 1;
    sizes.bytes += size_of::<IndexRoot>() as u64;
    if sizes.entries > 0 {
        sizes.mean_depth = measuring.depths as f64 / sizes.entries as f64;
    }
    sizes
}

/// Tells a visitor of every block.
pub struct VisitingBlocks<'t, 'p, D: Domain> {
    blocks: &'t mut BlockVisitor<'p, D>,
    value: OnValue<'t, D>,
}

impl<D: Domain> Visitor for VisitingBlocks<'_, '_, D> {
    fn node(&mut self, link: Place, block_bytes: usize) -> bool {
        self.blocks.visit(link, block_bytes)
    }
    fn leaf(&mut self, link: Link<Leaf>, block_bytes: usize, _depth: usize) -> bool {
        self.blocks.visit(link, block_bytes)
    }
    fn value(&mut self, value: u64) {
        (self.value)(self.blocks, value);
    }
    fn problem(&mut self, what: String) {
        self.blocks.problem(what);
    }
    fn goes_by_parts(&self) -> bool {
        self.blocks.goes_by_parts()
    }
    fn begin_part(&mut self, name: PartName) -> Option<PartEnds> {
        self.blocks.begin_part(name)
    }
    fn end_part(&mut self, ends: Option<PartEnds>) {
        self.blocks.end_part(ends);
    }
}

/// Adds up sizes.
#[derive(Default)]
pub struct Measuring {
    sizes: Statistics,
    depths: u64,
}

impl Visitor for Measuring {
    fn node(&mut self, _link: Place, block_bytes: usize) -> bool {
        self.sizes.nodes += 1;
        self.sizes.blocks += 1;
        self.sizes.bytes += block_bytes as u64;
        true
    }
    fn leaf(&mut self, _link: Link<Leaf>, block_bytes: usize, depth: usize) -> bool {
        self.sizes.blocks += 1;
        self.sizes.bytes += block_bytes as u64;
        self.inline_entry(depth);
        true
    }
    fn inline_entry(&mut self, depth: usize) {
        self.sizes.entries += 1;
        self.sizes.max_depth = self.sizes.max_depth.max(depth as u64);
        self.depths += depth as u64;
    }
    fn value(&mut self, _value: u64) {}
    fn problem(&mut self, _what: String) {}
}
