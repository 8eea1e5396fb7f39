//! The page table: which slot holds a page.
//!
//! After section 4.3 of the thesis, one table for all tiers: its slots are frames, of whichever tier. A
//! bucket is a list through the slots, of which there is a fixed number, so nothing is allocated and
//! nothing is freed: a reader that walks a list while it is changed comes along other slots,
//! and finds out by the bucket's latch. Nobody waits for a lock of the whole table; there is none.
//!
//! ```text
//!  buckets   latch │ first        slots   number │ next
//!              …   │  3 ──────────▶  3      17   │  1 ──────▶ 1: 42 │ none
//! ```

use lapis_pmem::{Domain, DramCell};

use crate::latch::{Latch, Patience, Restart};
use crate::page::PageNumber;

/// The end of a list, and a slot that is in none.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Bucket<D: Domain> {
    latch: Latch<D>,
    first: DramCell<u32, D>,
}

#[derive(Debug)]
struct Slot<D: Domain> {
    number: DramCell<u64, D>,
    next: DramCell<u32, D>,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct PageTable<D: Domain> {
    /// A power of two, and twice as many as there are slots or more.
    buckets: Box<[Bucket<D>]>,
    slots: Box<[Slot<D>]>,
}

impl<D: Domain> PageTable<D> {
    /// An empty table of so many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let bucket = || Bucket { latch: Latch::new(false), first: DramCell::new(NONE) };
        let slot = || Slot { number: DramCell::new(0), next: DramCell::new(NONE) };
        Self {
            buckets: (0..(2 * slots).next_power_of_two()).map(|_| bucket()).collect(),
            slots: (0..slots).map(|_| slot()).collect(),
        }
    }

    #[inline]
    fn bucket(&self, number: PageNumber) -> &Bucket<D> {
        // Fibonacci hashing: neighbouring pages come to different buckets far apart.
        let hash = number.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.buckets.len().trailing_zeros();
        &self.buckets[hash.checked_shr(64 - bits).unwrap_or(0) as usize]
    }

    /// The slot of a page in this list, and the one before it.
    #[inline]
    fn walk(&self, domain: &D, bucket: &Bucket<D>, number: PageNumber) -> Option<(u32, u32)> {
        let (mut before, mut at) = (NONE, bucket.first.load(domain));
        // Of a list that changes on the way, the walk ends all the same.
        for _ in 0..self.slots.len() {
            let slot = self.slots.get(at as usize)?;
            if slot.number.load(domain) == number.get() {
                return Some((at, before));
            }
            (before, at) = (at, slot.next.load(domain));
        }
        None
    }

    /// The slot that holds a page.
    #[inline]
    pub(crate) fn find(&self, domain: &D, number: PageNumber) -> Result<Option<usize>, Restart> {
        let bucket = self.bucket(number);
        let version = bucket.latch.version(domain)?;
        let found = self.walk(domain, bucket, number);
        bucket.latch.validate(domain, version)?;
        Ok(found.map(|(slot, _)| slot as usize))
    }

    fn locked<T>(&self, domain: &D, number: PageNumber, change: impl FnOnce(&Bucket<D>) -> T) -> T {
        let (bucket, mut patience) = (self.bucket(number), Patience::default());
        let version = loop {
            match bucket.latch.try_take(domain) {
                Ok(version) => break version,
                Err(Restart) => _ = patience.wait(domain),
            }
        };
        let changed = change(bucket);
        bucket.latch.release(domain, version, true);
        changed
    }

    /// Says that `slot`, which holds nothing, holds a page from here on. False if another does.
    pub(crate) fn insert(&self, domain: &D, number: PageNumber, slot: usize) -> bool {
        self.locked(domain, number, |bucket| {
            if self.walk(domain, bucket, number).is_some() {
                return false;
            }
            let entry = &self.slots[slot];
            entry.number.store(domain, number.get());
            entry.next.store(domain, bucket.first.load(domain));
            bucket.first.store(domain, slot as u32);
            true
        })
    }

    /// Says that a page that is in slot `from` is in `to` from here on, which holds nothing. False if it is
    /// not in `from`.
    pub(crate) fn replace(&self, domain: &D, number: PageNumber, from: usize, to: usize) -> bool {
        self.locked(domain, number, |bucket| {
            let Some((at, before)) = self.walk(domain, bucket, number) else { return false };
            if at as usize != from {
                return false;
            }
            let (old, new) = (&self.slots[from], &self.slots[to]);
            new.number.store(domain, number.get());
            new.next.store(domain, old.next.load(domain));
            self.link(domain, bucket, before, to as u32);
            old.number.store(domain, 0);
            old.next.store(domain, NONE);
            true
        })
    }

    /// Lets the slot `before`, or the bucket if there is none, refer to `to`.
    fn link(&self, domain: &D, bucket: &Bucket<D>, before: u32, to: u32) {
        match self.slots.get(before as usize) {
            Some(before) => before.next.store(domain, to),
            None => bucket.first.store(domain, to),
        }
    }

    /// Says that a page is in no slot any more.
    pub(crate) fn remove(&self, domain: &D, number: PageNumber) {
        self.locked(domain, number, |bucket| {
            let Some((at, before)) = self.walk(domain, bucket, number) else { return };
            let slot = &self.slots[at as usize];
            self.link(domain, bucket, before, slot.next.load(domain));
            slot.number.store(domain, 0);
            slot.next.store(domain, NONE);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(number: u64) -> PageNumber {
        PageNumber::new(number).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn it_holds_what_a_map_holds(steps in proptest::collection::vec((1..40u64, 0..3), 0..80)) {
            let (domain, table) = (test_domain(), PageTable::new(8));
            let (mut model, mut free) = (BTreeMap::new(), (0..8).collect::<Vec<usize>>());
            for (number, step) in steps {
                if step == 0 && let Some(&slot) = free.last() {
                    let from = model.get(&number).copied();
                    let replaced = table.replace(&domain, page(number), from.unwrap_or(7), slot);
                    prop_assert_eq!(replaced, from.is_some());
                    if let Some(from) = from {
                        model.insert(number, slot);
                        free.pop();
                        free.insert(0, from);
                    }
                } else if step == 1 && let Some(&slot) = free.last() {
                    let inserted = table.insert(&domain, page(number), slot);
                    prop_assert_eq!(inserted, !model.contains_key(&number));
                    if inserted {
                        model.insert(number, slot);
                        free.pop();
                    }
                } else {
                    table.remove(&domain, page(number));
                    free.extend(model.remove(&number));
                }
                for number in 1..40 {
                    let found = table.find(&domain, page(number));
                    prop_assert_eq!(found, Ok(model.get(&number).copied()));
                }
            }
        }
    }

    #[test]
    fn a_page_that_stays_is_found_while_others_of_its_bucket_come_and_go() {
        let (domain, table) = (test_domain(), PageTable::new(1));
        // Two buckets: about half of the pages share that of page 1.
        let table = &PageTable { slots: PageTable::new(64).slots, ..table };
        assert!(table.insert(&domain, page(1), 0));
        let rounds = if cfg!(miri) { 20 } else { 5000 };
        std::thread::scope(|scope| {
            let domain = &domain;
            let others = |first: usize| {
                move || {
                    for round in 0..rounds {
                        let slot = first + round % 16;
                        let number = page(slot as u64 * 7 + 2);
                        assert!(table.insert(domain, number, slot));
                        table.remove(domain, number);
                    }
                }
            };
            scope.spawn(others(1));
            scope.spawn(others(17));
            let mut found = 0;
            while found < rounds {
                if let Ok(slot) = table.find(domain, page(1)) {
                    assert_eq!(slot, Some(0));
                    found += 1;
                }
            }
        });
    }
}
