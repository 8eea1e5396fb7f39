//! Parts of a visit ([`crate::parts`]): the blocks that are reachable by way of them.

use std::rc::Rc;

use super::{BlockVisitor, ReachabilityProblem, SlabMarks};
use crate::allocator::Descriptor;
use crate::domain::Domain;
use crate::parts::{KnownParts, PartEnds, PartName};

/// What visiting a part has come to: blocks, and no problem.
#[derive(Debug)]
pub struct ReachablePart {
    ends: PartEnds,
    slabs: Box<[PartOfSlab]>,
    /// Words of the slabs' bitmaps, by number: of one slab after the other. In one piece, since each
    /// part that is passed over would wait for each piece to come into the processor's cache.
    words: Box<[(u32, u64)]>,
}

/// The blocks in one slab.
#[derive(Debug)]
struct PartOfSlab {
    first: u32,
    /// Where its words end among those of the part.
    words_end: u32,
    /// What the slab was: a block is one only in a slab of its size.
    descriptor: Descriptor,
}

/// What a visitor keeps of the parts that it is in.
pub(super) struct VisitingByParts<'p> {
    known: &'p mut dyn KnownParts<ReachablePart>,
    open: Vec<OpenPart>,
    /// How many of the open ones are worth telling of.
    telling: usize,
    /// Run, word and bits of the blocks visited in them.
    visited: Vec<(usize, usize, u64)>,
}

struct OpenPart {
    is_told: bool,
    /// How much of `visited`, and how many large blocks and problems, there were before it.
    visited_before: usize,
    large_before: usize,
    problems_before: usize,
}

impl<'p> VisitingByParts<'p> {
    pub(super) fn new(known: &'p mut dyn KnownParts<ReachablePart>) -> Self {
        Self { known, open: Vec::with_capacity(32), telling: 0, visited: Vec::new() }
    }

    #[inline]
    pub(super) fn visited(&mut self, run: usize, word: usize, bits: u64) {
        if self.telling > 0 {
            self.visited.push((run, word, bits));
        }
    }
}

impl<D: Domain> BlockVisitor<'_, D> {
    /// Whether parts mean anything: some may be known.
    #[inline]
    pub fn goes_by_parts(&self) -> bool {
        self.by_parts.is_some()
    }

    /// Says that the part called `name` is next. If it is known what it comes to, that is taken for
    /// done, and the ends of the part are returned; otherwise it is to be visited, and
    /// [`BlockVisitor::end_part`] to be called behind it.
    #[inline]
    pub fn begin_part(&mut self, name: PartName) -> Option<PartEnds> {
        if self.by_parts.is_none() { None } else { self.pass_or_begin(name) }
    }

    /// Says that the part begun last has been visited. Without `ends` nothing is known of it.
    #[inline]
    pub fn end_part(&mut self, ends: Option<PartEnds>) {
        if self.by_parts.is_some() {
            self.tell_of_part(ends);
        }
    }

    #[inline(never)]
    fn pass_or_begin(&mut self, name: PartName) -> Option<PartEnds> {
        let by_parts = self.by_parts.as_mut()?;
        if let Some(part) = by_parts.known.known(name)
            && self.pass(&part)
        {
            self.by_parts.as_mut()?.known.passed(name);
            return Some(part.ends);
        }
        let by_parts = self.by_parts.as_mut()?;
        let is_told = by_parts.known.begin(name);
        by_parts.telling += usize::from(is_told);
        by_parts.open.push(OpenPart {
            is_told,
            visited_before: by_parts.visited.len(),
            large_before: self.large.len(),
            problems_before: self.problems.len(),
        });
        None
    }

    /// Takes the blocks of a part for visited, unless one of its slabs is another one now.
    fn pass(&mut self, part: &Rc<ReachablePart>) -> bool {
        let same = |slab: &PartOfSlab| self.map.run_that_is(slab.first, slab.descriptor).is_some();
        if !part.slabs.iter().all(same) {
            return false;
        }
        let mut begin = 0;
        for &PartOfSlab { first, words_end, descriptor } in &part.slabs {
            let words = part.words.get(begin..words_end as usize).unwrap_or_default();
            begin = words_end as usize;
            let (Some(run), Some(class)) =
                (self.map.run_that_is(first, descriptor), descriptor.class())
            else {
                continue;
            };
            let (_, marks) = self.slabs[run].get_or_insert_with(|| {
                (first, SlabMarks { descriptor, words: vec![0; class.bitmap_words()] })
            });
            for &(at, bits) in words {
                let at = at as usize;
                let word = &mut marks.words[at];
                let twice = *word & bits;
                *word |= bits;
                if twice != 0 {
                    let index = at * 64 + twice.trailing_zeros() as usize;
                    let offset = class.offset_of(first, index);
                    self.problems.push(ReachabilityProblem::ReachedTwice { offset });
                }
                if let Some(by_parts) = &mut self.by_parts {
                    by_parts.visited(run, at, bits);
                }
            }
        }
        true
    }

    #[inline(never)]
    fn tell_of_part(&mut self, ends: Option<PartEnds>) {
        let Some(by_parts) = &mut self.by_parts else { return };
        let Some(part) = by_parts.open.pop() else { return };
        let sound = part.is_told
            && part.large_before == self.large.len()
            && part.problems_before == self.problems.len()
            && by_parts.known.keeps();
        let told = ends.filter(|_| sound).map(|ends| {
            let mut visited = by_parts.visited[part.visited_before..].to_vec();
            visited.sort_unstable();
            let mut slabs: Vec<PartOfSlab> = Vec::new();
            let mut words: Vec<(u32, u64)> = Vec::new();
            let mut last = None;
            for (run, at, bits) in visited {
                if last.is_none_or(|(last, _)| last != run)
                    && let Some((first, descriptor)) = self.map.run(run)
                {
                    slabs.push(PartOfSlab { first, words_end: 0, descriptor });
                }
                match words.last_mut() {
                    Some((_, word)) if last == Some((run, at)) => *word |= bits,
                    _ => words.push((at as u32, bits)),
                }
                last = Some((run, at));
                if let Some(slab) = slabs.last_mut() {
                    slab.words_end = words.len() as u32;
                }
            }
            ReachablePart { ends, slabs: slabs.into(), words: words.into() }
        });
        by_parts.telling -= usize::from(part.is_told);
        if by_parts.telling == 0 {
            by_parts.visited.clear();
        }
        by_parts.known.end(told);
    }
}
