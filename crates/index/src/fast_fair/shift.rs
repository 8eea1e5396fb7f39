//! The writes within one node, all under its lock: shifts (FAST), truncation, and the repair of
//! what a crash left.

use lapis_pmem::{Committed, Domain, LockWord};

use super::mutants;
use super::node::{LEFTWARD, Node, RIGHTWARD, begins_line, straddles};

impl Node<'_> {
    /// Tells lock-free readers which way entries are about to move, before any of them does. The word of
    /// the lock then, which its holder gives back from: its line may be flushed before that.
    fn face<D: Domain>(&self, domain: &D, direction: u8) -> LockWord {
        let word = self.header.lock.read(domain);
        match word.payload() == direction {
            true => word,
            false => self.header.lock.set_payload(domain, direction),
        }
    }

    fn set_hidden<D: Domain>(&self, domain: &D, hidden: bool) {
        let word = self.sibling(domain).with_hidden(hidden);
        self.header.sibling.store_ordered(domain, word.0);
    }

    fn set<D: Domain>(&self, domain: &D, slot: usize, key: u64, value: u64) {
        let entry = &self.slots[slot];
        entry.value.store_ordered(domain, value);
        entry.key.store_ordered(domain, key);
    }

    /// Puts an entry at `position` of a clean node with `count < capacity` entries.
    ///
    /// `unfenced`: the key's block has been flushed and not yet fenced.
    ///
    /// One flush and one fence per line from that of `position` to that of slot `count`; one more
    /// fence if `unfenced` and only one line is touched. Beside what is durable, the word to give the lock
    /// back from.
    pub(super) fn insert_at<D: Domain>(
        &self,
        domain: &D,
        position: usize,
        count: usize,
        (key, value): (u64, u64),
        mut unfenced: bool,
    ) -> (Committed, LockWord) {
        let held = self.face(domain, RIGHTWARD);
        for slot in (position..count).rev() {
            let (from, to) = (&self.slots[slot], &self.slots[slot + 1]);
            // I2: the key first makes slot + 1 a duplicate, so that its value does not count.
            to.key.store_ordered(domain, from.key.load(domain));
            if straddles(domain, slot + 1) {
                domain.persist(&to.key);
            }
            to.value.store_ordered(domain, from.value.load(domain));
            if begins_line(domain, slot + 1) || straddles(domain, slot + 1) {
                // I3: the next store takes the entry out of `slot`, in another line; the copy must
                // be durable first. Nothing more is written to the copy's line.
                domain.persist(&to.value);
                unfenced = false;
            }
        }
        let entry = &self.slots[position];
        if position == 0 {
            if count > 0 {
                // I2: from here slot 1 counts in place of slot 0. Same line (R2).
                self.set_hidden(domain, true);
            }
            self.set(domain, 0, key, value);
        } else if position < count {
            // I2: a duplicate of the left neighbour; from here slot position + 1 counts.
            entry.key.store_ordered(domain, self.slots[position - 1].key.load(domain));
            if straddles(domain, position) {
                domain.persist(&entry.key);
            }
            entry.value.store_ordered(domain, value);
        } else {
            // The key is zero: the end of the node.
            entry.value.store_ordered(domain, value);
        }
        if straddles(domain, position) {
            domain.persist(&entry.value);
        } else if unfenced {
            // I8: the commit makes the key's block reachable.
            domain.fence();
        }
        // The commit: one store, in the line of the value (R2).
        if position == 0 {
            self.set_hidden(domain, false);
        } else {
            entry.key.store_ordered(domain, key);
        }
        domain.flush(&entry.key);
        (Committed::after_fence(domain), held)
    }

    /// Takes the entry at `position` out of a clean node with `count` entries. One flush and one
    /// fence per line from that of `position` to that of slot `count - 1`. Returns what
    /// [`insert_at`](Self::insert_at) does.
    pub(super) fn remove_at<D: Domain>(
        &self,
        domain: &D,
        position: usize,
        count: usize,
    ) -> (Committed, LockWord) {
        let held = self.face(domain, LEFTWARD);
        (self.take_out(domain, position, count), held)
    }

    #[inline(always)]
    fn take_out<D: Domain>(&self, domain: &D, position: usize, count: usize) -> Committed {
        let entry = &self.slots[position];
        if count == 1 {
            self.set_hidden(domain, true);
            // No word of a key that is about to be freed stays behind, not even one that does not
            // count: lock-free readers compare before they look at `hidden`.
            entry.key.store_ordered(domain, 0);
            return self.commit_slot(domain, position);
        }
        if position + 1 == count {
            entry.key.store_ordered(domain, 0);
            return self.commit_slot(domain, position);
        }
        if position == 0 {
            // The commit, once durable: slot 0 does not count. All in one line (R2).
            self.set_hidden(domain, true);
            self.take_over_hidden(domain);
            return self.close_gap(domain, 1, count);
        }
        // The commit, once durable: a duplicate does not count (I2).
        entry.key.store_ordered(domain, self.slots[position - 1].key.load(domain));
        self.close_gap(domain, position, count)
    }

    /// Flushes the key of a slot, which is the last that its operation changes, and fences.
    fn commit_slot<D: Domain>(&self, domain: &D, slot: usize) -> Committed {
        domain.flush(&self.slots[slot].key);
        Committed::after_fence(domain)
    }

    /// Moves slot 1 into the hidden slot 0 of a node that has both; slot 1 becomes a duplicate.
    fn take_over_hidden<D: Domain>(&self, domain: &D) {
        self.set(domain, 0, self.slots[1].key.load(domain), self.slots[1].value.load(domain));
        self.set_hidden(domain, false);
    }

    /// Moves the entries to the right of `gap`, which is a duplicate, one slot to the left. `count`
    /// includes the duplicate.
    fn close_gap<D: Domain>(&self, domain: &D, gap: usize, count: usize) -> Committed {
        for slot in gap..count - 1 {
            let (to, from) = (&self.slots[slot], &self.slots[slot + 1]);
            // I2: `slot` is a duplicate, its value does not count; once it has the key of
            // slot + 1, it counts and slot + 1 does not.
            if straddles(domain, slot) {
                domain.persist(&to.key);
            }
            to.value.store_ordered(domain, from.value.load(domain));
            if straddles(domain, slot) {
                domain.persist(&to.value);
            }
            to.key.store_ordered(domain, from.key.load(domain));
            let ends_line = if domain.commits(mutants::WRONG_END_OF_LINE_ON_REMOVE) {
                begins_line(domain, slot)
            } else {
                begins_line(domain, slot + 1)
            };
            if ends_line {
                // I3: the next store overwrites the entry in slot + 1, in another line; its copy
                // must be durable first. Nothing more is written to the copy's line.
                domain.persist(&to.key);
            }
        }
        self.slots[count - 1].key.store_ordered(domain, 0);
        // I4: whoever comes next takes the slots beyond the end to be durably empty.
        self.commit_slot(domain, count - 1)
    }

    /// Empties the slots from `from` to `to`, whose entries belong to the sibling (I5).
    fn clear<D: Domain>(&self, domain: &D, from: usize, to: usize) {
        for entry in self.slots[from..to].iter().rev() {
            entry.key.store_ordered(domain, 0);
        }
    }

    /// Empties the slots from `from` to `to`, whose entries belong to the sibling (I5), and flushes
    /// them. The caller fences before it gives the lock back.
    pub(super) fn truncate<D: Domain>(&self, domain: &D, from: usize, to: usize) {
        self.clear(domain, from, to);
        // I4, as in `close_gap`.
        domain.flush(&self.slots[from..to]);
    }

    /// Brings a node that is locked for the first time since the pool was opened into the clean
    /// state (I4). `below_sibling` says of a key word whether it is below the sibling's low key.
    ///
    /// A crash in here leaves a state of the same kinds, so repair can be repeated: the stores are
    /// those of a truncation and of a removal after its commit.
    pub(super) fn repair<D: Domain>(&self, domain: &D, below_sibling: impl Fn(u64) -> bool) {
        let _: LockWord = self.face(domain, LEFTWARD);
        let slots = self.slots;
        let key = |slot: usize| slots[slot].key.load(domain);
        let mut count = 1;
        while count < slots.len()
            && !self.ends_before(domain, count, key(count))
            && below_sibling(key(count))
        {
            count += 1;
        }
        if let Some(last) = (count..slots.len()).rev().find(|&slot| key(slot) != 0) {
            domain.happens("repair of a node that a split had not emptied");
            self.clear(domain, count, last + 1);
            // Before the sibling gets an entry in a parent: by that its low key could be removed without
            // passing here, and the stale entry of that key would count again. Another thread may unlink it, too.
            let end = if domain.commits(mutants::REPAIR_FLUSHED_IN_PART) {
                (count..last).find(|&slot| begins_line(domain, slot + 1)).unwrap_or(last)
            } else {
                last
            };
            domain.persist(&slots[count..=end]);
        }
        if self.sibling(domain).is_hidden() {
            domain.happens("repair of a hidden first entry");
            if count == 1 {
                slots[0].key.store_ordered(domain, 0);
                return;
            }
            self.take_over_hidden(domain);
        }
        if domain.commits(mutants::DUPLICATE_ON_REMOVE) {
            return;
        }
        let mut slot = 1;
        while slot < count {
            if key(slot) == key(slot - 1) {
                domain.happens("repair of a duplicate");
                let _: Committed = self.close_gap(domain, slot, count);
                count -= 1;
            } else {
                slot += 1;
            }
        }
    }
}
