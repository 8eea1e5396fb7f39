//! Segments: 16 KiB in which a key has sixteen slots to be in, and the part of all hashes that such a
//! segment is for.

use lapis_pmem::{
    AllocError, Domain, GenerationLock, InFlight, LINE_BYTES, Link, LockWord, Owned, PCell, Pool,
    persistent,
};

use super::mutants;
use crate::key::{IndexKey, KEY_OF_HASH_ZERO, place_hash_by};
use crate::node_size::NodeSizes;

/// Entries in a line.
pub(super) const SLOTS: usize = 4;
/// Lines in which a key may be: its home and those behind it.
pub(super) const WINDOW: usize = 4;
/// Segments are at most so many halvings of all hashes away from the whole.
pub(super) const MAX_DEPTH: u32 = 32;

/// The sizes of segments. The smallest has a window's lines behind its header.
pub(super) const SEGMENT_SIZES: NodeSizes = NodeSizes {
    names: ["segment", "segments"],
    smallest_bytes: LINE_BYTES * (1 + WINDOW),
    largest_bytes: 16 << 10,
    default_bytes: 16 << 10,
};

persistent! {
    /// The first line of a segment.
    pub(super) struct Header: 64 {
        pub(super) lock: GenerationLock,
        /// The smallest hash that the segment is for. It never changes.
        pub(super) start: PCell<u64>,
        /// Removals until its entries are counted. A hint, which is not flushed.
        pub(super) until_counted: PCell<u64>,
        reserved: [PCell<u64>; 5],
    }
}

persistent! {
    /// A slot: a key word and a value.
    pub(super) struct Entry: 16 {
        pub(super) key: PCell<u64>,
        pub(super) value: PCell<u64>,
    }
}

persistent! {
    /// A line of slots.
    pub(super) struct Line: 64 {
        pub(super) entries: [Entry; 4],
    }
}

const _: () = {
    assert!(size_of::<Header>() == LINE_BYTES && size_of::<Line>() == LINE_BYTES);
    assert!(size_of::<Entry>() * SLOTS == LINE_BYTES);
};

/// The hashes that begin with certain bits: `depth` of them, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    start: u64,
    depth: u32,
}

impl Prefix {
    /// The one of this depth that `hash` is in. A depth that cannot be is taken for the nearest.
    #[inline(always)]
    pub(super) fn of(hash: u64, depth: u32) -> Self {
        let depth = depth.clamp(1, MAX_DEPTH);
        Self { start: hash & !(u64::MAX >> depth), depth }
    }

    pub(super) fn start(self) -> u64 {
        self.start
    }

    pub(super) fn depth(self) -> u32 {
        self.depth
    }

    /// The first hash behind it; none if it is the last.
    pub(super) fn end(self) -> Option<u64> {
        self.start.checked_add(1 << (64 - self.depth))
    }

    #[inline(always)]
    pub(super) fn covers(self, hash: u64) -> bool {
        (hash ^ self.start) >> (64 - self.depth) == 0
    }

    /// Its halves.
    pub(super) fn halves(self) -> [Self; 2] {
        let depth = self.depth + 1;
        [Self { start: self.start, depth }, Self { start: self.start | 1 << (64 - depth), depth }]
    }

    /// The other half of what this is a half of.
    pub(super) fn buddy(self) -> Self {
        Self { start: self.start ^ 1 << (64 - self.depth), depth: self.depth }
    }

    /// What this is a half of; none if that is everything.
    pub(super) fn parent(self) -> Option<Self> {
        (self.depth > 1).then(|| Self::of(self.start, self.depth - 1))
    }

    /// What is in a free slot: a key word that does not count here.
    #[inline(always)]
    pub(super) fn vacant<K: IndexKey + ?Sized>(self) -> u64 {
        vacant::<K>(self.start)
    }
}

/// A word for the free slots among hashes that begin as this one does: no key of theirs. The hash of
/// the integer zero begins with a one. No word of a byte string is zero.
#[inline(always)]
fn vacant<K: IndexKey + ?Sized>(hash: u64) -> u64 {
    if K::INLINE && hash >> 63 == 1 { KEY_OF_HASH_ZERO } else { 0 }
}

/// A key word for which there is no key.
#[derive(Debug)]
pub(super) struct NoKey;

/// The hash of a key word's key if it counts among these hashes (I3).
#[inline(always)]
pub(super) fn hash_of_word<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    prefix: Prefix,
    word: u64,
    seed: u64,
) -> Result<Option<u64>, NoKey> {
    if !K::INLINE && word == 0 {
        return Ok(None);
    }
    let hash = K::with_word(pool, word, |key| place_hash_by(key, seed)).ok_or(NoKey)?;
    Ok((!K::INLINE || prefix.covers(hash)).then_some(hash))
}

/// A segment in the pool.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) link: Link<Header>,
    pub(super) header: &'a Header,
    pub(super) lines: &'a [Line],
    /// By which the hashes of its keys are.
    seed: u64,
}

impl<'a> Segment<'a> {
    /// The segment at `link`, if there can be one of so many lines behind the header.
    #[inline(always)]
    pub(super) fn at<D: Domain>(
        pool: &'a Pool<D>,
        link: Link<Header>,
        lines: usize,
        seed: u64,
    ) -> Option<Self> {
        let header = pool.try_at(link)?;
        let first = Link::from_bits(link.offset() + LINE_BYTES as u64);
        Some(Self { link, header, lines: pool.try_slice(first, lines)?, seed })
    }

    /// The line that a hash is at home in.
    #[inline(always)]
    pub(super) fn home(self, hash: u64) -> usize {
        home(hash, self.lines.len())
    }

    /// The lines in which a key of this hash may be.
    #[inline(always)]
    pub(super) fn window(self, hash: u64) -> impl Iterator<Item = &'a Line> {
        let home = self.home(hash);
        (0..WINDOW).map(move |step| &self.lines[step_from(home, step, self.lines.len())])
    }

    /// The slot with this key, if it has one. `tag` is the key's tag.
    #[inline(always)]
    pub(super) fn find<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Pool<D>,
        hash: u64,
        key: &K,
        tag: u64,
    ) -> Option<&'a Entry> {
        let domain = pool.domain();
        for line in self.window(hash) {
            if K::INLINE {
                // Without branches on the keys of a line, which no processor could predict.
                let mut matching = 0u8;
                for (slot, entry) in line.entries.iter().enumerate() {
                    let equal = key.eq_word(pool, tag, entry.key.load_acquire(domain));
                    matching |= u8::from(equal) << slot;
                }
                if matching != 0 {
                    return Some(&line.entries[matching.trailing_zeros() as usize % SLOTS]);
                }
            } else {
                let found = line
                    .entries
                    .iter()
                    .find(|entry| key.eq_word(pool, tag, entry.key.load_acquire(domain)));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The first slot of the window that is free. For the holder of the lock.
    #[inline(always)]
    pub(super) fn free_slot<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Pool<D>,
        prefix: Prefix,
        hash: u64,
    ) -> Option<&'a Entry> {
        self.window(hash).flat_map(|line| &line.entries).find(|entry| {
            let word = entry.key.load(pool.domain());
            if K::INLINE {
                !matches!(hash_of_word::<D, K>(pool, prefix, word, self.seed), Ok(Some(_)))
            } else {
                word == 0
            }
        })
    }

    /// The entries that count: hash, key word and value. For the holder of the lock.
    pub(super) fn entries<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &'a Pool<D>,
        prefix: Prefix,
    ) -> impl Iterator<Item = Result<(u64, u64, u64), NoKey>> {
        let domain = pool.domain();
        self.lines.iter().flat_map(|line| &line.entries).filter_map(move |entry| {
            let word = entry.key.load(domain);
            let hash = hash_of_word::<D, K>(pool, prefix, word, self.seed);
            hash.map(|hash| hash.map(|hash| (hash, word, entry.value.load(domain)))).transpose()
        })
    }

    /// A segment for one half of these hashes, with this one's entries where they are here.
    pub(super) fn part<D: Domain, K: IndexKey + ?Sized>(
        self,
        pool: &Pool<D>,
        prefix: Prefix,
        half: Prefix,
    ) -> Result<Image, NoKey> {
        let domain = pool.domain();
        let mut image = Image::vacant::<K>(half, self.lines.len());
        for (line, slots) in self.lines.iter().zip(&mut image.lines) {
            for (entry, slot) in line.entries.iter().zip(slots) {
                let word = entry.key.load(domain);
                let hash = hash_of_word::<D, K>(pool, prefix, word, self.seed)?;
                if hash.is_some_and(|hash| half.covers(hash)) {
                    *slot = (word, entry.value.load(domain));
                }
            }
        }
        Ok(image)
    }
}

#[inline(always)]
fn home(hash: u64, lines: usize) -> usize {
    // The lower bits, for the upper ones are alike in a segment.
    (((hash & 0xFFFF_FFFF) * lines as u64) >> 32) as usize
}

#[inline(always)]
fn step_from(home: usize, step: usize, lines: usize) -> usize {
    let at = home + step;
    if at >= lines { at - lines } else { at }
}

/// A segment being composed outside of the pool.
pub(super) struct Image {
    prefix: Prefix,
    vacant: u64,
    lines: Vec<[(u64, u64); SLOTS]>,
}

impl Image {
    /// With nothing in it.
    pub(super) fn vacant<K: IndexKey + ?Sized>(prefix: Prefix, lines: usize) -> Self {
        let vacant = prefix.vacant::<K>();
        Self { prefix, vacant, lines: vec![[(vacant, 0); SLOTS]; lines] }
    }

    /// Adds an entry. Returns whether its window had room.
    pub(super) fn add(&mut self, hash: u64, word: u64, value: u64) -> bool {
        let (home, count) = (home(hash, self.lines.len()), self.lines.len());
        for step in 0..WINDOW {
            let line = &mut self.lines[step_from(home, step, count)];
            // I3: no entry of this segment has the word of a free slot.
            if let Some(slot) = line.iter_mut().find(|slot| slot.0 == self.vacant) {
                *slot = (word, value);
                return true;
            }
        }
        false
    }

    /// Removals until the entries of what is built are to be counted.
    pub(super) fn until_counted(&self) -> u64 {
        let used = self.lines.as_flattened().iter().filter(|slot| slot.0 != self.vacant).count();
        until_counted(used, self.lines.len())
    }

    /// Writes it past the caches, for the caller's fence.
    #[track_caller]
    pub(super) fn build<'p, D: Domain>(
        &self,
        pool: &'p Pool<D>,
        until_counted: u64,
    ) -> Result<Owned<'p, D, Header, InFlight>, AllocError> {
        let domain = pool.domain();
        let tail_bytes = self.lines.len() * LINE_BYTES;
        let mut segment = pool.allocate_with_tail::<Header>(tail_bytes)?;
        segment.lock.word().store(domain, LockWord::free(0).bits());
        segment.start.store(domain, self.prefix.start());
        segment.until_counted.store(domain, until_counted);
        segment.reserved.iter().for_each(|word| word.store(domain, 0));
        let mut bytes = Vec::with_capacity(tail_bytes);
        for &(word, value) in self.lines.as_flattened() {
            bytes.extend_from_slice([word, value].map(u64::to_ne_bytes).as_flattened());
        }
        let _mutant = domain.omitting(mutants::UNFLUSHED_SEGMENT);
        let written = match domain.commits(mutants::SEGMENT_FLUSHED_IN_PART) {
            true => bytes.len().min(1024),
            false => bytes.len(),
        };
        segment.write_tail_nontemporal(0, &bytes[..written]);
        if written < bytes.len() {
            segment.write_tail(written, &bytes[written..]);
        }
        Ok(segment.flush_head())
    }
}

/// A segment with so many entries or fewer might be merged with its buddy, if that has no more.
pub(super) fn few_entries(lines: usize) -> usize {
    lines * SLOTS / 4
}

/// How many removals after a count of the entries they are counted again: when they may have become
/// few, or, if they are few already and the buddy's are not, when half of them are gone.
pub(super) fn until_counted(entries: usize, lines: usize) -> u64 {
    let few = few_entries(lines);
    if entries > few { (entries - few) as u64 } else { (entries / 2) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::place_hash;

    #[test]
    fn what_is_in_free_slots_is_no_key_of_their_segment() {
        assert_eq!(place_hash(&KEY_OF_HASH_ZERO), 0);
        for hash in [0, 1 << 63, u64::MAX, u64::MAX >> 1, 12345 << 40] {
            let prefix = Prefix::of(hash, 1);
            assert!(!prefix.covers(place_hash(&prefix.vacant::<u64>())), "{hash:#x}");
            assert_eq!(prefix.vacant::<[u8]>(), 0);
        }
    }

    #[test]
    fn a_prefix_is_its_halves_and_ends_where_the_next_begins() {
        let prefix = Prefix::of(0xABCD << 48, 7);
        let [lower, upper] = prefix.halves();
        assert_eq!((lower.start(), lower.end()), (prefix.start(), Some(upper.start())));
        assert_eq!(upper.end(), prefix.end());
        assert_eq!((lower.buddy(), upper.buddy()), (upper, lower));
        assert_eq!((lower.parent(), upper.parent()), (Some(prefix), Some(prefix)));
        assert_eq!(Prefix::of(u64::MAX, 1).end(), None);
        assert_eq!(Prefix::of(0, 1).parent(), None);
    }
}
