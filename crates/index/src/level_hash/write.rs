//! Insert, update and remove, under the locks of a key's groups.

use lapis_pmem::{Domain, Durable, LockWait, Visible};

use super::levels::{Hashes, Levels};
use super::locks::Held;
use super::movement::Room;
use super::read::Place;
use super::{LevelHash, mutants};
use crate::hash_table::bucket::{Bucket, FULL};
use crate::index::{Change, IndexError, Outcome};
use crate::key::{IndexKey, KeyWord};

/// Why a change was not made.
enum Unmade {
    /// It takes the lock of the key's second group as well.
    WithBoth,
    /// Somebody else is moving an entry, or has a lock that a movement takes.
    Busy,
    /// Neither a free slot nor an entry that can be moved: the table is to grow.
    Full(Levels),
    Failed(IndexError),
}

impl From<IndexError> for Unmade {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let hashes = self.hashes_of(key);
        let (mut both, mut wait) = (false, LockWait::default());
        loop {
            let held = self.lock(hashes, both);
            match self.change_held(key, change, hashes, held) {
                Ok(outcome) => return Ok(outcome),
                Err(Unmade::WithBoth) => both = true,
                Err(Unmade::Busy) => wait.once(self.domain()),
                Err(Unmade::Full(levels)) => self.grow(levels)?,
                Err(Unmade::Failed(error)) => return Err(error),
            }
        }
    }

    /// Makes `change` under the lock of the key's first group, or of both.
    #[inline(always)]
    fn change_held<'a>(
        &'a self,
        key: &K,
        change: Change,
        hashes: Hashes,
        mut held: Held<'a, D>,
    ) -> Result<Outcome, Unmade> {
        let (domain, levels) = (self.domain(), held.levels);
        let _guard = (!K::INLINE).then(|| self.pool.pin());
        let Some(place) = self.find(levels, hashes, key, key.tag()) else {
            return match change {
                Change::Insert(value) | Change::Put(value) => self.add(key, value, hashes, held),
                Change::Update(_) | Change::Remove => {
                    held.leave_unchanged();
                    Ok(Outcome::unchanged(None))
                }
            };
        };
        let Place { bucket, slot, hash } = place;
        let entry = &bucket.entries[slot];
        let previous = Some(entry.value.load(domain));
        if let Change::Insert(_) = change {
            held.leave_unchanged();
            return Ok(Outcome::unchanged(previous));
        }
        if !held.covers(hash) && !self.try_lock_second(&mut held) {
            held.leave_unchanged();
            return Err(Unmade::WithBoth);
        }
        let committed = match change {
            Change::Insert(value) | Change::Put(value) | Change::Update(value) => {
                held.persist(entry.value.publish(domain, value))
            }
            Change::Remove => {
                let word = entry.key.load(domain);
                let left = bucket.occupancy(domain) & !(1 << slot);
                let committed = {
                    let _mutant = domain.omitting(mutants::UNFLUSHED_REMOVE);
                    held.persist(bucket.publish_occupancy(domain, None, left))
                };
                if !K::INLINE {
                    K::retire_word(&self.pool, word, committed, &self.pool.pin());
                }
                committed
            }
        };
        Ok(Outcome { previous, committed })
    }

    /// Adds an entry that is absent, if there is room or a movement makes some.
    #[inline(always)]
    fn add<'a>(
        &'a self,
        key: &K,
        value: u64,
        hashes: Hashes,
        mut held: Held<'a, D>,
    ) -> Result<Outcome, Unmade> {
        let mut free = self.free_slot(held.levels, hashes);
        // Without room in its four buckets it takes both locks to make some.
        let is_covered = held.covers(free.as_ref().map_or(1, |place| place.hash));
        if !is_covered && !self.domain().commits(mutants::SECOND_UNLOCKED) {
            if !self.try_lock_second(&mut held) {
                held.leave_unchanged();
                return Err(Unmade::WithBoth);
            }
            // What was free may have been taken meanwhile.
            free = self.free_slot(held.levels, hashes);
        }
        // I2: the key is durable before its bit can be.
        let word = |pool| Ok::<_, IndexError>(key.make_word(pool)?.fence_if(pool, false));
        let committed = match free {
            Some(place) => {
                let word = word(&self.pool)?;
                held.persist(self.fill(place.bucket, place.slot, word, value))
            }
            None => match self.find_movable(hashes, &held) {
                Room::By(movement) => {
                    let word = word(&self.pool)?;
                    let room = self.make_room(&movement, &held);
                    let (bucket, slot) = room.ok_or(Unmade::Full(held.levels))?;
                    let visible = self.fill(bucket, slot, word, value);
                    // I3: the lock for moving is given back after this.
                    let early = self.domain().commits(mutants::MOVING_UNLOCKED_EARLY);
                    let _moving = (!early).then_some(movement);
                    held.persist(visible)
                }
                Room::Busy => return Err(Unmade::Busy),
                Room::None => return Err(Unmade::Full(held.levels)),
            },
        };
        Ok(Outcome { previous: None, committed })
    }

    /// A free slot in the emptier one of a key's two buckets of the top level, else of the bottom level.
    #[inline(always)]
    pub(super) fn free_slot(&self, levels: Levels, hashes: Hashes) -> Option<Place<'_>> {
        let domain = self.domain();
        let buckets = levels.candidates(hashes).map(|link| self.bucket(link));
        buckets.as_chunks::<2>().0.iter().find_map(|pair| {
            let used = pair.map(|bucket| bucket.occupancy(domain).count_ones());
            let hash = usize::from(used[1] < used[0]);
            let slot = pair[hash].free_slot(domain)?;
            Some(Place { bucket: pair[hash], slot, hash })
        })
    }

    /// Puts an entry into a slot that is free.
    #[inline(always)]
    pub(super) fn fill<'a>(
        &'a self,
        bucket: &'a Bucket,
        slot: usize,
        word: KeyWord<'_, D, Durable>,
        value: u64,
    ) -> Visible<'a, D> {
        let domain = self.domain();
        let occupancy = (bucket.occupancy(domain) | 1 << slot) & FULL;
        if domain.commits(mutants::TOKEN_BEFORE_SLOT) {
            bucket.set_occupancy(domain, occupancy);
        }
        bucket.fill(domain, slot, word.bits(), value);
        bucket.publish_occupancy(domain, Some(word), occupancy)
    }
}
