//! Walks by parts, for whoever walks again and again over what differs in little.
//!
//! A crash checker recovers a structure a million times, from images that differ in a few lines, and
//! walks over all of it each time. A structure that names the parts of its walks lets it leave out
//! those that would come to the same as before.
//!
//! A *part* is a stretch of a walk whose course follows from its name and from the bytes of persistent
//! memory that are read in it, and from nothing else. For a tree it is what lies below a node, and the
//! word that refers to the node is its name; or what lies below some of the node's children, where there
//! are many of which few change, and the name says besides which. What a walk takes along from one part to the next (the
//! key visited last, say) it must be able to make again from the part's [`PartEnds`].
//!
//! Parts lie in each other: one that is begun within another ends before that. Whoever knows parts
//! answers for it that what was read in one is as it was; a walk that changes memory has none.

use std::rc::Rc;

/// The name of a part: a word that refers to a node, or what [`stretch_name`] makes of it.
pub type PartName = u128;

/// The name of what lies below one stretch of the children of the node that `word` refers to.
pub fn stretch_name(word: u64, stretch: usize) -> PartName {
    PartName::from(word) | (stretch as PartName + 1) << u64::BITS
}

/// Two words about a part by which a walk that passes it over goes on behind it.
pub type PartEnds = [u64; 2];

/// What is known of the parts of one kind of walk; a `P` of each.
pub trait KnownParts<P> {
    /// The part called `name`, if a walk through it would come to the same again.
    fn known(&mut self, name: PartName) -> Option<Rc<P>>;

    /// The walk passes over this part, which is known.
    fn passed(&mut self, name: PartName);

    /// The walk goes through this part from here on. Whether it is worth making a `P` of it.
    fn begin(&mut self, name: PartName) -> bool;

    /// Whether, as the part begun last ends, it is still worth making a `P` of it.
    fn keeps(&mut self) -> bool;

    /// The part begun last ends here; it came to this, if it can be told.
    fn end(&mut self, part: Option<P>);
}
