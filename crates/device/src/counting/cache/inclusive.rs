//! Two caches, of which the second holds all that the first one does.

use super::{Cache, DIRTY, Index, Sets, Tag, TagSets};

/// Where a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In both.
    First,
    /// In the second only.
    Second,
    /// In neither. This has left both for it.
    Neither(Tag),
}

/// Uses a line, which is in both caches afterwards. If it is dirty in the first it is so in both, so
/// what leaves the first alone changes nothing.
#[inline(always)]
pub(crate) fn take_in(first: &mut Cache, second: &mut Cache, line: u32, write: bool) -> Found {
    let at = At {
        index: first.index,
        sets: (first.index.set(line), second.index.set(line)),
        line,
        write,
    };
    // What kinds they are is asked once: nearly every modelled access comes this way.
    match &mut first.sets {
        Sets::WithinLines(first) => at.take_in_kind(first, second),
        Sets::Wide(first) => at.take_in_kind(first, second),
        Sets::Ordered(first) => at.take_in_kind(first, second),
    }
}

/// A use of a line.
struct At {
    index: Index<false>,
    /// Those of the line, of both caches.
    sets: (usize, usize),
    line: u32,
    write: bool,
}

impl At {
    #[inline(always)]
    fn take_in_kind(self, first: &mut impl TagSets, second: &mut Cache) -> Found {
        match &mut second.sets {
            Sets::WithinLines(second) => self.take_in_kinds(first, second),
            Sets::Wide(second) => self.take_in_kinds(first, second),
            Sets::Ordered(second) => self.take_in_kinds(first, second),
        }
    }

    #[inline(always)]
    fn take_in_kinds(self, first: &mut impl TagSets, second: &mut impl TagSets) -> Found {
        let Self { index, sets, line, write } = self;
        if let Some(soiled) = first.touch(sets.0, line, write) {
            if soiled && let Some(tag) = second.find(sets.1, line) {
                *tag |= DIRTY;
            }
            return Found::First;
        }
        let leaves = second.take_in(sets.1, line, write);
        if let Err(leaves) = leaves
            && let Some(line) = leaves.line()
        {
            first.remove(index.set(line), line);
        }
        first.insert(sets.0, Tag::of(line, write));
        match leaves {
            Ok(()) => Found::Second,
            Err(leaves) => Found::Neither(leaves),
        }
    }
}
