//! Where the levels are, and where in them a key may be.

use lapis_pmem::{Domain, Link, PCell, Pool};

use super::LevelHash;
use crate::hash_table::bucket::Bucket;
use crate::hash_table::table::Table;
use crate::key::{IndexKey, place_hash_by};

/// Which of [`IndexRoot::words`](crate::root::IndexRoot::words) has the bottom level below a top level of
/// this size.
#[inline(always)]
pub(super) fn bottom_at(top_log2: u32) -> usize {
    1 + (top_log2 & 1) as usize
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    #[inline(always)]
    pub(super) fn bottom_word(&self, top_log2: u32) -> &PCell<u64> {
        &self.root().words[bottom_at(top_log2)]
    }

    #[inline(always)]
    pub(super) fn hashes_of(&self, key: &K) -> Hashes {
        Hashes::of(key, self.seed)
    }
}

/// The two hashes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashes(pub(super) [u64; 2]);

impl Hashes {
    /// In a table of this seed.
    #[inline(always)]
    pub(super) fn of<K: IndexKey + ?Sized>(key: &K, seed: u64) -> Self {
        let hash = place_hash_by(key, seed);
        Self([hash, hash.rotate_left(32)])
    }
}

/// Both levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Levels {
    pub(super) top: Table<Bucket>,
    pub(super) bottom: Table<Bucket>,
}

impl Levels {
    /// Top and bottom, in the order in which room is looked for.
    #[inline(always)]
    pub(super) fn both(self) -> [Table<Bucket>; 2] {
        [self.top, self.bottom]
    }

    /// The group of a hash. By the top level alone: its locks are looked at before it is known whether the levels belong
    /// together, and there is one for each of these.
    #[inline(always)]
    pub(super) fn group_of(self, hash: u64) -> u64 {
        self.top.index_of(hash) >> 1
    }

    /// The bucket with the lock of a group.
    #[inline(always)]
    pub(super) fn leader(self, group: u64) -> Link<Bucket> {
        self.top.at(group << 1)
    }

    /// The buckets that a key with these hashes may be in, those of the first hash at even places. Some
    /// may be the same.
    #[inline(always)]
    pub(super) fn candidates(self, hashes: Hashes) -> [Link<Bucket>; 4] {
        let [first, second] = hashes.0;
        [(self.top, first), (self.top, second), (self.bottom, first), (self.bottom, second)]
            .map(|(level, hash)| level.at(level.index_of(hash)))
    }

    /// [`Levels::candidates`], each once.
    pub(super) fn places(self, hashes: Hashes) -> impl Iterator<Item = Link<Bucket>> {
        let all = self.candidates(hashes);
        (0..all.len()).filter(move |&at| !all[..at].contains(&all[at])).map(move |at| all[at])
    }

    /// The group that the bucket at `link` is in, if it is in one of these levels.
    pub(super) fn group_at(self, link: Link<Bucket>) -> Option<u64> {
        self.both().into_iter().find_map(|level| {
            let distance = link.offset().checked_sub(level.link().offset())?;
            let number = distance / level.stride();
            (distance.is_multiple_of(level.stride()) && number < level.len())
                .then(|| number >> (level.log2() - self.bottom.log2()))
        })
    }

    /// Whether both are inside the pool and fit each other.
    pub(super) fn are_inside<D: Domain>(self, pool: &Pool<D>) -> bool {
        self.top.log2() == self.bottom.log2().wrapping_add(1)
            && self.both().into_iter().all(|level| level.is_inside(pool))
    }
}
