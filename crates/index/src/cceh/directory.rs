//! The directory: for each beginning of a hash, the segment that it leads to.

use lapis_pmem::{
    Blocks, Committed, Dirty, Domain, Durable, Flushed, LINE_BYTES, Link, Owned, PCell, Pool,
};

use super::segment::{Header, MAX_DEPTH, Prefix};
use super::{Cceh, damaged_directory, mutants};
use crate::hash_table::table::Table;
use crate::index::IndexError;
use crate::key::IndexKey;

/// Links have this number of bits; above them is a depth.
const DEPTH_SHIFT: u32 = 48;

/// The directory, whose size is told as how many bits of a hash choose an entry: its depth.
pub(super) type Directory = Table<PCell<u64>>;

/// An entry of the directory: the link of a segment, and above it the segment's depth: how many bits
/// the hashes of its keys have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference(pub(super) u64);

impl Reference {
    pub(super) fn new(link: Link<Header>, depth: u32) -> Self {
        Self(link.bits() | u64::from(depth) << DEPTH_SHIFT)
    }

    #[inline(always)]
    pub(super) fn link(self) -> Link<Header> {
        Link::from_bits(self.0)
    }

    #[inline(always)]
    pub(super) fn depth(self) -> u32 {
        (self.0 >> DEPTH_SHIFT) as u32
    }
}

/// The entries of a directory for a part of all hashes; none if there is no room for it.
pub(super) fn range<D: Domain>(
    directory: Directory,
    pool: &Pool<D>,
    prefix: Prefix,
) -> Option<&[PCell<u64>]> {
    let entries = directory.elements(pool)?;
    let count = 1usize << directory.log2().checked_sub(prefix.depth())?;
    entries.get(directory.index_of(prefix.start()) as usize..)?.get(..count)
}

/// A directory with these entries, as many as a power of two.
pub(super) fn compose<D: Domain>(
    pool: &Pool<D>,
    references: impl ExactSizeIterator<Item = Reference>,
) -> Result<Owned<'_, D, PCell<u64>, Dirty>, IndexError> {
    let bytes: Vec<[u8; 8]> = references.map(|reference| reference.0.to_ne_bytes()).collect();
    let mut directory = pool.allocate_with_tail::<PCell<u64>>((bytes.len() - 1) * 8)?;
    directory.store(pool.domain(), u64::from_ne_bytes(bytes[0]));
    directory.write_tail(0, bytes[1..].as_flattened());
    Ok(directory)
}

/// Replaces the words of neighbouring entries, and flushes each line once. None if there are none.
fn store_all<'a, D: Domain>(
    domain: &'a D,
    entries: &'a [PCell<u64>],
    word_of: impl Fn(usize) -> u64,
) -> Option<Flushed<'a>> {
    let mut all: Option<Flushed<'a>> = None;
    for (index, entry) in entries.iter().enumerate() {
        let _mutant = all.is_some().then(|| domain.omitting(mutants::ENTRIES_FLUSHED_IN_PART));
        let next = (&raw const *entry).wrapping_add(1);
        if next.addr().is_multiple_of(LINE_BYTES) || index + 1 == entries.len() {
            let line = entry.publish(domain, word_of(index)).flush();
            all = Some(match all {
                Some(all) => all.and(line),
                None => line,
            });
        } else {
            entry.store_ordered(domain, word_of(index));
        }
    }
    all
}

/// What a change of the directory comes to: the halves of a part of all hashes lead to segments of
/// their own, or the whole part to one.
///
/// In the index root, where it is I5's record:
///
/// ```text
///  words[1]  the first hash of the part
///  words[2]  the segment of the upper half, or null if there is one for both
///  words[3]  the segment of the lower half, or of both, and above it the depth of the segments; 0: none
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) part: Prefix,
    pub(super) lower: Link<Header>,
    pub(super) upper: Option<Link<Header>>,
}

impl Change {
    fn depth(&self) -> u32 {
        self.part.depth() + u32::from(self.upper.is_some())
    }

    /// The entry for a hash of the part.
    fn reference(&self, hash: u64) -> Reference {
        let link = match self.upper {
            Some(upper) if self.part.halves()[1].covers(hash) => upper,
            _ => self.lower,
        };
        Reference::new(link, self.depth())
    }

    /// The word for the entry so far behind the first of the part.
    fn word(&self, directory: Directory, index: usize) -> u64 {
        let step = 1u64.unbounded_shl(64u32.saturating_sub(directory.log2()));
        self.reference(self.part.start() + index as u64 * step).0
    }
}

/// The record in the index root.
const PART_WORD: usize = 1;
const UPPER_WORD: usize = 2;
const LOWER_WORD: usize = 3;

impl<D: Domain, K: IndexKey + ?Sized> Cceh<D, K> {
    /// Makes `change` certain: from here on a crash leads to its end (I5). `blocks` are what it makes
    /// reachable. The caller holds the lock for changes of the directory.
    pub(super) fn record<B: Blocks<Durable>>(&self, change: &Change, blocks: B) {
        let (domain, words) = (self.domain(), &self.root().words);
        // I5: they lie in one line and persist in this order (R2). The change recorded before is
        // durable.
        words[LOWER_WORD].store_ordered(domain, 0);
        words[PART_WORD].store_ordered(domain, change.part.start());
        words[UPPER_WORD].store_ordered(domain, change.upper.map_or(0, Link::bits));
        let word = Reference::new(change.lower, change.depth()).0;
        let _mutant = domain.omitting(mutants::UNRECORDED_CHANGE);
        let _: Committed = words[LOWER_WORD].publish_word(domain, blocks, |_| word).persist();
    }

    /// The record of the last change, if there has been one.
    pub(super) fn recorded(&self) -> Result<Option<Change>, IndexError> {
        let (domain, words) = (self.domain(), &self.root().words);
        let lower = Reference(words[LOWER_WORD].load(domain));
        if lower.0 == 0 {
            return Ok(None);
        }
        let upper = Link::from_bits(words[UPPER_WORD].load(domain));
        let upper = (!upper.is_null()).then_some(upper);
        let depth = lower.depth().wrapping_sub(u32::from(upper.is_some()));
        let start = words[PART_WORD].load(domain);
        let part = Prefix::of(start, depth);
        let links = [Some(lower.link()), upper];
        if (part.start(), part.depth()) != (start, depth)
            || depth >= MAX_DEPTH
            || links.into_iter().flatten().any(|link| self.segment(link).is_none())
        {
            let what = format!("I5: the record of a change has the word {:#x}", lower.0);
            return Err(IndexError::Damaged { what });
        }
        Ok(Some(Change { part, lower: lower.link(), upper }))
    }

    /// Whether the directory is as it is after `change`.
    pub(super) fn agrees(&self, change: &Change) -> Result<bool, IndexError> {
        let directory = self.directory();
        let entries = self.entries_of(directory, change)?;
        let mut words = entries.iter().map(|entry| entry.load(self.domain()));
        Ok((0..entries.len()).all(|index| words.next() == Some(change.word(directory, index))))
    }

    fn entries_of(
        &self,
        directory: Directory,
        change: &Change,
    ) -> Result<&[PCell<u64>], IndexError> {
        let entries = range(directory, &self.pool, change.part);
        entries.filter(|_| change.depth() <= directory.log2()).ok_or_else(|| IndexError::Damaged {
            what: "I5: the record of a change has no place in the directory".into(),
        })
    }

    /// Makes the directory what it is after `change`, which is recorded.
    pub(super) fn carry_out(&self, change: &Change) -> Result<Committed, IndexError> {
        let directory = self.directory();
        let entries = self.entries_of(directory, change)?;
        let domain = self.domain();
        let flushed = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_ENTRIES);
            store_all(domain, entries, |index| change.word(directory, index))
        };
        // Before another change is recorded. This thread fences before it does that.
        let flushed = flushed.ok_or_else(damaged_directory)?;
        Ok(flushed.fence_for_other_threads(domain))
    }

    /// Completes the change that a crash has cut short.
    pub(super) fn complete_change(&self) -> Result<(), IndexError> {
        if self.domain().commits(mutants::HALF_DONE_CHANGE) {
            return Ok(());
        }
        let is_complete = || {
            let _guard = self.pool.pin();
            self.recorded()?.map_or(Ok(true), |change| self.agrees(&change))
        };
        // Without the lock, words of several changes may have been read, which are none: only with it an error is one.
        if let Ok(true) = is_complete() {
            return Ok(());
        }
        // Another handle may be about to complete it, or may have made it.
        let _held = self.lock_structure();
        if let (false, Some(change)) = (is_complete()?, self.recorded()?) {
            self.domain().happens("a change is carried out when the table is opened");
            let _mutant = self.domain().omitting(mutants::UNFLUSHED_COMPLETION);
            let _: Committed = self.carry_out(&change)?;
        }
        Ok(())
    }

    /// Replaces the directory by one of twice or half as many entries. The caller holds the lock for
    /// changes of it.
    pub(super) fn resize_directory(&self, depth: u32) -> Result<(), IndexError> {
        let (pool, domain, old) = (&*self.pool, self.domain(), self.directory());
        let is_larger = depth > old.log2();
        let entries = old.elements(pool).ok_or_else(damaged_directory)?;
        let step = |index: usize| if is_larger { index >> 1 } else { index << 1 };
        let references = (0..1usize << depth).map(|at| Reference(entries[step(at)].load(domain)));
        let directory = compose(pool, references)?;
        let new = {
            let _mutant = domain.omitting(mutants::UNFLUSHED_DIRECTORY);
            pool.fence(directory.flush())
        };
        // I1: one word has the place and the size.
        let top = self.root().top.word();
        let word =
            |new: &Owned<'_, D, PCell<u64>, Durable>| Directory::new(new.link(), depth).bits();
        // Before the old one is used for something else, which this thread fences for.
        let committed = top.publish_word(domain, new, word).flush().fence_for_other_threads(domain);
        domain.happens(if is_larger {
            "a directory of twice the size"
        } else {
            "a directory of half the size"
        });
        pool.retire(old.link(), old.bytes(), committed, &pool.pin());
        Ok(())
    }
}
