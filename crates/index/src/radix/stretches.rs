//! Stretches: some children of a node, which follow each other, as a part of walks.
//!
//! What lies below a node is a part of walks over everything ([`lapis_pmem::parts`]). Where a node has
//! room for many children, of which one changes, most of such a walk would be the others: asking for each
//! whether it is known, and visiting those that are leaves. So the children of such a node are divided,
//! by their ranks, into stretches of equal length, the end of a key counted to the first, and what lies
//! below a stretch is a part, too: it is named after the node's word and the number of the stretch, of the
//! node only the words of these children are read in it, and its ends are its first and its last leaf,
//! or nothing if nothing is there.

use lapis_pmem::Link;
use lapis_pmem::parts::{PartEnds, PartName, stretch_name};

use super::leaf::Leaf;
use super::word::{LOW_BITS, SlotWord};

/// A stretch of a node's children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    number: usize,
    /// The rank behind its last one.
    pub end: usize,
}

impl Stretch {
    /// The one that begins at `rank`, the first of a node or the end of the stretch before, where
    /// each has so many `ranks`.
    pub fn beginning_at(rank: usize, ranks: usize) -> Self {
        let number = rank.saturating_sub(1) / ranks;
        Self { number, end: (number + 1) * ranks + 1 }
    }

    /// Its name below `node`.
    pub fn name_below<W: SlotWord>(self, node: W) -> PartName {
        stretch_name(node.bits(), self.number)
    }
}

/// The ends of a stretch of so many children, of which it counts whether they are several. None if
/// there are children and no leaf below them, or the other way round.
pub fn ends_of(first: Link<Leaf>, last: Link<Leaf>, children: usize) -> Option<PartEnds> {
    match (first.is_null(), children) {
        (true, 0) => Some([0, 0]),
        (false, 1..) => Some([first.bits() | children.min(2) as u64, last.bits()]),
        _ => None,
    }
}

/// The first and the last leaf that these ends name, if there are any, and the number of children: 2
/// if they are more.
pub fn leaves_at([first, last]: PartEnds) -> Option<(Link<Leaf>, Link<Leaf>, usize)> {
    let (children, first) = ((first & LOW_BITS) as usize, first & !LOW_BITS);
    (first != 0).then(|| (Link::from_bits(first), Link::from_bits(last), children))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_have_equal_lengths_but_for_the_end_of_a_key_in_the_first() {
        for (first, ranks, last) in [(0, 4, 16), (1, 4, 16), (1, 16, 256), (0, 32, 256)] {
            let mut rank = first;
            let mut ends = Vec::new();
            while rank <= last {
                let stretch = Stretch::beginning_at(rank, ranks);
                assert_eq!(stretch.number, ends.len());
                rank = stretch.end;
                ends.push(rank);
            }
            let expected: Vec<usize> =
                (1..=last / ranks).map(|number| number * ranks + 1).collect();
            assert_eq!(ends, expected);
        }
    }

    #[test]
    fn ends_say_which_leaves_they_are_and_whether_there_are_several_children() {
        let (first, last) = (Link::from_bits(0x1_0040), Link::from_bits(0x2_0070));
        for (children, counted) in [(1, 1), (2, 2), (16, 2)] {
            let ends = ends_of(first, last, children).unwrap();
            assert_eq!(leaves_at(ends), Some((first, last, counted)));
        }
        assert_eq!(leaves_at(ends_of(Link::NULL, last, 0).unwrap()), None);
        assert_eq!((ends_of(Link::NULL, last, 1), ends_of(first, last, 0)), (None, None));
    }
}
