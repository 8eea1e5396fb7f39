//! The locks of a key's groups.

use lapis_pmem::{Committed, Domain, GenerationLock, LockWait, Visible};

use super::LevelHash;
use super::levels::{Hashes, Levels};
use crate::hash_table::bucket::FROZEN;
use crate::hash_table::locks::{HeldLock, WHOLE_PAYLOAD, is_publishing};
use crate::key::IndexKey;

/// The groups of a key, of which the first is locked, and the second if it has to be. Dropping it counts
/// one more section of each and lets go.
#[must_use]
pub(super) struct Held<'a, D: Domain> {
    pub(super) levels: Levels,
    groups: [u64; 2],
    first: HeldLock<'a, D>,
    second: Option<HeldLock<'a, D>>,
}

impl<D: Domain> Held<'_, D> {
    /// Whether the key's group by this one of its hashes is locked.
    #[inline(always)]
    pub(super) fn covers(&self, hash: usize) -> bool {
        hash == 0 || self.covers_group(self.groups[1])
    }

    pub(super) fn covers_group(&self, group: u64) -> bool {
        group == self.groups[0] || (self.second.is_some() && group == self.groups[1])
    }

    /// Counts a section of each and goes on.
    pub(super) fn count_section(&self) {
        self.first.count_section();
        self.second.iter().for_each(HeldLock::count_section);
    }

    /// Makes the last change durable, counts one more section of each and lets go.
    #[inline(always)]
    #[track_caller]
    pub(super) fn persist(self, change: Visible<'_, D>) -> Committed {
        let Some(second) = self.second else { return self.first.persist(change) };
        let words = [self.first.word(), second.word()];
        let committed = change.persist();
        self.first.leave_from(words[0]);
        second.leave_from(words[1]);
        committed
    }

    /// Lets go without counting: nothing was changed.
    #[inline(always)]
    pub(super) fn leave_unchanged(self) {
        self.first.leave_unchanged();
        if let Some(second) = self.second {
            second.leave_unchanged();
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> LevelHash<D, K> {
    #[inline(always)]
    fn leader(&self, levels: Levels, group: u64) -> &GenerationLock {
        &self.bucket(levels.leader(group)).lock
    }

    /// Locks the first group of a key, or both.
    #[inline(always)]
    pub(super) fn lock(&self, hashes: Hashes, both: bool) -> Held<'_, D> {
        // A word in a table that has been freed must not be written to, not even to be locked.
        let _guard = self.pool.pin();
        match self.try_lock(hashes, both) {
            Some(held) => held,
            None => self.lock_contended(hashes, both),
        }
    }

    /// Looks at the table anew each time: another may have taken its place, and the lock that was waited
    /// for will never be free.
    #[cold]
    fn lock_contended(&self, hashes: Hashes, both: bool) -> Held<'_, D> {
        let mut wait = LockWait::default();
        loop {
            wait.once(self.domain());
            if let Some(held) = self.try_lock(hashes, both) {
                return held;
            }
        }
    }

    #[inline(always)]
    fn try_lock(&self, hashes: Hashes, both: bool) -> Option<Held<'_, D>> {
        let (domain, generation, levels) = (self.domain(), self.generation, self.levels());
        self.prefetch_buckets(levels, hashes);
        // I1: nothing is put into a table that a power cut could take away again. This is read after
        // `top`, and `PUBLISHING` was stored before it.
        if is_publishing(self.structure(), domain, generation) {
            return None;
        }
        let groups = hashes.0.map(|hash| levels.group_of(hash));
        let try_take = |group| self.try_lock_group(levels, group);
        if !both || groups[0] == groups[1] {
            return Some(Held { levels, groups, first: try_take(groups[0])?, second: None });
        }
        // In ascending order, as growing takes them. The table is current, and stays as long as the lower
        // one is held.
        let lower = try_take(groups[0].min(groups[1]))?;
        let higher = self.leader(levels, groups[0].max(groups[1]));
        let higher = HeldLock::take_cleared(higher, domain, generation, FROZEN);
        let [first, second] = if groups[0] < groups[1] { [lower, higher] } else { [higher, lower] };
        Some(Held { levels, groups, first, second: Some(second) })
    }

    /// Locks a group of the current table, if it is free.
    #[inline(always)]
    pub(super) fn try_lock_group(&self, levels: Levels, group: u64) -> Option<HeldLock<'_, D>> {
        let lock = self.leader(levels, group);
        HeldLock::try_take_cleared(lock, self.domain(), self.generation, FROZEN)
    }

    /// Locks the second group as well, if it is free. Returns whether it did.
    #[inline(always)]
    pub(super) fn try_lock_second<'a>(&'a self, held: &mut Held<'a, D>) -> bool {
        held.second = self.try_lock_group(held.levels, held.groups[1]);
        held.second.is_some()
    }

    /// Takes the lock for moving and growing, if it is free.
    pub(super) fn try_lock_structure(&self) -> Option<HeldLock<'_, D>> {
        let (structure, domain) = (self.structure(), self.domain());
        HeldLock::try_take_cleared(structure, domain, self.generation, WHOLE_PAYLOAD)
    }

    /// Waits for the lock for moving and growing.
    pub(super) fn lock_structure(&self) -> HeldLock<'_, D> {
        let mut wait = LockWait::default();
        loop {
            match self.try_lock_structure() {
                Some(held) => return held,
                None => wait.once(self.domain()),
            }
        }
    }
}
