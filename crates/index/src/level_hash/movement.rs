//! Moving an entry to its other bucket of the same level, so that another finds room.

use lapis_pmem::{Committed, Domain, Link};

use super::levels::{Hashes, Levels};
use super::locks::Held;
use super::{LevelHash, MOVED_WORD, mutants};
use crate::hash_table::bucket::{Bucket, SLOTS};
use crate::hash_table::locks::HeldLock;
use crate::key::{IndexKey, KeyWord};

/// The number of a slot lies in these bits of its bucket's link.
const SLOT_MASK: u64 = 3;

/// Whether a movement makes room.
pub(super) enum Room<'a, D: Domain> {
    By(Movement<'a, D>),
    /// It might, but a lock is taken.
    Busy,
    None,
}

/// An entry that can be moved, with the locks that takes beside those of who needs the room.
pub(super) struct Movement<'a, D: Domain> {
    pub(super) source: (Link<Bucket>, usize),
    pub(super) target: (&'a Bucket, usize),
    group: Option<HeldLock<'a, D>>,
    _structure: HeldLock<'a, D>,
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    /// An entry of the buckets of these hashes, which are full and all locked, that has room elsewhere on
    /// its level.
    #[cold]
    pub(super) fn find_movable(&self, hashes: Hashes, held: &Held<'_, D>) -> Room<'_, D> {
        let (domain, levels) = (self.domain(), held.levels);
        // There is one movement at a time (I3). Whoever waited here with groups locked would stop growing.
        let Some(structure) = self.try_lock_structure() else { return Room::Busy };
        let mut is_busy = false;
        let buckets =
            levels.both().into_iter().flat_map(|level| hashes.0.map(|hash| (level, hash)));
        for (level, hash) in buckets {
            let link = level.at(level.index_of(hash));
            for slot in 0..SLOTS {
                let word = self.bucket(link).entries[slot].key.load(domain);
                let elsewhere = |of: &u64| level.at(level.index_of(*of)) != link;
                let other = K::with_word(&self.pool, word, |key| {
                    self.hashes_of(key).0.into_iter().find(elsewhere)
                });
                let Some(other) = other.flatten() else { continue };
                let target = self.bucket(level.at(level.index_of(other)));
                if target.free_slot(domain).is_none() {
                    continue;
                }
                let group = levels.group_of(other);
                let lock = match held.covers_group(group) {
                    true => None,
                    false => self.try_lock_group(levels, group),
                };
                if lock.is_none() && !held.covers_group(group) {
                    is_busy = true;
                    continue;
                }
                // It may have been filled before it was locked.
                let Some(free) = target.free_slot(domain) else { continue };
                return Room::By(Movement {
                    source: (link, slot),
                    target: (target, free),
                    group: lock,
                    _structure: structure,
                });
            }
        }
        if is_busy { Room::Busy } else { Room::None }
    }

    /// Moves the entry. Returns its slot, of which the bit is clear, and that is to be filled next; none if
    /// an iteration must find what it moves past.
    #[cold]
    pub(super) fn make_room(
        &self,
        movement: &Movement<'_, D>,
        held: &Held<'_, D>,
    ) -> Option<(&Bucket, usize)> {
        let domain = self.domain();
        let (link, slot) = movement.source;
        let source = self.bucket(link);
        // I3: from here on it is known which key may be twice. By a locked instruction, for iterations. No
        // other writes this word while the lock for moving is held.
        let moved = &self.root().words[MOVED_WORD];
        let name = link.bits() | slot as u64;
        let Ok(visible) = moved.publish_if(domain, moved.load(domain), name) else { return None };
        {
            let _mutant = domain.omitting(mutants::UNRECORDED_MOVEMENT);
            let _: Committed = visible.persist();
        }
        if self.iterations().get() > 0 {
            return None;
        }
        domain.happens("an entry is moved to its other bucket");
        let entry = &source.entries[slot];
        let (word, value) = (entry.key.load(domain), entry.value.load(domain));
        let (target, free) = movement.target;
        {
            let _mutant = domain.omitting(mutants::MOVED_BEFORE_COPIED);
            let _: Committed = self.fill(target, free, KeyWord::again(word), value).persist();
        }
        // Readers that have looked into the one bucket before, and would look into the other now, begin
        // anew.
        held.count_section();
        movement.group.iter().for_each(HeldLock::count_section);
        // I3: it is in the other bucket, durably. This persists no later than what is put here (R2).
        source.set_occupancy(domain, source.occupancy(domain) & !(1 << slot));
        domain.order_in_line(source.lock.word(), &entry.value);
        Some((source, slot))
    }

    /// Ends a movement that a crash has cut short: what has been copied goes from where it was (I3).
    pub(super) fn complete_movement(&self) {
        let domain = self.domain();
        let _guard = self.pool.pin();
        let is_twice = self.twice(self.current_levels()).is_some();
        if domain.commits(mutants::HALF_DONE_MOVEMENT) || !is_twice {
            return;
        }
        // Another handle may be about to do the same, or be moving it.
        let _structure = self.lock_structure();
        let Some((_, _, hashes)) = self.twice(self.levels()) else { return };
        // Others may change what else is in its buckets. They are waited for as growing waits.
        let held = self.lock(hashes, true);
        match self.twice(held.levels) {
            Some((source, slot, same)) if same == hashes => {
                domain.happens("a movement is completed when the table is opened");
                let left = source.occupancy(domain) & !(1 << slot);
                let _: Committed = held.persist(source.publish_occupancy(domain, None, left));
                // I3: once it is there once. Should this persist no sooner than another movement, it is true
                // until then.
                self.root().words[MOVED_WORD].store_ordered(domain, 0);
            }
            // Its key has been removed meanwhile. What is in the slot now was not moved: it is there once.
            _ => held.leave_unchanged(),
        }
    }

    /// The slot that the root names, if there is an entry in it, and its key word.
    pub(super) fn moved_slot(&self, levels: Levels) -> Option<((Link<Bucket>, usize), u64)> {
        let name = self.root().words[MOVED_WORD].load_acquire(self.domain());
        let (link, slot) = (Link::from_bits(name & !SLOT_MASK), (name & SLOT_MASK) as usize);
        if slot >= SLOTS || levels.group_at(link).is_none() {
            return None;
        }
        // The bit first: a key that was there at any time since the caller pinned is not freed.
        let bucket = self.bucket(link);
        let is_occupied = bucket.occupancy(self.domain()) & 1 << slot != 0;
        is_occupied.then(|| ((link, slot), bucket.entries[slot].key.load_acquire(self.domain())))
    }

    /// The slot that the root names, if its key is elsewhere too, and the key's hashes.
    fn twice(&self, levels: Levels) -> Option<(&Bucket, usize, Hashes)> {
        let ((link, slot), word) = self.moved_slot(levels)?;
        let hashes = K::with_word(&self.pool, word, |key| {
            let (tag, hashes) = (key.tag(), self.hashes_of(key));
            let is_elsewhere = levels.places(hashes).any(|other| {
                other != link && self.bucket(other).find(&self.pool, key, tag).is_some()
            });
            is_elsewhere.then_some(hashes)
        });
        Some((self.bucket(link), slot, hashes.flatten()?))
    }
}
